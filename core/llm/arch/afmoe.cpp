// SPDX-License-Identifier: Apache-2.0
// AFMoE, Arcee's Trinity: norms before and behind attention and MLP, a gate of what attention gives,
// rope in layers with a window only, and experts beside one that all tokens use.
#include <algorithm>
#include <cmath>

#include "llm/arch/families.hpp"

namespace tenon::llm {
namespace {

void read_experts(ConfigReader& r, ModelConfig& c) {
  MoeConfig& m = c.moe;
  m.experts = r.size("num_experts", 64, 1 << 16);
  m.per_token = r.size("num_experts_per_tok", 6, m.experts);
  m.ffn = r.size("moe_intermediate_size", 1408);
  m.shared_ffn = m.ffn * r.size("num_shared_experts", 2, 64);
  m.scaling = r.positive("route_scale", 1);
  m.score = "sigmoid", m.correction_bias = true;
  const int64_t dense = r.integer("num_dense_layers", 1);
  for (int64_t i = 0; i < c.layers; ++i) c.sparse[static_cast<size_t>(i)] = i >= dense;
  // Files of the model's authors name what all of these models have.
  r.expect("route_norm", true);
  if (r.text("score_func", "sigmoid") != "sigmoid") r.refuse("score_func", "'sigmoid'");
  for (const char* key : {"n_group", "topk_group", "num_expert_groups", "num_limited_groups"})
    if (r.integer(key, 1) != 1) r.refuse(key, "1");
  r.ignore({"load_balance_coeff", "use_grouped_mm"});
}

void read(ConfigReader& r, ModelConfig& c) {
  read_decoder(r, c, {.norm_eps = 1e-5, .head_dim = 128});
  c.rope = read_rope(r, c.head_dim, c.context);
  c.qkv_bias = c.o_bias = r.flag("attention_bias", false);
  c.qk_norm = true;
  if (r.flag("mup_enabled", false)) c.embed_scale = std::sqrt(static_cast<double>(c.dim));
  const int64_t every = r.size("global_attn_every_n_layers", 4);
  if (r.has("layer_types")) {
    read_layer_types(r, c, nullptr);
  } else {
    for (int64_t i = 0; i < c.layers; ++i) c.local[static_cast<size_t>(i)] = (i + 1) % every != 0;
  }
  read_window_of_types(r, c, 1024);
  for (const bool local : c.local) c.no_rope.push_back(!local);
  read_experts(r, c);
}

Value attention(Step& p, Value normed, int64_t layer, const std::string& layer_name,
                Value residual) {
  const ModelConfig& c = p.c;
  const std::string name = layer_name + ".self_attn";
  Heads heads = decoder_heads(p, normed, name);
  heads.q = p.norm(heads.q, name + ".q_norm", c.head_dim);
  heads.k = p.norm(heads.k, name + ".k_norm", c.head_dim);
  heads.gate = p.project(normed, name + ".gate_proj", c.dim, c.heads * c.head_dim);
  return decoder_attend(p, heads, layer, name, residual);
}

Value feed_forward(Step& p, Value normed, int64_t layer, const std::string& name, Value residual) {
  return named_feed_forward(p, normed, layer, name, residual,
                            {.router = ".router.gate", .correction = ".expert_bias"});
}

Value hidden(Step& p) {
  return decoder_layers(p, attention, feed_forward,
                        {.before_attention = ".input_layernorm",
                         .behind_attention = ".post_attention_layernorm",
                         .before_mlp = ".pre_mlp_layernorm",
                         .behind_mlp = ".post_mlp_layernorm"});
}

}  // namespace

const Architecture kAfmoe = {"afmoe", "AfmoeForCausalLM", read, hidden, decoder_norm, decoder_head};

}  // namespace tenon::llm
