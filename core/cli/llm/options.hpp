// SPDX-License-Identifier: Apache-2.0
// What llm run, llm serve and llm bench share: the model, and the options of the engine.
#pragma once

#include <string>
#include <vector>

#include "cli/command.hpp"
#include "llm/engine.hpp"

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

}  // namespace tenon::cli
