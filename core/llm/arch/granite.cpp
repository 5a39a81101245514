// SPDX-License-Identifier: Apache-2.0
// Granite: Llama with factors on the embedding, the scores, what each part of a layer adds, and the
// logits; with an MLP or with experts.
#include "llm/arch/families.hpp"

namespace tenon::llm {
namespace {

void read(ConfigReader& r, ModelConfig& c) {
  read_decoder(r, c);
  c.rope = read_rope(r, c.head_dim, c.context);
  c.qkv_bias = c.o_bias = r.flag("attention_bias", false);
  c.mlp_bias = r.flag("mlp_bias", false);
  c.embed_scale = r.positive("embedding_multiplier", 1);
  c.residual_scale = r.positive("residual_multiplier", 1);
  c.attention_scale = r.positive("attention_multiplier", 1);
  c.logit_scale = 1 / r.positive("logits_scaling", 1);
}

void read_moe(ConfigReader& r, ModelConfig& c) {
  read(r, c);
  c.moe.experts = r.size("num_local_experts", 8, 1 << 16);
  c.moe.per_token = r.size("num_experts_per_tok", 2, c.moe.experts);
  c.moe.ffn = c.ffn;
}

Value attention(Step& p, Value normed, int64_t layer, const std::string& name, Value residual) {
  const Value more = decoder_attention(p, normed, layer, name, {});
  return p.binary("add", residual, p.scaled(more, p.c.residual_scale));
}

Value mlp(Step& p, Value normed, int64_t, const std::string& name, Value residual) {
  const Value more = decoder_mlp(p, normed, name + ".mlp", p.c.ffn, {});
  return p.binary("add", residual, p.scaled(more, p.c.residual_scale));
}

Value mixture(Step& p, Value normed, int64_t, const std::string& layer_name, Value residual) {
  const std::string name = layer_name + ".block_sparse_moe";
  const Value more = experts(p, normed,
                             {.router = name + ".router.layer",
                              .experts = name + ".experts",
                              .gate = "gate_proj",
                              .up = "up_proj",
                              .down = "down_proj"},
                             {});
  return p.binary("add", residual, p.scaled(more, p.c.residual_scale));
}

Value moe_hidden(Step& p) { return decoder_layers(p, attention, mixture); }

Value hidden(Step& p) { return decoder_layers(p, attention, mlp); }

}  // namespace

const Architecture kGraniteMoe = {
    "granitemoe", "GraniteMoeForCausalLM", read_moe, moe_hidden, decoder_norm, decoder_head};
const Architecture kGranite = {"granite", "GraniteForCausalLM", read,
                               hidden,    decoder_norm,         decoder_head};

}  // namespace tenon::llm
