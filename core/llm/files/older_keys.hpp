// SPDX-License-Identifier: Apache-2.0
// Configurations of Falcon, MPT and BLOOM.
#pragma once

#include "llm/files/key_fields.hpp"

namespace tenon::llm::files {

// All keys of the architecture; false for other families. Throws TENON_UNSUPPORTED for a field that
// GGUF has no key for.
bool set_older_keys(Fields& fields, const Family& family, const Json& config,
                    const std::string& file);
// Sets their fields of config.json; false for other families.
bool read_older_keys(const FileKeys& keys, const Family& family, Json& out);

}  // namespace tenon::llm::files
