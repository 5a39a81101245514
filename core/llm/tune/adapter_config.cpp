// SPDX-License-Identifier: Apache-2.0
// Reads and writes adapter_config.json.
#include "llm/tune/adapter_config.hpp"

#include <algorithm>
#include <cmath>

#include "llm/arch/config_reader.hpp"
#include "llm/json_text.hpp"
#include "llm/text/regex.hpp"

namespace tenon::llm {
namespace {

constexpr int64_t kMostRank = int64_t{1} << 16;

// A key of PEFT that is a regular expression of the whole name.
bool matches(const std::string& pattern, const std::string& module) {
  size_t begin = 0, end = 0;
  return Regex("\\A(?:" + pattern + ")\\z", "adapter: pattern '" + pattern + "'")
      .find(module, 0, begin, end);
}

// The value of the first key that matches the module or its last parts.
template <class T>
T by_pattern(const std::map<std::string, T>& patterns, const std::string& module, T otherwise) {
  for (const auto& [pattern, value] : patterns)
    if (names_module(pattern, module) || matches("(.*\\.)?(" + pattern + ")", module)) return value;
  return otherwise;
}

void read_targets(ConfigReader& r, AdapterConfig& c) {
  if (r.is_text("target_modules"))
    c.target_pattern = r.text("target_modules");
  else
    c.targets = r.texts("target_modules");
  if (c.targets.empty() && c.target_pattern.empty())
    r.refuse("target_modules", "a list of names, or a regular expression");
}

// Objects whose keys are patterns.
template <class T, class Read>
std::map<std::string, T> read_patterns(const Json& json, ConfigReader& r, const char* key,
                                       Read&& read) {
  std::map<std::string, T> out;
  std::optional<ConfigReader> object = r.object(key);
  if (!object) return out;
  for (const auto& [pattern, value] : json[key].items())
    out.emplace(pattern, read(*object, pattern));
  return out;
}

}  // namespace

bool names_module(const std::string& name, const std::string& module) {
  if (!module.ends_with(name)) return false;
  return module.size() == name.size() || module[module.size() - name.size() - 1] == '.';
}

bool AdapterConfig::targets_module(const std::string& module) const {
  if (!target_pattern.empty())
    return target_pattern == "all-linear" || matches(target_pattern, module);
  return std::ranges::any_of(targets,
                             [&](const std::string& t) { return names_module(t, module); });
}

int64_t AdapterConfig::rank_of(const std::string& module) const {
  return by_pattern(rank_pattern, module, rank);
}

double AdapterConfig::scale_of(const std::string& module) const {
  const auto r = static_cast<double>(rank_of(module));
  return by_pattern(alpha_pattern, module, alpha) / (rslora ? std::sqrt(r) : r);
}

AdapterConfig parse_adapter_config(const std::string& text, const std::string& file) {
  const Json json = parse_object(text, file);
  ConfigReader r(json, file);
  AdapterConfig c;
  if (r.text("peft_type") != "LORA") r.refuse("peft_type", "'LORA'");
  if (r.text("task_type", "CAUSAL_LM") != "CAUSAL_LM") r.refuse("task_type", "'CAUSAL_LM' or null");
  c.rank = r.size("r", {}, kMostRank);
  c.alpha = r.number("lora_alpha");
  c.dropout = r.number("lora_dropout", 0);
  c.rslora = r.flag("use_rslora", false);
  c.fan_in_fan_out = r.flag("fan_in_fan_out", false);
  read_targets(r, c);
  c.rank_pattern = read_patterns<int64_t>(json, r, "rank_pattern", [](ConfigReader& o, auto& key) {
    return o.size(key, {}, kMostRank);
  });
  c.alpha_pattern = read_patterns<double>(json, r, "alpha_pattern",
                                          [](ConfigReader& o, auto& key) { return o.number(key); });
  if (r.text("bias", "none") != "none") r.refuse("bias", "'none'");
  // Ways to choose initial values that change the base model, too.
  if (r.is_text("init_lora_weights")) {
    const std::string init = r.text("init_lora_weights");
    if (init != "gaussian" && init != "eva" && init != "orthogonal")
      r.refuse(
          "init_lora_weights",
          "true, false, 'gaussian', 'eva' or 'orthogonal', which leave the base model as it is");
  }
  r.expect("use_dora", false);
  // What an adapter has by its tensors, and what concerns trainings only. The modules of excluded
  // layers have no tensors.
  r.ignore({"auto_mapping", "base_model_name_or_path", "revision", "inference_mode",
            "init_lora_weights", "layers_to_transform", "layers_pattern", "exclude_modules",
            "loftq_config", "eva_config", "corda_config", "lora_ga_config", "runtime_config",
            "megatron_config", "megatron_core", "peft_version", "ensure_weight_tying",
            "qalora_group_size"});
  if (r.is_text("base_model_name_or_path")) c.base_model = r.text("base_model_name_or_path");
  r.refuse_unread();
  return c;
}

std::string adapter_config_text(const AdapterConfig& c) {
  const auto base = c.base_model.empty() ? Json(nullptr) : Json(c.base_model);
  const Json json = {{"peft_type", "LORA"},
                     {"task_type", "CAUSAL_LM"},
                     {"base_model_name_or_path", base},
                     {"r", c.rank},
                     {"lora_alpha", c.alpha},
                     {"lora_dropout", c.dropout},
                     {"use_rslora", c.rslora},
                     {"use_dora", false},
                     {"fan_in_fan_out", c.fan_in_fan_out},
                     {"target_modules", c.targets},
                     {"bias", "none"},
                     {"modules_to_save", nullptr},
                     {"init_lora_weights", true},
                     {"inference_mode", true},
                     {"rank_pattern", Json::object()},
                     {"alpha_pattern", Json::object()}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace tenon::llm
