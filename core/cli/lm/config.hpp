// SPDX-License-Identifier: Apache-2.0
// config.json of a LlamaForCausalLM of Hugging Face transformers, or of a recurrent model of tenon
// (recurrent_config.hpp). Each key that changes the model's results is supported or refused by name.
#pragma once

#include <string>

#include "cli/lm/model.hpp"

namespace tenon::lm {

// text: the content of the file.
Config parse_config(const std::string& text, const std::string& file);
// Writes a configuration that parse_config reads as the same model; transformers do so too for llama.
std::string config_text(const Config& config);
// Reads that of a model folder.
Config load_config(const std::string& folder);
// Returns PyTorch's name of a dtype.
const char* torch_name(tenon_dtype dtype);

}  // namespace tenon::lm
