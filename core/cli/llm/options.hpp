// SPDX-License-Identifier: Apache-2.0
// What the commands of language models share: the model, its text, and the options of the engine.
#pragma once

#include <string>
#include <vector>

#include "cli/command.hpp"
#include "llm/engine.hpp"
#include "llm/model_text.hpp"

namespace tenon::cli {

// Appends --context, --compute, --products, --lora and the options that each command with a device has.
std::vector<Option> with_engine_options(std::vector<Option> own);
// The values of these options.
llm::EngineOptions engine_options(const Args& args, int64_t slots);
Option lora_option(std::string_view help);
// The values of --lora.
std::vector<llm::AdapterChoice> adapters_of(const Args& args);
// The first word. Throws UsageError if there is none.
const std::string& model_of(const Args& args);
// The tokenizer and the chat template of a model.
llm::ModelText text_of(const std::string& model);
// Numbers between commas: the value of --ids. Throws UsageError.
std::vector<int64_t> ids_of(const std::string& text);

}  // namespace tenon::cli
