// SPDX-License-Identifier: Apache-2.0
// What decoders that are near Llama add to its keys: parallel layers, windows in some layers, factors,
// limits, and experts as GLM-4.5 has them.
#pragma once

#include "llm/files/key_fields.hpp"

namespace tenon::llm::files {

// Throws TENON_UNSUPPORTED for a field that GGUF has no key for.
void set_decoder_keys(Fields& fields, const Family& family, const Json& config,
                      const std::string& file);
// `out` has the fields that all decoders share.
void read_decoder_keys(const Gguf& model, const Family& family, const std::string& file, Json& out);

}  // namespace tenon::llm::files
