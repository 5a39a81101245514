// SPDX-License-Identifier: Apache-2.0
// Keys of models whose layers have linear attention or short convolutions in place of attention, except
// some: Qwen3-Next, Qwen3.5 and LFM2.
#pragma once

#include <vector>

#include "llm/files/change.hpp"
#include "llm/files/key_fields.hpp"

namespace tenon::llm::files {

// Which layers have no attention; empty for other families.
std::vector<bool> recurrent_layers(const Json& config, const Family& family,
                                   const std::string& file);
// Heads of linear attention; none for other families. Throws TENON_CORRUPT unless the number of value
// heads is a multiple of that of key heads.
LinearHeads linear_heads(const Json& config, const Family& family, const std::string& file);
// Columns of the MLP of LFM2, which its files do not name themselves.
int64_t lfm2_ffn(const Json& config, const std::string& file);

// Throws TENON_UNSUPPORTED for a field that GGUF has no key for.
void set_hybrid_keys(GgufWriter& out, Fields& fields, const Family& family, const Json& config,
                     const std::string& file);
// `out` has the fields that all decoders share.
void read_hybrid_keys(const FileKeys& keys, const Family& family, Json& out);

}  // namespace tenon::llm::files
