// SPDX-License-Identifier: Apache-2.0
// BLOOM: LayerNorm also of the embedding, biases of attention instead of rope, one product for q, k
// and v, an MLP without a gate.
#include "llm/arch/families.hpp"

namespace tenon::llm {
namespace {

void read(ConfigReader& r, ModelConfig& c) {
  c.dim = r.size(r.has("n_embed") ? "n_embed" : "hidden_size");
  r.ignore({"hidden_size"});
  c.layers = r.size(r.has("n_layer") ? "n_layer" : "num_hidden_layers", {}, 4096);
  const char* const heads = r.has("n_head") ? "n_head" : "num_attention_heads";
  c.heads = c.kv_heads = r.size(heads, {}, 1 << 16);
  if (c.dim % c.heads != 0) r.refuse(heads, "a divisor of hidden_size " + std::to_string(c.dim));
  c.head_dim = c.dim / c.heads;
  c.ffn = 4 * c.dim;
  if (r.integer("n_inner", c.ffn) != c.ffn) r.refuse("n_inner", std::to_string(c.ffn));
  c.context = r.size("seq_length", 2048, int64_t{1} << 30);
  c.norm = Norm::layer, c.norm_bias = true;
  c.norm_eps = r.positive("layer_norm_epsilon", 1e-5);
  c.activation = "gelu_tanh";
  c.tied = r.flag("tie_word_embeddings", true);
  c.qkv_bias = c.o_bias = c.mlp_bias = true;
  c.alibi = alibi(c.heads);
  c.local.assign(static_cast<size_t>(c.layers), false);
  c.sparse.assign(static_cast<size_t>(c.layers), false);
  c.no_rope.assign(static_cast<size_t>(c.layers), true);
  r.expect("apply_residual_connection_post_layernorm", false);
  // The order of sums, kernels of training, and keys that nothing reads.
  r.ignore({"slow_but_exact", "attention_softmax_in_fp32", "bias_dropout_fusion",
            "masked_softmax_fusion", "offset_alibi", "skip_bias_add", "skip_bias_add_qkv"});
}

Value attention(Step& p, Value normed, int64_t layer, const std::string& layer_name,
                Value residual) {
  const std::string name = layer_name + ".self_attention";
  return decoder_attend(p, joined_heads(p, normed, name), layer, name, residual, "dense");
}

Value mlp(Step& p, Value normed, int64_t, const std::string& name, Value residual) {
  return plain_mlp(p, normed, name + ".mlp", "dense_h_to_4h", "dense_4h_to_h", residual);
}

Value hidden(Step& p) {
  const Value x = p.norm(p.embed("transformer.word_embeddings"),
                         "transformer.word_embeddings_layernorm", p.c.dim);
  return decoder_layers(p, x, attention, mlp, {.layers = "transformer.h."});
}

Value last_norm(Step& p, Value x) { return p.norm(x, "transformer.ln_f", p.c.dim); }

Value head(Step& p, Value normed) { return tied_head(p, normed, "transformer.word_embeddings"); }

}  // namespace

const Architecture kBloom = {"bloom", "BloomForCausalLM", read, hidden, last_norm, head};

}  // namespace tenon::llm
