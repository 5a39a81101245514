// SPDX-License-Identifier: Apache-2.0
// Whether the engine would take the tensors of a folder.
#pragma once

#include <functional>
#include <set>
#include <string>

#include "llm/arch/config.hpp"
#include "llm/files/folder.hpp"

namespace tenon::llm::files {

// Throws what opening the model would throw if its tensors had dtypes of dtype_of(). Returns those to
// leave out: old files have biases of zeros beside all quantized weights, also where the model has none.
std::set<std::string, std::less<>> check_tensors(
    const ModelFolder& folder, const ModelConfig& config,
    const std::function<tenon_dtype(const ModelFolder::Entry&)>& dtype_of);

// config.json of the folder as the engine reads it, but without its quantization.
ModelConfig engine_config(const ModelFolder& folder);

}  // namespace tenon::llm::files
