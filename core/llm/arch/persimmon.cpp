// SPDX-License-Identifier: Apache-2.0
// Persimmon: LayerNorm, also of each head of q and k, one product for q, k and v, a part of each head
// rotated, an MLP without a gate.
#include "llm/arch/families.hpp"

namespace tenon::llm {
namespace {

void read(ConfigReader& r, ModelConfig& c) {
  read_decoder(r, c, {.norm_eps = 1e-5, .eps_key = "layer_norm_eps"});
  if (c.heads * c.head_dim != c.dim) r.refuse("head_dim", "hidden_size / num_attention_heads");
  if (!r.has("hidden_act")) c.activation = "relu2";
  c.kv_heads = c.heads;  // transformers reads no num_key_value_heads
  c.norm = Norm::layer, c.norm_bias = true;
  c.qkv_bias = c.o_bias = c.mlp_bias = true;
  c.qk_norm = r.flag("qk_layernorm", true);
  c.rope = read_rope(r, c.head_dim, c.context, 1e4, 0.5);
}

Value attention(Step& p, Value normed, int64_t layer, const std::string& layer_name,
                Value residual) {
  const std::string name = layer_name + ".self_attn";
  Heads heads = joined_heads(p, normed, name);
  if (p.c.qk_norm) {
    heads.q = p.norm(heads.q, name + ".q_layernorm", p.c.head_dim);
    heads.k = p.norm(heads.k, name + ".k_layernorm", p.c.head_dim);
  }
  return decoder_attend(p, heads, layer, name, residual, "dense");
}

Value hidden(Step& p) { return decoder_layers(p, attention, dense_mlp); }

Value last_norm(Step& p, Value x) { return p.norm(x, "model.final_layernorm", p.c.dim); }

}  // namespace

const Architecture kPersimmon = {"persimmon", "PersimmonForCausalLM", read, hidden, last_norm,
                                 decoder_head};

}  // namespace tenon::llm
