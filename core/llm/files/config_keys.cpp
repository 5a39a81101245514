// SPDX-License-Identifier: Apache-2.0
// config.json to keys of GGUF.
#include "llm/files/config_keys.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "llm/files/expert_keys.hpp"
#include "llm/files/hybrid_keys.hpp"
#include "llm/files/mixer_keys.hpp"
#include "llm/files/own_keys.hpp"

namespace tenon::llm::files {
namespace {

[[noreturn]] void unsupported(const std::string& file, const std::string& key,
                              const std::string& what) {
  throw Error(TENON_UNSUPPORTED, file + ": '" + key + "': " + what);
}

// A number, text or bool, or a list of them. What is nested deeper could exhaust the stack later.
bool is_flat(const Json& value) {
  return value.is_primitive() || (value.is_array() && std::ranges::all_of(value, [](const Json& v) {
                                    return v.is_primitive();
                                  }));
}

// Takes the fields of rope from an object; `scaling` keeps the others.
void take_rope(const Json& from, RopeConfig& rope, const std::string& file) {
  rope.theta = field<double>(from, "rope_theta", file).value_or(rope.theta);
  for (const char* key : {"type", "rope_type"})
    rope.type = field<std::string>(from, key, file).value_or(rope.type);
  for (const auto& [key, value] : from.items())
    if (key != "rope_theta" && key != "type" && key != "rope_type" && is_flat(value))
      rope.scaling[key] = value;
}

// The frequencies that Llama 3 scales: fast rotations stay, slow ones are slowed by the factor, with
// a ramp between them. GGUF has the divisors.
std::vector<float> llama3_divisors(const RopeConfig& rope, int64_t head, const std::string& file) {
  const auto need = [&](const char* key) {
    const auto v = field<double>(rope.scaling, key, file);
    if (!v || !(*v > 0)) unsupported(file, key, "expected a number above 0 for rope type llama3");
    return *v;
  };
  const double factor = need("factor"), low = need("low_freq_factor"),
               high = need("high_freq_factor"), context = need("original_max_position_embeddings");
  if (head > 65536) unsupported(file, "head_dim", "expected at most 65536");
  if (high < low) unsupported(file, "high_freq_factor", "expected at least low_freq_factor");
  std::vector<float> out;
  for (int64_t i = 0; i < head / 2; ++i) {
    const double frequency =
        std::pow(rope.theta, -2.0 * static_cast<double>(i) / static_cast<double>(head));
    const double turns = context * frequency / (2 * std::numbers::pi);
    const double kept = high > low    ? std::clamp((turns - low) / (high - low), 0.0, 1.0)
                        : turns > low ? 1.0
                                      : 0.0;
    out.push_back(static_cast<float>(1 / (kept + (1 - kept) / factor)));
  }
  return out;
}

std::vector<float> factors(const Json& scaling, const char* key, const std::string& file) {
  const auto list = scaling.find(key);
  if (list == scaling.end() || !list->is_array()) unsupported(file, key, "expected a list");
  std::vector<float> out;
  for (const Json& v : *list) {
    if (!v.is_number()) unsupported(file, key, "expected a list of numbers");
    out.push_back(v.get<float>());
  }
  return out;
}

class Keys {
 public:
  Keys(GgufWriter& out, const Family& family, const Json& config, const std::string& file)
      : out_(out), family_(family), config_(config), file_(file) {}

  void set_all() {
    if (set_own_keys(out_, family_, config_, file_)) return;
    const bool latent = family_.gguf == "deepseek2";
    size("context_length", "max_position_embeddings");
    size("embedding_length", "hidden_size");
    size("block_count", "num_hidden_layers");
    feed_forward();
    size("vocab_size", "vocab_size");
    const int64_t heads = size("attention.head_count", "num_attention_heads");
    if (!family_.has_short_convolutions())  // those have a number for each layer
      set("attention.head_count_kv",
          latent ? 1 : field<int64_t>(config_, "num_key_value_heads", file_).value_or(heads));
    const auto eps = field<double>(config_, family_.eps, file_);
    out_.set(key(family_.layer_norm() ? "attention.layer_norm_epsilon"
                                      : "attention.layer_norm_rms_epsilon"),
             static_cast<float>(eps.value_or(usual_eps())));
    if (latent) {
      set_deepseek_keys(out_, family_, config_, file_);
      rope(field<int64_t>(config_, "qk_rope_head_dim", file_).value_or(64));
      activation();
      return;
    }
    const int64_t head = head_size(config_, file_);
    if (config_.contains("head_dim") || family_.is_gemma() ||
        head * heads != need_size(config_, "hidden_size", file_)) {
      set("attention.key_length", head);
      set("attention.value_length", head);
    }
    rope(head);
    experts();
    attention();
    activation();
    set_more_keys(out_, family_, config_, file_);
  }

 private:
  std::string key(std::string_view name) const {
    return std::string(family_.gguf) + "." + std::string(name);
  }
  void set(std::string_view name, int64_t number) {
    if (number < 0 || number > INT32_MAX)
      unsupported(file_, std::string(name), "is " + std::to_string(number));
    out_.set(key(name), static_cast<uint32_t>(number));
  }
  int64_t size(std::string_view name, std::string_view field_name) {
    const int64_t number = need_size(config_, field_name, file_);
    set(name, number);
    return number;
  }

  void feed_forward() {
    if (family_.gguf == "lfm2") return set("feed_forward_length", lfm2_ffn(config_, file_));
    if (family_.gguf == "llama4")
      return set("feed_forward_length",
                 field<int64_t>(config_, "intermediate_size_mlp", file_).value_or(16384));
    // In these, all layers have experts.
    if (family_.gguf == "qwen35moe" && !field<int64_t>(config_, "intermediate_size", file_)) return;
    size("feed_forward_length", "intermediate_size");
  }

  // What files that leave it out mean: as the engine reads them.
  double usual_eps() const {
    if (family_.layer_norm()) return 1e-5;
    if (family_.model_type == "glm" || family_.model_type == "glm4") return 0.00000015625;
    for (const char* type :
         {"gpt_oss", "olmo2", "olmo3", "olmoe", "exaone4", "ernie4_5", "glm4_moe",
          "hunyuan_v1_dense", "hunyuan_v1_moe", "ernie4_5_moe", "llama4_text", "apertus", "arcee",
          "mixtral", "phi3", "ministral3", "lfm2", "lfm2_moe", "afmoe"})
      if (family_.model_type == type) return 1e-5;
    return 1e-6;
  }

  void rope(int64_t head) {
    RopeConfig r = read_rope(config_, file_);
    if (family_.gguf.starts_with("hunyuan")) r = with_alpha(std::move(r), head);
    out_.set(key("rope.freq_base"), static_cast<float>(r.theta));
    const double part =
        field<double>(config_, "partial_rotary_factor", file_)
            .value_or(
                field<double>(r.scaling, "partial_rotary_factor", file_).value_or(usual_part()));
    if (part != 1 && family_.rope_part == 0)
      unsupported(file_, "partial_rotary_factor", "expected 1 for this model_type");
    set("rope.dimension_count", static_cast<int64_t>(part * static_cast<double>(head)));
    if (family_.model_type == "gemma3_text")
      out_.set(key("rope.freq_base_swa"), static_cast<float>(r.local_theta));
    const auto number = [&](const char* name) { return field<double>(r.scaling, name, file_); };
    if (r.type == "default") return;
    if (r.type == "llama3") {
      // rope_freqs.weight has the result; this private key keeps what it was made from.
      Json all = r.scaling;
      all["rope_type"] = r.type;
      out_.set("tenon.rope_scaling", all.dump());
    } else if (r.type == "linear" || r.type == "yarn") {
      out_.set(key("rope.scaling.type"), r.type);
      auto factor = number("factor");
      // As the engine takes it.
      if (const auto first = number("original_max_position_embeddings");
          !factor && r.type == "yarn" && first && *first > 0)
        factor = field<double>(config_, "max_position_embeddings", file_).value_or(*first) / *first;
      if (factor) out_.set(key("rope.scaling.factor"), static_cast<float>(*factor));
      if (const auto v = number("original_max_position_embeddings"))
        set("rope.scaling.original_context_length", static_cast<int64_t>(*v));
      if (r.type == "yarn") yarn(r, factor.value_or(1));
    } else if (r.type == "longrope" || r.type == "su") {
      longrope();
    } else {
      unsupported(file_, "rope_type",
                  "'" + r.type +
                      "' has no form in GGUF; expected default, linear, "
                      "llama3, yarn or longrope");
    }
  }
  double usual_part() const {
    const double part = family_.rope_part > 0 ? family_.rope_part : 1.0;
    return family_.model_type == "gpt_neox"
               ? field<double>(config_, "rotary_pct", file_).value_or(part)
               : part;
  }
  // The type "dynamic" of Hunyuan with an alpha is a larger base.
  RopeConfig with_alpha(RopeConfig r, int64_t head) const {
    const double alpha = field<double>(r.scaling, "alpha", file_).value_or(0);
    if (r.type != "dynamic" || alpha == 0) return r;
    if (alpha < 0 || head < 4) unsupported(file_, "alpha", "expected a number above 0");
    r.theta *= std::pow(alpha, static_cast<double>(head) / static_cast<double>(head - 2));
    r.type = "default";
    return r;
  }
  void yarn(const RopeConfig& r, double factor) {
    if (field<bool>(r.scaling, "truncate", file_).value_or(true) == (family_.gguf == "gpt-oss"))
      unsupported(file_, "truncate", "expected false for gpt_oss, and true for other model_types");
    const auto number = [&](const char* name) {
      return field<double>(r.scaling, name, file_).value_or(0.0);
    };
    for (const char* name : {"beta_fast", "beta_slow"})
      if (const double v = number(name); v > 0)
        out_.set(key(std::string("rope.scaling.yarn_") + name), static_cast<float>(v));
    // Readers derive the factor on cos and sin from these. mscale alone has no effect.
    const double all = number("mscale_all_dim");
    const double mscale = number("mscale");
    const auto scale = [&](double m) { return factor <= 1 ? 1 : 0.1 * m * std::log(factor) + 1; };
    const double derived = mscale != 0 && all != 0 ? scale(mscale) / scale(all) : scale(1);
    if (const double given = number("attention_factor");
        given != 0 && std::fabs(given - derived) > 1e-6 * derived)
      unsupported(file_, "attention_factor",
                  std::to_string(given) + " has no form in GGUF; expected " +
                      std::to_string(derived) + ", which follows from the other fields");
    if (family_.gguf == "mistral3") {
      if (all != 0 && mscale != 1) unsupported(file_, "mscale", "expected 1 beside mscale_all_dim");
      if (all != 0) out_.set(key("rope.scaling.yarn_log_multiplier"), static_cast<float>(all));
      return;
    }
    if (family_.gguf != "deepseek2") {
      if (all != 0) unsupported(file_, "mscale_all_dim", "has no form in GGUF for this model_type");
      return;
    }
    if (all <= 0 || mscale != all)
      unsupported(file_, "mscale", "expected the value of mscale_all_dim, above 0");
    out_.set(key("rope.scaling.yarn_log_multiplier"), static_cast<float>(0.1 * all));
  }
  // The factor on the attention that the longer context asks for.
  void longrope() {
    const int64_t context = need_size(config_, "max_position_embeddings", file_),
                  first = need_size(config_, "original_max_position_embeddings", file_);
    set("rope.scaling.original_context_length", first);
    const double scale = static_cast<double>(context) / static_cast<double>(first);
    const double factor =
        scale <= 1 ? 1 : std::sqrt(1 + std::log(scale) / std::log(static_cast<double>(first)));
    out_.set(key("rope.scaling.attn_factor"), static_cast<float>(factor));
  }

  void experts() {
    if (family_.experts.empty()) return;
    if (sets_own_experts(family_)) return;
    const char* count = family_.model_type == "mixtral" ? "num_local_experts" : "num_experts";
    // transformers writes either name.
    const bool local = !config_.contains(count);
    size("expert_count", local ? "num_local_experts" : count);
    size("expert_used_count", "num_experts_per_tok");
    if (family_.gguf == "gpt-oss") size("expert_feed_forward_length", "intermediate_size");
    if (!family_.gguf.starts_with("qwen")) return;
    size("expert_feed_forward_length", "moe_intermediate_size");
    if (family_.gguf == "qwen2moe" || family_.has_linear_attention()) return;
    out_.set(key("expert_weights_norm"),
             field<bool>(config_, "norm_topk_prob", file_).value_or(false));
  }

  void attention() {
    const auto window = field<int64_t>(config_, "sliding_window", file_);
    const bool used = family_.gguf.starts_with("qwen")
                          ? field<bool>(config_, "use_sliding_window", file_).value_or(false)
                          : true;
    // Of Dots1, all layers or none have it: see decoder_keys.cpp. AFMoE sets it with its experts.
    if (window && used && *window > 0 && family_.gguf != "dots1" && family_.gguf != "afmoe")
      set("attention.sliding_window", *window);
    for (const char* name : {"attn_logit_softcapping", "final_logit_softcapping"}) {
      if (const auto v = field<double>(config_, name, file_))
        out_.set(key(name), static_cast<float>(*v));
      else if (family_.model_type == "gemma2" && config_.contains(name))
        unsupported(file_, name, "null has no form in GGUF for this model_type");
    }
    const bool scales = family_.model_type == "gemma2" || family_.model_type == "gemma3_text";
    const double scalar = field<double>(config_, "query_pre_attn_scalar", file_).value_or(256);
    if (scales && scalar != static_cast<double>(usual_query_scalar(config_, family_, file_)))
      out_.set(key("attention.scale"), static_cast<float>(1 / std::sqrt(scalar)));
    if (family_.model_type == "gemma3_text")
      set("attention.sliding_window_pattern", window_pattern(config_, 6, file_));
  }

  void activation() {
    const bool gemma = family_.is_gemma();
    // The first Gemma may have either key.
    if (family_.gguf == "gemma" && !field<std::string>(config_, "hidden_activation", file_)) {
      const auto act = field<std::string>(config_, "hidden_act", file_);
      if (act && *act != "gelu_pytorch_tanh")
        unsupported(file_, "hidden_act", "'" + *act + "' has no form in GGUF for this model_type");
      return;
    }
    const char* const name = gemma ? "hidden_activation" : "hidden_act";
    const auto given = field<std::string>(config_, name, file_);
    const std::string_view expected = gemma ? "gelu_pytorch_tanh" : family_.activation;
    const auto is_tanh = [](std::string_view act) {
      return act == "gelu_new" || act == "gelu_fast" || act == "gelu_pytorch_tanh";
    };
    if (given && *given != expected && !(is_tanh(*given) && is_tanh(expected)))
      unsupported(file_, name, "'" + *given + "' has no form in GGUF for this model_type");
  }

  GgufWriter& out_;
  const Family& family_;
  const Json& config_;
  const std::string& file_;
};

}  // namespace

int64_t window_pattern(const Json& config, int64_t otherwise, const std::string& file) {
  const auto list = config.find("layer_types");
  if (list != config.end() && !list->is_null() && !list->is_array())
    unsupported(file, "layer_types", "expected a list");
  if (list == config.end() || list->is_null())
    return field<int64_t>(config, "sliding_window_pattern", file).value_or(otherwise);
  int64_t every = static_cast<int64_t>(list->size()) + 1;
  for (size_t i = 0; i < list->size(); ++i)
    if ((*list)[i] == "full_attention") {
      every = static_cast<int64_t>(i) + 1;
      break;
    }
  for (size_t i = 0; i < list->size(); ++i)
    if (((*list)[i] == "full_attention") != ((static_cast<int64_t>(i) + 1) % every == 0))
      unsupported(file, "layer_types", "expected full_attention in every n-th layer");
  return every;
}

int64_t need_size(const Json& config, std::string_view key, const std::string& file) {
  const auto number = field<int64_t>(config, key, file);
  if (!number) throw Error(TENON_CORRUPT, file + ": '" + std::string(key) + "' is missing");
  if (*number < 1 || *number > INT32_MAX)
    throw Error(TENON_CORRUPT, file + ": '" + std::string(key) + "' is " + std::to_string(*number) +
                                   "; expected 1 to 2147483647");
  return *number;
}

int64_t head_size(const Json& config, const std::string& file) {
  if (field<int64_t>(config, "head_dim", file)) return need_size(config, "head_dim", file);
  // Of files that leave it out, as the engine reads them.
  constexpr std::pair<std::string_view, int64_t> kUsual[] = {
      {"gemma", 256},       {"gemma2", 256},       {"gemma3_text", 256},
      {"qwen3_next", 256},  {"qwen3_5_text", 256}, {"qwen3_5_moe_text", 256},
      {"qwen3", 128},       {"seed_oss", 128},     {"ministral3", 128},
      {"glm", 128},         {"glm4", 128},         {"ernie4_5", 128},
      {"llama4_text", 128}, {"afmoe", 128},        {"gpt_oss", 64}};
  const std::string type = field<std::string>(config, "model_type", file).value_or("");
  for (const auto& [name, usual] : kUsual)
    if (type == name) return usual;
  return need_size(config, "hidden_size", file) / need_size(config, "num_attention_heads", file);
}

int64_t usual_query_scalar(const Json& config, const Family& family, const std::string& file) {
  const int64_t largest = family.model_type == "gemma2" ? 46 : 62;
  if (need_size(config, "num_hidden_layers", file) != largest) return head_size(config, file);
  return need_size(config, "hidden_size", file) / need_size(config, "num_attention_heads", file);
}

RopeConfig read_rope(const Json& config, const std::string& file) {
  RopeConfig rope;
  // Of files that leave it out, as transformers and the engine have it.
  const std::string type = field<std::string>(config, "model_type", file).value_or("");
  if (type == "mixtral" || type == "gemma3_text" || type == "ministral3" || type == "lfm2" ||
      type == "lfm2_moe")
    rope.theta = 1e6;
  if (type == "smollm3") rope.theta = 2e6;
  for (const char* name : {"cohere", "ernie4_5", "ernie4_5_moe", "olmo3", "llama4_text"})
    if (type == name) rope.theta = 5e5;
  if (type == "gpt_oss") rope.theta = 150000;
  if (type == "gpt_neox")
    rope.theta = field<double>(config, "rotary_emb_base", file).value_or(rope.theta);
  if (type == "apertus") {
    rope.theta = 12e6;
    if (!config.contains("rope_scaling") && !config.contains("rope_parameters")) {
      rope.type = "llama3";
      rope.scaling = {{"factor", 8.0},
                      {"low_freq_factor", 1.0},
                      {"high_freq_factor", 4.0},
                      {"original_max_position_embeddings", 8192}};
    }
  }
  rope.theta = field<double>(config, "rope_theta", file).value_or(rope.theta);
  rope.local_theta = field<double>(config, "rope_local_base_freq", file).value_or(rope.local_theta);
  if (const auto scaling = field<Json>(config, "rope_scaling", file))
    take_rope(*scaling, rope, file);
  if (const auto all = field<Json>(config, "rope_parameters", file)) {
    const auto full = field<Json>(*all, "full_attention", file);
    take_rope(full ? *full : *all, rope, file);
    if (const auto local = field<Json>(*all, "sliding_attention", file))
      rope.local_theta = field<double>(*local, "rope_theta", file).value_or(rope.local_theta);
  }
  // A number beside the object counts more than that in it. longrope() looks there itself.
  constexpr const char* kOriginal = "original_max_position_embeddings";
  if (rope.type == "llama3" || rope.type == "yarn")
    if (const auto beside = field<int64_t>(config, kOriginal, file))
      rope.scaling[kOriginal] = *beside;
  return rope;
}

void set_config_keys(GgufWriter& out, const Family& family, const Json& config,
                     const std::string& file, const ModelConfig* engine) {
  if (family.hybrid) return set_mixer_keys(out, family, *engine, config, file);
  Keys(out, family, config, file).set_all();
}

std::vector<RopeTensor> rope_tensors(const Json& config, const std::string& file) {
  const RopeConfig rope = read_rope(config, file);
  std::vector<RopeTensor> out;
  if (rope.type == "llama3") {
    out.push_back({"rope_freqs.weight", llama3_divisors(rope, head_size(config, file), file)});
  } else if (rope.type == "longrope" || rope.type == "su") {
    out.push_back({"rope_factors_long.weight", factors(rope.scaling, "long_factor", file)});
    out.push_back({"rope_factors_short.weight", factors(rope.scaling, "short_factor", file)});
  }
  return out;
}

}  // namespace tenon::llm::files
