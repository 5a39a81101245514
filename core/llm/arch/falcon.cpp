// SPDX-License-Identifier: Apache-2.0
// Falcon: LayerNorm, one product for q, k and v, an MLP without a gate beside attention. One key
// head (7B), groups of them (40B), or one for each query head, with biases instead of rope (RW).
#include <cmath>

#include "llm/arch/families.hpp"

namespace tenon::llm {
namespace {

void read_heads(ConfigReader& r, ModelConfig& c) {
  c.heads = r.size("num_attention_heads", {}, 1 << 16);
  if (c.dim % c.heads != 0)
    r.refuse("num_attention_heads", "a divisor of hidden_size " + std::to_string(c.dim));
  c.head_dim = c.dim / c.heads;
  const bool grouped = r.flag("new_decoder_architecture", false),
             single = r.flag("multi_query", true) && !grouped;
  const int64_t given = r.size("num_kv_heads", c.heads, 1 << 16);
  c.kv_heads = single ? 1 : given;
  if (c.heads % c.kv_heads != 0 || (!grouped && !single && given != c.heads))
    r.refuse("num_kv_heads", (grouped ? "a divisor of the " : "the ") + std::to_string(c.heads) +
                                 " of num_attention_heads");
  c.parallel = r.flag("parallel_attn", true);
  if (grouped && !c.parallel) r.refuse("parallel_attn", "true with new_decoder_architecture");
  const int64_t norms = r.integer("num_ln_in_parallel_attn", grouped ? 2 : 1);
  if (norms != 1 && !(norms == 2 && grouped))
    r.refuse("num_ln_in_parallel_attn", grouped ? "1 or 2" : "1 without new_decoder_architecture");
  c.two_norms = norms == 2;
}

void read(ConfigReader& r, ModelConfig& c) {
  c.dim = r.size(r.has("n_embed") ? "n_embed" : "hidden_size");
  r.ignore({"hidden_size"});
  c.layers = r.size("num_hidden_layers", {}, 4096);
  read_heads(r, c);
  c.ffn = r.size("ffn_hidden_size", 4 * c.dim, int64_t{1} << 22);
  c.context = r.size("max_position_embeddings", 2048, int64_t{1} << 30);
  c.norm = Norm::layer, c.norm_bias = true;
  c.norm_eps = r.positive("layer_norm_epsilon", 1e-5);
  c.activation = read_activation(r, "activation", "gelu");
  c.tied = r.flag("tie_word_embeddings", true);
  c.qkv_bias = c.o_bias = c.mlp_bias = r.flag("bias", false);
  c.local.assign(static_cast<size_t>(c.layers), false);
  c.sparse.assign(static_cast<size_t>(c.layers), false);
  if (r.flag("alibi", false)) {
    c.alibi = alibi(c.heads);
    c.alibi.scale = 1 / std::sqrt(static_cast<double>(c.head_dim));
    c.alibi.in_bf16 = true;
    c.no_rope.assign(static_cast<size_t>(c.layers), true);
    r.ignore({"rope_theta", "rope_scaling", "rope_parameters"});
  } else {
    c.rope = read_rope(r, c.head_dim, c.context);
  }
  r.expect("apply_residual_connection_post_layernorm", false);  // not read by transformers
  if (r.has("ff_factor") && r.size("ff_factor") * c.dim != c.ffn)
    r.refuse("ff_factor", "ffn_hidden_size / hidden_size");
}

Value attention(Step& p, Value normed, int64_t layer, const std::string& name, Value residual) {
  return joined_attention(p, normed, layer, name + ".self_attention", residual);
}

Value hidden(Step& p) {
  const bool two = p.c.two_norms;
  return decoder_layers(p, p.embed("transformer.word_embeddings"), attention, dense_mlp,
                        {.layers = "transformer.h.",
                         .first_norm = two ? ".ln_attn" : ".input_layernorm",
                         .second_norm = two ? ".ln_mlp" : ".post_attention_layernorm"});
}

Value last_norm(Step& p, Value x) { return p.norm(x, "transformer.ln_f", p.c.dim); }

Value head(Step& p, Value normed) { return tied_head(p, normed, "transformer.word_embeddings"); }

}  // namespace

const Architecture kFalcon = {"falcon", "FalconForCausalLM", read, hidden, last_norm, head};

}  // namespace tenon::llm
