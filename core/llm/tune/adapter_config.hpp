// SPDX-License-Identifier: Apache-2.0
// adapter_config.json of PEFT: which modules an adapter changes, and by what.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace tenon::llm {

struct AdapterConfig {
  int64_t rank = 16;
  double alpha = 32;
  double dropout = 0;   // of trainings
  bool rslora = false;  // the scale is alpha / sqrt(rank), not alpha / rank
  // Names of modules, whole or their last parts. One pattern instead: a regular expression.
  std::vector<std::string> targets{};
  std::string target_pattern{};
  std::map<std::string, int64_t> rank_pattern{};  // of modules that the keys match
  std::map<std::string, double> alpha_pattern{};
  std::string base_model{};
  // The model stores weights [in, out] (GPT-2). Says nothing about A and B, and the model knows it:
  // a file that contradicts the model is read as PEFT reads it, by the model.
  bool fan_in_fan_out = false;

  bool targets_module(const std::string& module) const;
  int64_t rank_of(const std::string& module) const;
  double scale_of(const std::string& module) const;
};

// True if `name` is the module or its last parts, as "q_proj" is of "model.layers.0.self_attn.q_proj".
bool names_module(const std::string& name, const std::string& module);

// Whether the name of a base model is that of a GGUF file.
inline bool is_of_gguf(const std::string& base_model) { return base_model.ends_with(".gguf"); }

// text: the content of the file. Throws Error: CORRUPT for a wrong form; UNSUPPORTED, with the key,
// for what changes the model in a way that tenon does not know, such as DoRA.
AdapterConfig parse_adapter_config(const std::string& text, const std::string& file);
std::string adapter_config_text(const AdapterConfig& config);

}  // namespace tenon::llm
