// SPDX-License-Identifier: Apache-2.0
// GPT-J: one LayerNorm for attention and an MLP without a gate side by side, neighbours of a part
// of each head rotated, a bias of the head.
#include "llm/arch/families.hpp"

namespace tenon::llm {
namespace {

void read(ConfigReader& r, ModelConfig& c) {
  read_gpt(r, c, 2048, false);
  c.norm = Norm::layer, c.norm_bias = true;
  c.parallel = c.mlp_bias = true;
  c.rope.dims = r.is_null("rotary_dim") ? 0 : r.size("rotary_dim", 64);
  if (c.rope.dims < 2 || c.rope.dims % 2 != 0 || c.rope.dims > c.head_dim)
    r.refuse("rotary_dim",
             "an even number up to the " + std::to_string(c.head_dim) + " elements of a head");
  c.rope_interleaved = true;
  for (const char* key : {"rotary", "scale_attn_weights"}) r.expect(key, true);
}

Value attention(Step& p, Value normed, int64_t layer, const std::string& name, Value residual) {
  return decoder_attention(p, normed, layer, name, residual,
                           {.part = ".attn", .output = "out_proj"});
}

Value mlp(Step& p, Value normed, int64_t, const std::string& name, Value residual) {
  return plain_mlp(p, normed, name + ".mlp", "fc_in", "fc_out", residual);
}

Value hidden(Step& p) {
  return decoder_layers(p, p.embed("transformer.wte"), attention, mlp,
                        {.layers = "transformer.h.", .first_norm = ".ln_1", .second_norm = ""});
}

Value last_norm(Step& p, Value x) { return p.norm(x, "transformer.ln_f", p.c.dim); }

Value head(Step& p, Value normed) {
  return p.binary("add", tied_head(p, normed, "transformer.wte"),
                  p.wide("lm_head.bias", {p.c.vocab}));
}

}  // namespace

const Architecture kGptJ = {"gptj", "GPTJForCausalLM", read, hidden, last_norm, head};

}  // namespace tenon::llm
