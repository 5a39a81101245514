// SPDX-License-Identifier: Apache-2.0
// config.json of a LlamaForCausalLM of Hugging Face transformers. Every key that changes what the
// model computes is honoured or refused by name.
#pragma once

#include <string>

#include "cli/lm/model.hpp"

namespace tenon::lm {

// text: of the file.
Config parse_config(const std::string& text, const std::string& file);
// What parse_config reads as this configuration, and transformers as the same model.
std::string config_text(const Config& config);
// Of a model folder.
Config load_config(const std::string& folder);
// PyTorch's name.
const char* torch_name(tenon_dtype dtype);

}  // namespace tenon::lm
