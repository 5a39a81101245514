// SPDX-License-Identifier: Apache-2.0
// Parses one GGUF file. Nothing in it is trusted: each number is checked before it is used.
#pragma once

#include <string>
#include <vector>

#include "import/gguf.hpp"

namespace tenon::core {

struct GgufPart {
  uint32_t version = 0;
  std::vector<GgufValue> values;
  std::vector<GgufTensor> tensors;
};

// Errors are corrupt or unsupported; they name the file, the byte, and the key or tensor.
GgufPart parse_gguf(const std::string& path, std::span<const std::byte> bytes);

}  // namespace tenon::core
