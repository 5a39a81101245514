// SPDX-License-Identifier: Apache-2.0
// Small files of model folders.
#pragma once

#include <string>

namespace tenon::llm {

// Reads a regular file of at most 64 MiB. Throws Error with the path.
std::string read_text(const std::string& path);

}  // namespace tenon::llm
