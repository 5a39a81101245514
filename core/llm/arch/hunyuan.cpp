// SPDX-License-Identifier: Apache-2.0
// Hunyuan: norms of q and k behind rope, whose base grows with a fixed alpha; with experts, too,
// and one that all tokens use. Hy3: norms of q and k in front of rope, and experts by sigmoids.
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

void read_common(ConfigReader& r, ModelConfig& c) {
  read_decoder(r, c, {.norm_eps = 1e-5});
  if (!read_alpha(r, c)) c.rope = read_rope(r, c.head_dim, c.context);
  c.qkv_bias = c.o_bias = r.flag("attention_bias", false);
  c.qk_norm = true;
  // Names of what all of these models have.
  r.expect("use_qk_norm", true);
  for (const char* key : {"use_cla", "mlp_bias"}) r.expect(key, false);
  if (r.has("attention_head_dim") && r.integer("attention_head_dim") != c.head_dim)
    r.refuse("attention_head_dim", "the value of head_dim");
  r.ignore({"class_num", "pool_type", "eod_token_id", "cla_share_factor", "dense_list", "im_end_id",
            "im_newline_id", "im_start_id", "image_token_id", "mask_init_id", "norm_type",
            "org_vocab_size", "pad_id", "text_end_id", "text_start_id", "rope_type"});
}

void read(ConfigReader& r, ModelConfig& c) {
  read_common(r, c);
  if (r.integer("num_experts", 1) != 1) r.refuse("num_experts", "1");
}

// A number, or a list of one for each layer, which all are equal.
int64_t of_layers(ConfigReader& r, const ModelConfig& c, const char* key, int64_t otherwise) {
  const std::vector<int64_t> all = r.integers(key);
  if (all.empty()) return otherwise;
  const auto layers = static_cast<size_t>(c.layers);
  bool good = all.size() == 1 || all.size() >= layers;
  for (size_t i = 0; i < all.size() && i < layers; ++i) good = good && all[i] == all[0];
  if (!good) r.refuse(key, "a number, or a list of the same number for each layer");
  return all[0];
}

void read_moe(ConfigReader& r, ModelConfig& c) {
  read_common(r, c);
  MoeConfig& m = c.moe;
  m.experts = of_layers(r, c, "num_experts", 1);
  m.per_token = of_layers(r, c, "moe_topk", 1);
  if (m.experts < 1 || m.experts > 1 << 16) r.refuse("num_experts", "1 to 65536");
  if (m.per_token < 1 || m.per_token > m.experts) r.refuse("moe_topk", "1 to num_experts");
  m.ffn = m.shared_ffn = c.ffn;
  c.sparse.assign(c.sparse.size(), true);
  // Names of what all of these models have.
  if (of_layers(r, c, "moe_intermediate_size", c.ffn) != c.ffn)
    r.refuse("moe_intermediate_size", "the value of intermediate_size");
  if (of_layers(r, c, "num_shared_expert", 1) != 1) r.refuse("num_shared_expert", "1");
  if (r.integer("moe_layer_num_skipped", 0) != 0) r.refuse("moe_layer_num_skipped", "0");
  if (r.number("routed_scaling_factor", 1) != 1) r.refuse("routed_scaling_factor", "1");
  for (const char* key : {"use_mixed_mlp_moe", "norm_topk_prob"}) r.expect(key, true);
  r.expect("group_limited_greedy", false);
  // Of groups, which are not used, and of training.
  r.ignore({"n_group", "topk_group", "moe_drop_tokens", "moe_random_routing_dropped_token",
            "capacity_factor"});
}

// Keys that files of the model's authors have, and transformers does not read, name what all of these models
// have.
void read_v3(ConfigReader& r, ModelConfig& c) {
  read_decoder(r, c, {.norm_eps = 1e-5, .head_dim = 128});
  c.rope = read_rope(r, c.head_dim, c.context, 11158840);
  c.qkv_bias = c.o_bias = r.flag("attention_bias", false);
  c.mlp_bias = r.flag("mlp_bias", false);
  c.qk_norm = true;
  read_grouped_experts(r, c,
                       {.experts = 192,
                        .per_token = 8,
                        .shared = 1,
                        .ffn = 1536,
                        .dense_layers = 1,
                        .normalize = true,
                        .experts_key = r.has("num_experts") ? "num_experts" : "num_local_experts",
                        .shared_key = "num_shared_experts",
                        .by_types = true,
                        .counts_dense_layers = false});
  MoeConfig& m = c.moe;
  if (m.shared_ffn == 0) r.refuse("num_shared_experts", "1 to 64");
  if (m.groups != 1) r.refuse("n_group", "1");
  if (m.scaling != 1) r.refuse("routed_scaling_factor", "router_scaling_factor in its place");
  m.scaling = r.positive("router_scaling_factor", 2.826);
  for (const char* key : {"norm_topk_prob", "route_norm", "qk_norm", "moe_router_use_sigmoid",
                          "moe_router_enable_expert_bias"})
    r.expect(key, true);
  if (r.size("expert_hidden_dim", m.ffn) != m.ffn)
    r.refuse("expert_hidden_dim", "the value of moe_intermediate_size");
  // Layers that predict further tokens.
  c.extra_layers = r.integer("num_nextn_predict_layers", 1);
  r.ignore({"enable_moe_fp32_combine", "enable_attention_fp32_softmax", "enable_lm_head_fp32",
            "use_grouped_mm", "eod_token_id"});
}

Value attention(Step& p, Value normed, int64_t layer, const std::string& name, Value residual) {
  return decoder_attention(
      p, normed, layer, name, residual,
      {.q_norm = ".query_layernorm", .k_norm = ".key_layernorm", .norms_behind_rope = true});
}

Value mixture(Step& p, Value normed, int64_t, const std::string& layer_name, Value residual) {
  const std::string name = layer_name + ".mlp";
  return experts(p, normed, {.router = name + ".gate.wg", .experts = name + ".experts"},
                 decoder_mlp(p, normed, name + ".shared_mlp", p.c.moe.shared_ffn, residual));
}

Value v3_feed_forward(Step& p, Value normed, int64_t layer, const std::string& name,
                      Value residual) {
  return named_feed_forward(
      p, normed, layer, name, residual,
      {.router = ".router.gate", .shared = ".shared_mlp", .correction = ".expert_bias"});
}

Value hidden(Step& p) { return decoder_layers(p, attention, decoder_feed_forward); }
Value v3_hidden(Step& p) { return decoder_layers(p, decoder_attention, v3_feed_forward); }
Value moe_hidden(Step& p) { return decoder_layers(p, attention, mixture); }

}  // namespace

const Architecture kHunyuan = {
    "hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM", read, hidden, decoder_norm, decoder_head};
const Architecture kHyV3 = {"hy_v3",   "HYV3ForCausalLM", read_v3,
                            v3_hidden, decoder_norm,      decoder_head};
const Architecture kHunyuanMoe = {
    "hunyuan_v1_moe", "HunYuanMoEV1ForCausalLM", read_moe, moe_hidden, decoder_norm, decoder_head};

}  // namespace tenon::llm
