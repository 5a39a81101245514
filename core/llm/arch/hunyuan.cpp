// SPDX-License-Identifier: Apache-2.0
// Hunyuan: norms of q and k behind rope, whose base grows with a fixed alpha.
#include <cmath>

#include "llm/arch/families.hpp"

namespace tenon::llm {
namespace {

// The type "dynamic" with an alpha is one base for all lengths: theta * alpha^(dims / (dims - 2)).
// Then the other keys of the object change nothing.
bool read_alpha(ConfigReader& r, ModelConfig& c) {
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    std::optional<ConfigReader> o = r.object(key);
    if (!o || !o->has("alpha") || o->number("alpha") == 0) continue;
    if (o->text("rope_type", o->text("type", "")) != "dynamic" || c.head_dim < 4) continue;
    const double alpha = o->positive("alpha");
    const auto dims = static_cast<double>(c.head_dim);
    const double theta = o->positive("rope_theta", r.positive("rope_theta", 1e4));
    c.rope = {.dims = c.head_dim, .theta = theta * std::pow(alpha, dims / (dims - 2))};
    o->ignore({"type", "factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim"});
    o->refuse_unread();
    check_rope(c.rope, r.where());
    r.ignore({"rope_theta"});
    return true;
  }
  return false;
}

void read(ConfigReader& r, ModelConfig& c) {
  read_decoder(r, c, {.norm_eps = 1e-5});
  if (!read_alpha(r, c)) c.rope = read_rope(r, c.head_dim, c.context);
  c.qkv_bias = c.o_bias = r.flag("attention_bias", false);
  // Names of what all of these models have.
  r.expect("use_qk_norm", true);
  for (const char* key : {"use_cla", "mlp_bias"}) r.expect(key, false);
  if (r.has("attention_head_dim") && r.integer("attention_head_dim") != c.head_dim)
    r.refuse("attention_head_dim", "the value of head_dim");
  if (r.integer("num_experts", 1) != 1) r.refuse("num_experts", "1");
  r.ignore({"class_num", "pool_type", "eod_token_id", "cla_share_factor", "dense_list", "im_end_id",
            "im_newline_id", "im_start_id", "image_token_id", "mask_init_id", "norm_type",
            "org_vocab_size", "pad_id", "text_end_id", "text_start_id", "rope_type"});
}

Value attention(Step& p, Value normed, int64_t layer, const std::string& layer_name,
                Value residual) {
  const ModelConfig& c = p.c;
  const std::string name = layer_name + ".self_attn";
  Heads heads = decoder_heads(p, normed, name);
  const auto changed = [&](Value x, const char* rope, const char* norm) {
    const Value rotated = p.rotate(x, c.rope, "rope", name + rope, c.rope_interleaved);
    return p.rms_norm(rotated, name + norm, c.head_dim, c.norm_eps);
  };
  heads = {.q = changed(heads.q, ".q_rope", ".query_layernorm"),
           .k = changed(heads.k, ".k_rope", ".key_layernorm"),
           .v = heads.v,
           .rotated = true};
  return decoder_attend(p, heads, layer, name, residual);
}

Value hidden(Step& p) { return decoder_layers(p, attention, decoder_feed_forward); }

}  // namespace

const Architecture kHunyuan = {
    "hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM", read, hidden, decoder_norm, decoder_head};

}  // namespace tenon::llm
