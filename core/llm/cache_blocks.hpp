// SPDX-License-Identifier: Apache-2.0
// Whether a device has kernels for the keys and values of a model: in blocks of a pool, and in blocks of
// quantized elements; and for rope, cache and attention of a token at once.
#pragma once

#include <span>
#include <string>

#include "llm/arch/step.hpp"

namespace tenon::llm {

// True if `device` has kernels for these caches (keys, then values, of each layer) as a step uses them.
// block: if not 0, attention reads them from blocks of so many tokens; else blocks would be copied for
// each step. queries: the dtype of queries. A cache whose dtype is one of blocks such as q8_0 is also
// made and written: else its elements would be decoded in each step.
bool attends_natively(const Runtime& runtime, const std::string& device, const ModelConfig& config,
                      tenon_dtype queries, std::span<const CacheState> caches, int64_t block);

// True if it has a kernel for decode_attention over these caches, of floats, as a step of one token of
// each sequence uses it.
bool decodes_natively(const Runtime& runtime, const std::string& device, const ModelConfig& config,
                      std::span<const CacheState> caches, int64_t block);

}  // namespace tenon::llm
