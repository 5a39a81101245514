// SPDX-License-Identifier: Apache-2.0
// Configurations of models with mixers of Mamba-2, and of hybrid models, both ways.
#pragma once

#include <string>
#include <vector>

#include "llm/files/families.hpp"
#include "llm/files/json.hpp"

namespace tenon::llm::files {

inline constexpr double kNemotronLeastStep = 0.001;  // GGUF has no key for it
inline bool is_nemotron(const Family& family) { return family.gguf.starts_with("nemotron_h"); }

// Sets all keys of the architecture. Throws TENON_UNSUPPORTED, with the field of config.json, for what
// GGUF has no key for.
void set_mixer_keys(GgufWriter& out, const Family& family, const ModelConfig& model,
                    const Json& config, const std::string& file);
// Sets their fields of config.json.
void read_mixer_keys(const Gguf& model, const Family& family, const std::string& file, Json& out);

// Whether a layer has a mixer, attention, an MLP of its own (dense), or chosen experts (sparse).
bool has_part(const ModelConfig& model, Layers part, int64_t layer);

// The factors of Falcon-H1 are in the weights of GGUF files: multiplies those of this tensor.
void scale_falcon(const ModelConfig& model, const std::string& tensor, std::vector<float>& numbers);

}  // namespace tenon::llm::files
