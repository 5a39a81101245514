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

Value mixture(Step& p, Value normed, int64_t, const std::string& layer_name, Value residual) {
  const std::string name = layer_name + ".block_sparse_moe";
  return experts(p, normed,
                 {.router = name + ".gate",
                  .experts = name + ".experts",
                  .gate = "w1",
                  .up = "w3",
                  .down = "w2"},
                 residual);
}

Value hidden(Step& p) { return decoder_layers(p, decoder_attention, mixture); }

}  // namespace

const Architecture kMixtral = {"mixtral", "MixtralForCausalLM", read,
                               hidden,    decoder_norm,         decoder_head};

}  // namespace tenon::llm
