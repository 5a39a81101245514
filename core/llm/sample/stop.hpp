// SPDX-License-Identifier: Apache-2.0
// Stop strings over text that arrives in parts.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::llm {

// Ends a text in front of the stop string that is complete first; of several that are complete at once, in front of the
// longest. The result does not depend on how the text is cut into parts.
class StopStrings {
 public:
  // Throws TENON_INVALID_ARGUMENT for empty strings and too many of them.
  explicit StopStrings(const std::vector<std::string>& strings);

  // Returns the text that may be shown now. Text that may become a stop string is held back.
  std::string push(std::string_view part);
  // At the end of the text: what was held back.
  std::string finish();

  bool stopped() const { return found_ >= 0; }
  int64_t found() const { return found_; }  // the index of the stop string, or -1

 private:
  struct Node {
    std::map<unsigned char, uint32_t> next;
    uint32_t fallback = 0;  // the longest proper suffix that is also a prefix of a string
    uint32_t depth = 0;
    int64_t match = -1;  // the longest string that ends here
  };
  std::vector<Node> nodes_;
  std::vector<size_t> sizes_;
  std::string held_;
  uint32_t at_ = 0;
  int64_t found_ = -1;
};

}  // namespace tenon::llm
