// SPDX-License-Identifier: Apache-2.0
// Phi 1 and 2: LayerNorm, attention and an MLP without a gate side by side, biases everywhere, also
// of the head.
#include "llm/arch/families.hpp"

namespace tenon::llm {
namespace {

void read(ConfigReader& r, ModelConfig& c) {
  read_decoder(r, c, {.norm_eps = 1e-5, .eps_key = "layer_norm_eps"});
  if (!r.has("hidden_act")) c.activation = "gelu_tanh";
  c.norm = Norm::layer, c.norm_bias = true;
  c.parallel = c.qkv_bias = c.o_bias = c.mlp_bias = true;
  c.rope = read_rope(r, c.head_dim, c.context, 1e4, 0.5);
  c.qk_norm = r.flag("qk_layernorm", false);
}

Value attention(Step& p, Value normed, int64_t layer, const std::string& name, Value residual) {
  return decoder_attention(p, normed, layer, name, residual,
                           {.q_norm = ".q_layernorm", .k_norm = ".k_layernorm", .output = "dense"});
}

Value mlp(Step& p, Value normed, int64_t, const std::string& name, Value residual) {
  return plain_mlp(p, normed, name + ".mlp", "fc1", "fc2", residual);
}

Value hidden(Step& p) { return decoder_layers(p, attention, mlp); }

Value last_norm(Step& p, Value x) { return p.norm(x, "model.final_layernorm", p.c.dim); }

Value head(Step& p, Value normed) {
  return p.binary("add", decoder_head(p, normed), p.wide("lm_head.bias", {p.c.vocab}));
}

}  // namespace

const Architecture kPhi = {"phi", "PhiForCausalLM", read, hidden, last_norm, head};

}  // namespace tenon::llm
