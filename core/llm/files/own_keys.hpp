// SPDX-License-Identifier: Apache-2.0
// Configurations that are not like Llama's: those of GPT-2, Mamba, Falcon, MPT and BLOOM, and what
// DeepSeek adds.
#pragma once

#include <string>

#include "llm/files/families.hpp"
#include "llm/files/json.hpp"

namespace tenon::llm::files {

// GPT-2, Mamba and older_keys.hpp: all keys of the architecture; false for other families. Throws
// TENON_UNSUPPORTED for a field that GGUF has no key for.
bool set_own_keys(GgufWriter& out, const Family& family, const Json& config,
                  const std::string& file);
// Sets their fields of config.json; false for other families.
bool read_own_keys(const Gguf& model, const Family& family, const std::string& file, Json& out);

// What Granite, SmolLM3, Ministral 3 and Qwen2 with experts have beside the keys of Llama.
void set_more_keys(GgufWriter& out, const Family& family, const Json& config,
                   const std::string& file);
void read_more_keys(const Gguf& model, const Family& family, const std::string& file, Json& out);

// The key of the number of layers.
const char* layers_key(const Json& config, const Family& family);
// The family of a config.json, by model_type and the norms of Falcon.
const Family& family_of_config(const Json& config, const std::string& file);

// DeepSeek: the keys of latent attention and of experts, beside those that all families have.
void set_deepseek_keys(GgufWriter& out, const Family& family, const Json& config,
                       const std::string& file);
void read_deepseek_keys(const Gguf& model, const Family& family, const std::string& file,
                        Json& out);
// Layers in front that have no experts.
int64_t dense_layers(const Json& config, const Family& family, const std::string& file);
// Layers behind the last one that predict further tokens; none of the model's.
int64_t extra_layers(const Json& config, const Family& family, const std::string& file);

// The shortest decimal number of an f32, not that of the double that equals it. Throws TENON_CORRUPT,
// with the name, for what is not finite: JSON has no form for it.
double finite(float value, const std::string& name, const std::string& file);

}  // namespace tenon::llm::files
