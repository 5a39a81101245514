// SPDX-License-Identifier: Apache-2.0
// BLOOM: LayerNorm also of the embedding, biases of attention instead of rope, one product for q, k
// and v, an MLP without a gate.
#include "llm/arch/families.hpp"

namespace tenon::llm {
namespace {

void read(ConfigReader& r, ModelConfig& c) {
  read_sizes(r, c,
             {.dim = r.has("n_embed") ? "n_embed" : "hidden_size",
              .layers = r.has("n_layer") ? "n_layer" : "num_hidden_layers",
              .heads = r.has("n_head") ? "n_head" : "num_attention_heads"});
  r.ignore({"hidden_size"});
  c.ffn = 4 * c.dim;
  if (r.integer("n_inner", c.ffn) != c.ffn) r.refuse("n_inner", std::to_string(c.ffn));
  c.context = r.size("seq_length", 2048, int64_t{1} << 30);
  c.norm = Norm::layer, c.norm_bias = true;
  c.norm_eps = r.positive("layer_norm_epsilon", 1e-5);
  c.activation = "gelu_tanh";
  c.tied = r.flag("tie_word_embeddings", true);
  c.qkv_bias = c.o_bias = c.mlp_bias = true;
  c.alibi = alibi(c.heads);
  c.no_rope.assign(static_cast<size_t>(c.layers), true);
  r.expect("apply_residual_connection_post_layernorm", false);
  // The order of sums, kernels of training, and keys that nothing reads.
  r.ignore({"slow_but_exact", "attention_softmax_in_fp32", "bias_dropout_fusion",
            "masked_softmax_fusion", "offset_alibi", "skip_bias_add", "skip_bias_add_qkv"});
}

Value attention(Step& p, Value normed, int64_t layer, const std::string& name, Value residual) {
  return joined_attention(p, normed, layer, name + ".self_attention", residual);
}

Value hidden(Step& p) {
  const Value x = p.norm(p.embed("transformer.word_embeddings"),
                         "transformer.word_embeddings_layernorm", p.c.dim);
  return decoder_layers(p, x, attention, dense_mlp, {.layers = "transformer.h."});
}

Value last_norm(Step& p, Value x) { return p.norm(x, "transformer.ln_f", p.c.dim); }

Value head(Step& p, Value normed) { return tied_head(p, normed, "transformer.word_embeddings"); }

}  // namespace

const Architecture kBloom = {"bloom", "BloomForCausalLM", read, hidden, last_norm, head};

}  // namespace tenon::llm
