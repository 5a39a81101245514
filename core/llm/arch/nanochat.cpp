// SPDX-License-Identifier: Apache-2.0
// NanoChat: RMSNorm without weights everywhere, also of the embedding and of q and k behind rope,
// which turns the other way round.
#include "llm/arch/families.hpp"

namespace tenon::llm {
namespace {

void read(ConfigReader& r, ModelConfig& c) {
  read_decoder(r, c);
  if (!r.has("hidden_act")) c.activation = "relu2";
  c.norm = Norm::bare_rms;
  c.rope = read_rope(r, c.head_dim, c.context);
  c.rope.backwards = true;
  c.qk_norm = true;
  c.qkv_bias = c.o_bias = r.flag("attention_bias", false);
  c.logit_softcap = read_cap(r, "final_logit_softcapping", 15);
}

Value attention(Step& p, Value normed, int64_t layer, const std::string& name, Value residual) {
  return decoder_attention(p, normed, layer, name, residual, {.norms_behind_rope = true});
}

Value mlp(Step& p, Value normed, int64_t, const std::string& name, Value residual) {
  return plain_mlp(p, normed, name + ".mlp", "fc1", "fc2", residual);
}

Value hidden(Step& p) {
  const Value x = decoder_norm(p, p.embed("model.embed_tokens"));
  return decoder_layers(p, x, attention, mlp, LayerForm{});
}

}  // namespace

const Architecture kNanoChat = {"nanochat", "NanoChatForCausalLM", read,
                                hidden,     decoder_norm,          decoder_head};

}  // namespace tenon::llm
