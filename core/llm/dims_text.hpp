// SPDX-License-Identifier: Apache-2.0
// Dims for messages.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tenon::llm {

// "[2, 3]"
inline std::string dims_text(const std::vector<int64_t>& dims) {
  std::string text = "[";
  for (const int64_t d : dims) text += (text.size() > 1 ? ", " : "") + std::to_string(d);
  return text + "]";
}

}  // namespace tenon::llm
