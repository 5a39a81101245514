// SPDX-License-Identifier: Apache-2.0
// Granite: Llama with factors on the embedding, the scores, what each part of a layer adds, and the
// logits.
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

Value attention(Step& p, Value normed, int64_t layer, const std::string& name, Value residual) {
  const Value more = decoder_attention(p, normed, layer, name, {});
  return p.binary("add", residual, p.scaled(more, p.c.residual_scale));
}

Value mlp(Step& p, Value normed, int64_t, const std::string& name, Value residual) {
  const Value more = decoder_mlp(p, normed, name + ".mlp", p.c.ffn, {});
  return p.binary("add", residual, p.scaled(more, p.c.residual_scale));
}

Value hidden(Step& p) { return decoder_layers(p, attention, mlp); }

}  // namespace

const Architecture kGranite = {"granite", "GraniteForCausalLM", read,
                               hidden,    decoder_norm,         decoder_head};

}  // namespace tenon::llm
