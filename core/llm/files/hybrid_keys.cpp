// SPDX-License-Identifier: Apache-2.0
// Kinds of layers, heads of linear attention and widths of convolutions, as keys of GGUF and back.
#include "llm/files/hybrid_keys.hpp"

#include <algorithm>

namespace tenon::llm::files {
namespace {

[[noreturn]] void unsupported(const std::string& file, const char* key, const std::string& what) {
  throw Error(TENON_UNSUPPORTED, file + ": '" + key + "': " + what);
}

// The number by which every n-th layer has attention; 0 if none does so.
int64_t interval_of(const std::vector<bool>& recurrent) {
  const auto first = std::ranges::find(recurrent, false) - recurrent.begin() + 1;
  for (int64_t i = 0; i < std::ssize(recurrent); ++i)
    if (recurrent[static_cast<size_t>(i)] != ((i + 1) % first != 0)) return 0;
  return first;
}

void set_linear_attention(GgufWriter& out, Fields& f, const Json& config, const Family& family,
                          const std::string& file) {
  const LinearHeads heads = linear_heads(config, family, file);
  f.set("ssm.conv_kernel", f.integer("linear_conv_kernel_dim", 4));
  f.set("ssm.state_size", heads.key_dim);
  f.set("ssm.group_count", heads.key_heads);
  f.set("ssm.time_step_rank", heads.value_heads);
  f.set("ssm.inner_size", heads.rows_of_values());
  const std::vector<bool> recurrent = recurrent_layers(config, family, file);
  const int64_t every = interval_of(recurrent);
  if (every > 0) {
    f.set("full_attention_interval", every);
  } else {
    const std::vector<uint8_t> flags(recurrent.begin(), recurrent.end());
    const std::string key = f.key("attention.recurrent_layers");
    detail::check(tenon_gguf_writer_numbers(out.handle(), detail::str(key), TENON_GGUF_BOOL,
                                            flags.data(), flags.size()));
  }
  f.expect("attn_output_gate", true);
  f.expect("attention_bias", false);
  if (family.gguf != "qwen3next") {
    // Readers need them; the positions of text are the same in all sections.
    std::vector<int32_t> sections = {11, 11, 10, 0};
    const auto rope = field<Json>(config, "rope_parameters", file);
    if (rope && rope->contains("mrope_section"))
      for (size_t i = 0; i < sections.size(); ++i) {
        const Json& given = (*rope)["mrope_section"];
        const bool there = given.is_array() && i < given.size() && given[i].is_number_integer();
        sections[i] = there ? given[i].get<int32_t>() : 0;
      }
    out.set(f.key("rope.dimension_sections"), sections);
  }
  if (family.experts.empty()) return;
  if (family.gguf == "qwen3next") f.expect("norm_topk_prob", true);
  f.set("expert_shared_feed_forward_length", f.integer("shared_expert_intermediate_size", 512));
}

void set_short_convolutions(GgufWriter& out, Fields& f, const Json& config, const Family& family,
                            const std::string& file) {
  f.set("shortconv.l_cache", f.integer("conv_L_cache", 3));
  f.expect("conv_bias", false);
  const auto heads = static_cast<int32_t>(std::clamp<int64_t>(
      f.integer("num_key_value_heads", f.size("num_attention_heads")), 1, INT32_MAX));
  std::vector<int32_t> of_layers;
  for (const bool recurrent : recurrent_layers(config, family, file))
    of_layers.push_back(recurrent ? 0 : heads);
  out.set(f.key("attention.head_count_kv"), of_layers);
  if (family.experts.empty()) return;
  f.expect("norm_topk_prob", true);
  f.set("leading_dense_block_count", dense_layers(config, family, file));
  f.set("expert_feed_forward_length", f.size("moe_intermediate_size"));
  f.set("expert_gating_func", 2);  // sigmoid
  f.set_real("expert_weights_scale", f.real("routed_scaling_factor", 1));
}

void read_linear_attention(const FileKeys& k, const Family& family, Json& out) {
  read_extra_layers(k, out, "mtp_num_hidden_layers");
  const int64_t layers = std::min<int64_t>(out["num_hidden_layers"].get<int64_t>(), 4096),
                heads = k.integer("ssm.time_step_rank"), inner = k.integer("ssm.inner_size");
  if (heads < 1 || inner % heads != 0)
    k.refuse("ssm.inner_size", std::to_string(inner) + "; expected a multiple of the " +
                                   std::to_string(heads) + " of ssm.time_step_rank");
  out["linear_conv_kernel_dim"] = k.integer("ssm.conv_kernel");
  out["linear_key_head_dim"] = k.integer("ssm.state_size");
  out["linear_num_key_heads"] = k.integer("ssm.group_count");
  out["linear_num_value_heads"] = heads;
  out["linear_value_head_dim"] = inner / heads;
  const bool listed = k.has("attention.recurrent_layers");
  const std::vector<int64_t> recurrent =
      listed ? k.integers("attention.recurrent_layers") : std::vector<int64_t>();
  const int64_t every = k.integer("full_attention_interval", 4);
  if (every < 1) k.refuse("full_attention_interval", "0; expected a number of layers");
  if (listed && std::ssize(recurrent) < layers)
    k.refuse("attention.recurrent_layers", "a list of " + std::to_string(recurrent.size()) +
                                               " entries; expected one for each of " +
                                               std::to_string(layers) + " layers");
  Json types = Json::array();
  for (int64_t i = 0; i < layers; ++i)
    types.push_back((listed ? recurrent[static_cast<size_t>(i)] != 0 : (i + 1) % every != 0)
                        ? "linear_attention"
                        : "full_attention");
  out["layer_types"] = types;
  if (family.experts.empty()) return;
  out["shared_expert_intermediate_size"] = k.integer("expert_shared_feed_forward_length", 512);
  if (family.gguf == "qwen35moe") out.erase("norm_topk_prob");
}

void read_short_convolutions(const FileKeys& k, const Family& family, Json& out) {
  const int64_t layers = std::min<int64_t>(out["num_hidden_layers"].get<int64_t>(), 4096);
  const std::vector<int64_t> heads = k.integers("attention.head_count_kv");
  if (std::ssize(heads) < layers)
    k.refuse("attention.head_count_kv",
             "a list of " + std::to_string(heads.size()) + " entries; expected one for each of " +
                 std::to_string(layers) + " layers, 0 for those without attention");
  int64_t most = 0;
  Json types = Json::array();
  for (int64_t i = 0; i < layers; ++i) {
    const int64_t own = heads[static_cast<size_t>(i)];
    if (own < 0 || (own > 0 && most > 0 && own != most))
      k.refuse("attention.head_count_kv", std::to_string(own) + " in layer " + std::to_string(i) +
                                              "; expected the same number as in other layers");
    most = std::max(most, own);
    types.push_back(own > 0 ? "full_attention" : "conv");
  }
  // Without attention, no heads are used.
  out["num_key_value_heads"] = most > 0 ? Json(most) : out["num_attention_heads"];
  out["layer_types"] = types;
  out["conv_L_cache"] = k.integer("shortconv.l_cache");
  out["conv_bias"] = false;
  if (family.experts.empty()) {
    out["block_auto_adjust_ff_dim"] = false;
    return;
  }
  out["num_dense_layers"] = k.integer("leading_dense_block_count", 0);
  out["moe_intermediate_size"] = k.integer("expert_feed_forward_length");
  out["routed_scaling_factor"] = k.has("expert_weights_scale") ? k.real("expert_weights_scale") : 1;
  out["norm_topk_prob"] = true;
}

}  // namespace

std::vector<bool> recurrent_layers(const Json& config, const Family& family,
                                   const std::string& file) {
  const bool linear = family.has_linear_attention();
  if (!linear && !family.has_short_convolutions()) return {};
  const int64_t layers = std::min<int64_t>(need_size(config, "num_hidden_layers", file), 4096);
  std::vector<bool> out;
  const auto list = config.find("layer_types");
  if (list != config.end() && !list->is_null()) {
    if (!list->is_array() || std::ssize(*list) != layers)
      unsupported(file, "layer_types",
                  "expected one entry for each of the " + std::to_string(layers) + " layers");
    for (const Json& type : *list) {
      const std::string kind = linear ? "linear_attention" : "conv";
      if (type != kind && type != "full_attention")
        unsupported(file, "layer_types", "expected entries '" + kind + "' and 'full_attention'");
      out.push_back(type == kind);
    }
    return out;
  }
  const int64_t every =
      std::max<int64_t>(field<int64_t>(config, "full_attention_interval", file).value_or(4), 1);
  const auto attention = config.find("full_attn_idxs");
  const bool listed = attention != config.end() && attention->is_array();
  for (int64_t i = 0; i < layers; ++i)
    out.push_back(linear ? (i + 1) % every != 0
                         : listed && std::ranges::find(*attention, Json(i)) == attention->end());
  return out;
}

LinearHeads linear_heads(const Json& config, const Family& family, const std::string& file) {
  if (!family.has_linear_attention()) return {};
  const auto size = [&](const char* key, int64_t otherwise) {
    return field<int64_t>(config, key, file) ? need_size(config, key, file) : otherwise;
  };
  const LinearHeads out = {.key_heads = size("linear_num_key_heads", 16),
                           .value_heads = size("linear_num_value_heads", 32),
                           .key_dim = size("linear_key_head_dim", 128),
                           .value_dim = size("linear_value_head_dim", 128)};
  constexpr int64_t most = 1 << 16;
  if (out.value_heads % out.key_heads != 0 || out.value_heads > most || out.key_dim > most ||
      out.value_dim > most)
    throw Error(TENON_CORRUPT, file + ": 'linear_num_value_heads' is " +
                                   std::to_string(out.value_heads) + " beside " +
                                   std::to_string(out.key_heads) +
                                   " key heads; expected a multiple of them, and heads and their "
                                   "dims of at most 65536");
  return out;
}

int64_t lfm2_ffn(const Json& config, const std::string& file) {
  const auto has = [&](const char* key) { return field<int64_t>(config, key, file).has_value(); };
  const char* const key = has("block_ff_dim") ? "block_ff_dim" : "intermediate_size";
  int64_t ffn = has(key) ? need_size(config, key, file) : 12288;
  if (!field<bool>(config, "block_auto_adjust_ff_dim", file).value_or(true)) return ffn;
  ffn = 2 * ffn / 3;
  const auto factor = config.find("block_ffn_dim_multiplier");
  if (factor != config.end() && factor->is_null()) return ffn;
  const double given = field<double>(config, "block_ffn_dim_multiplier", file).value_or(1);
  const double most = given * static_cast<double>(ffn);
  const int64_t multiple =
      has("block_multiple_of") ? need_size(config, "block_multiple_of", file) : 256;
  if (!(most >= 1 && most <= 1 << 20))
    unsupported(file, "block_ffn_dim_multiplier",
                "expected a factor that gives an MLP of 1 to 1048576");
  return (static_cast<int64_t>(most) + multiple - 1) / multiple * multiple;
}

void set_hybrid_keys(GgufWriter& out, Fields& fields, const Family& family, const Json& config,
                     const std::string& file) {
  if (family.has_linear_attention()) set_linear_attention(out, fields, config, family, file);
  if (family.has_short_convolutions()) set_short_convolutions(out, fields, config, family, file);
}

void read_hybrid_keys(const FileKeys& keys, const Family& family, Json& out) {
  if (family.has_linear_attention()) read_linear_attention(keys, family, out);
  if (family.has_short_convolutions()) read_short_convolutions(keys, family, out);
}

}  // namespace tenon::llm::files
