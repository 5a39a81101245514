// SPDX-License-Identifier: Apache-2.0
// Experts of GLM-4.5, dots.llm1, ERNIE 4.5, Hunyuan and Llama 4.
#pragma once

#include "llm/files/key_fields.hpp"

namespace tenon::llm::files {

// Nothing for other families. Throws TENON_UNSUPPORTED for a field that GGUF has no key for.
void set_expert_keys(Fields& fields, const Family& family, const Json& config,
                     const std::string& file);
// `out` has the fields that all decoders share.
void read_expert_keys(const FileKeys& keys, const Family& family, Json& out);
// Do these set all keys of experts, also those that other families share?
bool sets_own_experts(const Family& family);

}  // namespace tenon::llm::files
