// SPDX-License-Identifier: Apache-2.0
// Models that read images or sounds beside text: the configuration of their language model, and the
// names of its tensors.
#pragma once

#include <string>

#include "llm/arch/config_reader.hpp"

namespace tenon::llm {

// The config.json of the language model alone, as a model of text has it; `config` if it is one. Throws
// UNSUPPORTED for a model that reads something beside text and is not known.
Json text_part(const Json& config, const std::string& file);

// The name that a tensor has in a model of text; empty if it belongs to another part.
std::string text_tensor(const std::string& name);
// Names that files of such models have for a tensor of the language model.
std::vector<std::string> wrapped_names(const std::string& name);

}  // namespace tenon::llm
