// SPDX-License-Identifier: Apache-2.0
// Models that read images or sounds beside text: the configuration of their language model, and the
// names of its tensors.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "llm/arch/config_reader.hpp"

namespace tenon::llm {

// The config.json of the language model alone, as a model of text has it. Returns `config`
// unchanged if its model_type is not one of the known models that read something beside text.
// Throws CORRUPT with `file` if such a model has no text_config.
Json text_part(const Json& config, const std::string& file);

// The name that a tensor has in a model of text; empty if it belongs to another part.
std::string text_tensor(const std::string& name);
// The name that transformers has for a module of a model of text in a model of `type` that reads images
// or sounds, too; `module` for other types. Adapters have these names, files have older ones, too.
std::string module_in_whole(const std::string& module, std::string_view type);
// Names that files of such models have for a tensor of the language model.
std::vector<std::string> wrapped_names(const std::string& name);

}  // namespace tenon::llm
