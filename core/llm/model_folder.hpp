// SPDX-License-Identifier: Apache-2.0
// Files of model folders. A small file is a regular file of at most 64 MiB.
#pragma once

#include <optional>
#include <string>

namespace tenon::llm {

// The content of a small file. Throws NOT_FOUND if it does not exist.
std::string read_text(const std::string& path);
// The same, or nothing if the file does not exist.
std::optional<std::string> read_if_there(const std::string& path);

}  // namespace tenon::llm
