// SPDX-License-Identifier: Apache-2.0
// Whether a device reads the keys and values of a model from blocks of a pool.
#pragma once

#include <span>
#include <string>

#include "llm/arch/step.hpp"

namespace tenon::llm {

// True if attention over these caches (keys, then values, of each layer) runs as one kernel of
// `device` if they consist of blocks of `block` tokens. Else blocks would be copied for each step.
bool attends_in_blocks(const Runtime& runtime, const std::string& device, const ModelConfig& config,
                       std::span<const CacheState> caches, int64_t block);

}  // namespace tenon::llm
