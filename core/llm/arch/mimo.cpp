// SPDX-License-Identifier: Apache-2.0
// MiMo-V2: layers with a window have sinks and twice the key heads; heads of values are narrower than
// those of keys; experts as DeepSeek-V3 chooses them.
#include <algorithm>

#include "llm/arch/families.hpp"

namespace tenon::llm {
namespace {

int64_t key_heads(const ModelConfig& c, bool local) { return local ? 2 * c.kv_heads : c.kv_heads; }

// Other names of what has been read.
void read_copies(ConfigReader& r, const ModelConfig& c) {
  const auto same = [&](const char* key, int64_t value) {
    if (r.has(key) && r.integer(key) != value) r.refuse(key, std::to_string(value));
  };
  same("swa_num_attention_heads", c.heads);
  same("swa_num_key_value_heads", key_heads(c, true));
  same("swa_head_dim", c.head_dim);
  same("swa_v_head_dim", c.value_dim);
  if (r.number("layernorm_epsilon", c.norm_eps) != c.norm_eps)
    r.refuse("layernorm_epsilon", "the value of rms_norm_eps");
  // 1 where a layer has a window, or experts.
  for (const auto& [key, layers] :
       {std::pair("hybrid_layer_pattern", &c.local), std::pair("moe_layer_freq", &c.sparse)}) {
    const std::vector<int64_t> list = r.integers(key);
    bool good = list.empty() || list.size() == layers->size();
    for (size_t i = 0; good && i < list.size(); ++i) good = (list[i] != 0) == (*layers)[i];
    if (!good) r.refuse(key, "the layers that layer_types and mlp_layer_types name");
  }
  r.expect("add_swa_attention_sink_bias", true);
  r.expect("add_full_attention_sink_bias", false);
  r.ignore({"attention_chunk_size", "hybrid_block_size"});
}

void read(ConfigReader& r, ModelConfig& c) {
  read_decoder(r, c, {.norm_eps = 1e-5, .head_dim = 192});
  c.value_dim = r.size("v_head_dim", 128, 1 << 16);
  c.value_scale = r.is_null("attention_value_scale") ? 1 : r.number("attention_value_scale", 0.707);
  r.ignore({"attention_value_scale"});
  c.qkv_bias = r.flag("attention_bias", false);
  read_layer_types(r, c, [](int64_t layer) { return layer != 0 && (layer + 1) % 6 != 0; });
  constexpr double kPart = 0.334, kLocalTheta = 1e4;
  read_typed_ropes(r, c,
                   {.theta = 5e6,
                    .local_theta = kLocalTheta,
                    .part = kPart,
                    .local_part = kPart,
                    .named_part = kPart});
  // Of files of the model's authors; transformers does not read it.
  if (r.number("swa_rope_theta", kLocalTheta) != kLocalTheta && !r.has("rope_parameters"))
    r.refuse("swa_rope_theta", "rope_parameters in its place");
  if (std::ranges::find(c.local, true) != c.local.end() && c.heads % key_heads(c, true) != 0)
    r.refuse("num_key_value_heads", "a number whose double divides num_attention_heads");
  // A query sees so many keys before its own one.
  constexpr int64_t kMost = int64_t{1} << 30;
  c.window = r.has("sliding_window_size") ? 1 + r.size("sliding_window_size", {}, kMost)
                                          : r.size("sliding_window", 129, kMost);
  r.ignore({"sliding_window"});
  read_grouped_experts(
      r, c,
      {.experts = 256,
       .per_token = 8,
       .shared = 0,
       .ffn = 2048,
       .dense_layers = 1,
       .normalize = true,
       .experts_key = r.has("num_local_experts") ? "num_local_experts" : "n_routed_experts",
       .by_types = true,
       .counts_dense_layers = false});
  if (c.moe.shared_ffn != 0) r.refuse("n_shared_experts", "0 or null");
  if (c.moe.experts / c.moe.groups < 2) r.refuse("n_group", "groups of at least two experts");
  read_copies(r, c);
}

Value attention(Step& p, Value normed, int64_t layer, const std::string& layer_name,
                Value residual) {
  const ModelConfig& c = p.c;
  const std::string name = layer_name + ".self_attn";
  const bool local = c.local[static_cast<size_t>(layer)];
  const int64_t keys = key_heads(c, local);
  const std::vector<Value> all =
      p.project_all(normed, {name + ".q_proj", name + ".k_proj", name + ".v_proj"}, c.dim,
                    {c.heads * c.head_dim, keys * c.head_dim, keys * c.value_dim}, c.qkv_bias);
  Heads heads{p.heads(all[0], c.heads, c.head_dim), p.heads(all[1], keys, c.head_dim),
              p.heads(p.scaled(all[2], c.value_scale), keys, c.value_dim)};
  if (local) heads.sinks = p.wide(name + ".attention_sink_bias", {c.heads});
  return decoder_attend(p, heads, layer, name, residual);
}

Value hidden(Step& p) { return decoder_layers(p, attention, decoder_feed_forward); }

}  // namespace

const Architecture kMimoV2 = {"mimo_v2_flash", "MiMoV2FlashForCausalLM", read, hidden, decoder_norm,
                              decoder_head};

}  // namespace tenon::llm
