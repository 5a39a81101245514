// SPDX-License-Identifier: Apache-2.0
// Laguna: layers with other numbers of heads, a gate of what attention gives, a rotary embedding for each
// type of layer, and experts by sigmoids.
#include <algorithm>

#include "llm/arch/families.hpp"

namespace tenon::llm {
namespace {

void read_heads(ConfigReader& r, ModelConfig& c) {
  constexpr const char* kKey = "num_attention_heads_per_layer";
  c.layer_heads.assign(static_cast<size_t>(c.layers), c.heads);
  if (r.has(kKey)) c.layer_heads = r.integers(kKey);
  if (static_cast<int64_t>(c.layer_heads.size()) != c.layers)
    r.refuse(kKey, "one number for each of the " + std::to_string(c.layers) + " layers");
  for (const int64_t heads : c.layer_heads)
    if (heads < 1 || heads > 1 << 16 || heads % c.kv_heads != 0)
      r.refuse(kKey, "multiples of the " + std::to_string(c.kv_heads) + " of num_key_value_heads");
}

void read_experts(ConfigReader& r, ModelConfig& c) {
  MoeConfig& m = c.moe;
  m.experts = r.size("num_experts", 256, 1 << 16);
  m.per_token = r.size("num_experts_per_tok", 8, m.experts);
  m.ffn = r.size("moe_intermediate_size", 512);
  m.shared_ffn = r.size("shared_expert_intermediate_size", 512);
  m.scaling = r.positive("moe_routed_scaling_factor", 1);
  m.score = "sigmoid", m.correction_bias = true;
  m.score_cap = r.number("moe_router_logit_softcapping", 0);
  if (!(m.score_cap >= 0 && m.score_cap <= 1e6))
    r.refuse("moe_router_logit_softcapping", "0 to 1000000");
  r.expect("moe_apply_router_weight_on_input", false);
  read_dense_and_sparse(r, c, 1);
  // Names of what has been read, or of what all of these models have.
  const std::vector<int64_t> dense = r.integers("mlp_only_layers");
  for (int64_t i = 0; r.has("mlp_only_layers") && i < c.layers; ++i)
    if ((std::ranges::find(dense, i) == dense.end()) != c.sparse[static_cast<size_t>(i)])
      r.refuse("mlp_only_layers", "the layers without experts of mlp_layer_types");
  if (r.integer("decoder_sparse_step", 1) != 1) r.refuse("decoder_sparse_step", "1");
  r.expect("norm_topk_prob", true);
}

void read(ConfigReader& r, ModelConfig& c) {
  read_decoder(r, c, {.head_dim = 128});
  read_heads(r, c);
  read_layer_types(r, c, [](int64_t) { return false; });
  read_typed_ropes(
      r, c, {.theta = 5e5, .local_theta = 1e4, .part = 0.5, .local_part = 1, .named_part = 1});
  c.qkv_bias = c.o_bias = r.flag("attention_bias", false);
  c.qk_norm = true;
  // A gate for each head, or one for each number of it.
  constexpr const char* kGating = "gating";
  const std::string gating = r.is_text(kGating)      ? r.text(kGating)
                             : r.flag(kGating, true) ? "per-head"
                                                     : "";
  if (gating != "per-head" && gating != "per-element")
    r.refuse(kGating, "true, 'per-head' or 'per-element'");
  c.head_gates = gating == "per-head";
  read_window_of_types(r, c, 512);
  read_experts(r, c);
}

Value attention(Step& p, Value normed, int64_t layer, const std::string& layer_name,
                Value residual) {
  const ModelConfig& c = p.c;
  const std::string name = layer_name + ".self_attn";
  const int64_t count = c.layer_heads[static_cast<size_t>(layer)], all = count * c.head_dim,
                keys = c.kv_heads * c.head_dim;
  const std::vector<Value> products =
      p.project_all(normed, {name + ".q_proj", name + ".k_proj", name + ".v_proj"}, c.dim,
                    {all, keys, keys}, c.qkv_bias);
  const auto norm = [&](Value x, int64_t heads, const char* which) {
    return p.norm(p.heads(x, heads, c.head_dim), name + which, c.head_dim);
  };
  Heads heads{norm(products[0], count, ".q_norm"), norm(products[1], c.kv_heads, ".k_norm"),
              p.heads(products[2], c.kv_heads, c.head_dim)};
  heads.gate = p.project(normed, name + ".g_proj", c.dim, c.head_gates ? count : all);
  if (c.head_gates) {
    const Value one = p.heads(heads.gate, count, 1);
    const std::vector<int64_t> dims = {p.s.batch, p.s.time, count, c.head_dim};
    heads.gate =
        p.reshape(p.g.add(op::expand{.shape = dims, .x = one}), {p.s.batch, p.s.time, all});
  }
  heads.gate_by = "softplus";
  return decoder_attend(p, heads, layer, name, residual);
}

Value feed_forward(Step& p, Value normed, int64_t layer, const std::string& name, Value residual) {
  return named_feed_forward(
      p, normed, layer, name, residual,
      {.shared = ".shared_expert", .correction = ".experts.e_score_correction_bias"});
}

Value hidden(Step& p) { return decoder_layers(p, attention, feed_forward); }

}  // namespace

const Architecture kLaguna = {"laguna", "LagunaForCausalLM", read,
                              hidden,   decoder_norm,        decoder_head};

}  // namespace tenon::llm
