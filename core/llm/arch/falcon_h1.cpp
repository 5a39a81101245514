// SPDX-License-Identifier: Apache-2.0
// Falcon-H1: each layer adds a mixer of Mamba-2 and attention, which read the same norm, then an MLP.
// Factors on many products.
#include "llm/arch/families.hpp"
#include "llm/arch/mamba_mixer.hpp"

namespace tenon::llm {
namespace {

// `count` factors; absent: 1.
std::vector<double> factors(ConfigReader& r, const char* key, size_t count) {
  std::vector<double> all = r.numbers(key);
  if (all.empty()) all.assign(count, 1);
  if (all.size() != count) r.refuse(key, std::to_string(count) + " numbers");
  return all;
}

void read(ConfigReader& r, ModelConfig& c) {
  read_decoder(r, c, {.norm_eps = 1e-5});
  c.rope = read_rope(r, c.head_dim, c.context);
  c.qkv_bias = c.o_bias = r.flag("attention_bias", false);
  c.mlp_bias = r.flag("mlp_bias", false);
  constexpr int64_t kMost = int64_t{1} << 26;
  const int64_t inner = r.is_null("mamba_d_ssm") ? 0 : r.size("mamba_d_ssm", 1024, kMost);
  r.ignore({"mamba_d_ssm"});
  read_mamba2(r, c, inner);
  MambaConfig& m = c.mamba;
  m.out_bias = r.flag("projectors_bias", false);
  const bool before = r.flag("mamba_norm_before_gate", true);
  m.norm = !r.flag("mamba_rms_norm", false) ? MixerNorm::none
           : before                         ? MixerNorm::before_gate
                                            : MixerNorm::behind_gate;
  m.in_scale = r.number("ssm_in_multiplier", 1);
  m.part_scales = factors(r, "ssm_multipliers", 5);
  FalconScales& s = c.falcon;
  s.mixer = r.number("ssm_out_multiplier", 1);
  s.attention_in = r.number("attention_in_multiplier", 1);
  s.attention_out = r.number("attention_out_multiplier", 1);
  s.key = r.number("key_multiplier", 1);
  const std::vector<double> mlp = factors(r, "mlp_multipliers", 2);
  s.gate = mlp[0], s.down = mlp[1];
  c.embed_scale = r.number("embedding_multiplier", 1);
  c.logit_scale = r.number("lm_head_multiplier", 1);
  r.ignore({"num_logits_to_keep", "mamba_use_mlp", "mlp_expansion_factor"});
}

Value attention(Step& p, Value normed, int64_t layer, const std::string& name) {
  const FalconScales& s = p.c.falcon;
  Heads heads = decoder_heads(p, p.scaled(normed, s.attention_in), name);
  heads.k = p.scaled(heads.k, s.key);
  if (s.key != 1) heads.qk = {};  // q and k side by side are without the factor
  return p.scaled(decoder_attend(p, heads, layer, name, {}), s.attention_out);
}

Value mlp(Step& p, Value x, const std::string& name, Value residual) {
  const ModelConfig& c = p.c;
  const std::vector<Value> both =
      p.project_all(x, {name + ".gate_proj", name + ".up_proj"}, c.dim, {c.ffn, c.ffn}, c.mlp_bias);
  const Value inner =
      p.gated(p.scaled(both[0], c.falcon.gate), both[1], c.activation, name + ".act");
  const Value y = p.project(inner, name + ".down_proj", c.ffn, c.dim, c.mlp_bias);
  return p.binary("add", residual, p.scaled(y, c.falcon.down));
}

Value hidden(Step& p) {
  const ModelConfig& c = p.c;
  Value x = p.embed("model.embed_tokens");
  for (int64_t i = 0; i < c.layers; ++i) {
    const std::string name = "model.layers." + std::to_string(i), cache = std::to_string(i);
    const Value normed = p.norm(x, name + ".input_layernorm", c.dim);
    const Value mixed =
        p.scaled(mamba2_mixer(p, normed, name + ".mamba", cache, {}), c.falcon.mixer);
    const Value attended = attention(p, normed, i, name + ".self_attn");
    const Value a = p.binary("add", x, p.binary("add", mixed, attended));
    const Value second = p.norm(a, name + ".pre_ff_layernorm", c.dim);
    x = p.layer_end(x, mlp(p, second, name + ".feed_forward", a));
  }
  return x;
}

Value last_norm(Step& p, Value x) { return p.norm(x, "model.final_layernorm", p.c.dim); }

}  // namespace

const Architecture kFalconH1 = {"falcon_h1", "FalconH1ForCausalLM", read, hidden,
                                last_norm,   decoder_head};

}  // namespace tenon::llm
