// SPDX-License-Identifier: Apache-2.0
// Prints what a GGUF file has.
#pragma once

#include <string>
#include <string_view>

namespace tenon::cli {

bool is_gguf(std::string_view path);
// Metadata with long values shortened, and tensors with their formats and sizes.
void inspect_gguf(const std::string& path);

}  // namespace tenon::cli
