// SPDX-License-Identifier: Apache-2.0
// Jamba and Bamba: layers of a mixer or attention, then an MLP or experts. Jamba has mixers of Mamba
// with norms of dt, b and c, and attention without positions; Bamba has those of Mamba-2.
#include <algorithm>

#include "llm/arch/families.hpp"
#include "llm/arch/mamba_mixer.hpp"

namespace tenon::llm {
namespace {

// Every `period` layers from `offset` on.
std::vector<bool> every(ConfigReader& r, const ModelConfig& c, const std::string& which,
                        int64_t period, int64_t offset) {
  const std::string period_key = which + "_layer_period", offset_key = which + "_layer_offset";
  const int64_t each = r.size(period_key, period, 4096), first = r.integer(offset_key, offset);
  if (first < 0 || first >= each)
    r.refuse(offset_key, "0 to " + std::to_string(each - 1) + ", below " + period_key);
  std::vector<bool> out;
  for (int64_t i = 0; i < c.layers; ++i) out.push_back(i % each == first);
  return out;
}

void read_jamba(ConfigReader& r, ModelConfig& c) {
  read_decoder(r, c);
  c.no_rope.assign(static_cast<size_t>(c.layers), true);
  c.recurrent_layers = every(r, c, "attn", 8, 4);
  c.recurrent_layers.flip();
  const std::vector<bool> sparse = every(r, c, "expert", 2, 1);
  const char* const key = r.has("num_local_experts") ? "num_local_experts" : "num_experts";
  if (r.size(key, 16, 1 << 16) > 1) {
    c.sparse = sparse;
    c.moe.experts = r.size(key, 16, 1 << 16);
    c.moe.per_token = r.size("num_experts_per_tok", 2, c.moe.experts);
    c.moe.ffn = c.ffn;
    c.moe.normalize = false;
  }
  MambaConfig& m = c.mamba;
  m.inner = r.size("mamba_expand", 2, 64) * c.dim;
  m.state_size = r.size("mamba_d_state", 16, 1 << 16);
  m.conv_width = r.size("mamba_d_conv", 4, 64);
  if (m.conv_width < 2) r.refuse("mamba_d_conv", "2 to 64");
  const int64_t rank = (c.dim + 15) / 16;
  if (r.is_text("mamba_dt_rank")) {
    if (r.text("mamba_dt_rank") != "auto") r.refuse("mamba_dt_rank", "'auto' or a size");
    m.dt_rank = rank;
  } else {
    m.dt_rank = r.size("mamba_dt_rank", rank);
  }
  m.conv_bias = r.flag("mamba_conv_bias", true);
  m.bias = r.flag("mamba_proj_bias", false);
  m.inner_norms = true;
  m.norm_eps = c.norm_eps;
  if (c.activation != "silu") r.refuse("hidden_act", "'silu'");
  if (std::ranges::none_of(c.recurrent_layers, [](bool mixes) { return mixes; })) c.mamba = {};
  r.expect("mamba_inner_layernorms", true);
  r.expect_nothing("sliding_window");
  r.ignore({"num_experts_per_tok", "use_mamba_kernels", "use_mambapy", "use_associative_scan",
            "num_logits_to_keep", "calc_logits_for_entire_prompt"});
}

void read_bamba(ConfigReader& r, ModelConfig& c) {
  read_decoder(r, c, {.norm_eps = 1e-5});
  c.rope = read_rope(r, c.head_dim, c.context, 10000, 0.5);
  if (r.integer("attn_rotary_emb", c.rope.dims) != c.rope.dims)
    r.refuse("attn_rotary_emb", std::to_string(c.rope.dims) + ", half of a head");
  c.qkv_bias = c.o_bias = r.flag("attention_bias", false);
  c.mlp_bias = r.flag("mlp_bias", false);
  c.recurrent_layers.assign(static_cast<size_t>(c.layers), true);
  for (const int64_t i : r.integers("attn_layer_indices")) {
    if (i < 0 || i >= c.layers)
      r.refuse("attn_layer_indices", "layers from 0 to " + std::to_string(c.layers - 1));
    c.recurrent_layers[static_cast<size_t>(i)] = false;
  }
  read_mamba2(r, c);
  if (std::ranges::none_of(c.recurrent_layers, [](bool mixes) { return mixes; })) c.mamba = {};
  r.ignore({"num_logits_to_keep", "z_loss_coefficient"});
}

Value feed_forward(Step& p, Value x, int64_t layer, const std::string& name, Value residual) {
  const ModelConfig& c = p.c;
  if (!c.sparse[static_cast<size_t>(layer)]) return decoder_mlp(p, x, name, c.ffn, residual);
  return experts(p, x, {.router = name + ".router", .experts = name + ".experts"}, residual);
}

Value hidden(Step& p) {
  const ModelConfig& c = p.c;
  const auto mixer = c.mamba.heads > 0 ? mamba2_mixer : mamba_mixer;
  Value x = p.embed("model.embed_tokens");
  for (int64_t i = 0; i < c.layers; ++i) {
    const std::string name = "model.layers." + std::to_string(i);
    const Value normed = p.norm(x, name + ".input_layernorm", c.dim);
    const Value a = c.recurrent_layers[static_cast<size_t>(i)]
                        ? mixer(p, normed, name + ".mamba", std::to_string(i), x)
                        : decoder_attention(p, normed, i, name, x);
    const Value second = p.norm(a, name + ".pre_ff_layernorm", c.dim);
    x = p.layer_end(x, feed_forward(p, second, i, name + ".feed_forward", a));
  }
  return x;
}

Value last_norm(Step& p, Value x) { return p.norm(x, "model.final_layernorm", p.c.dim); }

}  // namespace

const Architecture kJamba = {"jamba", "JambaForCausalLM", read_jamba,
                             hidden,  last_norm,          decoder_head};
const Architecture kBamba = {"bamba", "BambaForCausalLM", read_bamba,
                             hidden,  last_norm,          decoder_head};

}  // namespace tenon::llm
