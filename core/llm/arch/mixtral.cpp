// SPDX-License-Identifier: Apache-2.0
// Mixtral: Mistral's attention, and a mixture of experts in each layer.
#include "llm/arch/families.hpp"

namespace tenon::llm {
namespace {

void read(ConfigReader& r, ModelConfig& c) {
  read_decoder(r, c, {.norm_eps = 1e-5});
  c.rope = read_rope(r, c.head_dim, c.context, 1e6);
  read_window(r, c, 0);
  c.moe.experts = r.size("num_local_experts", 8, 1 << 16);
  c.moe.per_token = r.size("num_experts_per_tok", 2, c.moe.experts);
  c.moe.ffn = c.ffn;
}

Value hidden(Step& p) {
  const ModelConfig& c = p.c;
  Value x = p.embed("model.embed_tokens");
  for (int64_t i = 0; i < c.layers; ++i) {
    const std::string name = "model.layers." + std::to_string(i);
    x = decoder_attention(p, p.rms_norm(x, name + ".input_layernorm", c.dim, c.norm_eps), i, x);
    const Value m = p.rms_norm(x, name + ".post_attention_layernorm", c.dim, c.norm_eps);
    const std::string moe = name + ".block_sparse_moe";
    x = p.binary("add", x,
                 experts(p, m,
                         {.router = moe + ".gate",
                          .experts = moe + ".experts",
                          .gate = "w1",
                          .up = "w3",
                          .down = "w2"}));
  }
  return x;
}

}  // namespace

const Architecture kMixtral = {"mixtral", "MixtralForCausalLM", read, hidden, decoder_logits};

}  // namespace tenon::llm
