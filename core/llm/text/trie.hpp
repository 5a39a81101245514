// SPDX-License-Identifier: Apache-2.0
// A prefix tree over texts, in one array. It finds all texts that a position begins with.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace tenon::llm {

class Trie {
 public:
  Trie() = default;
  // Of equal texts, the last one stays. Empty texts are left out.
  explicit Trie(std::vector<std::pair<std::string_view, int32_t>> texts);

  // Calls found(size, value) for each text that `text` begins with, from the shortest to the longest.
  template <class F>
  void prefixes(std::string_view text, F&& found) const {
    if (text.empty() || nodes_.empty()) return;
    uint32_t node = root_[static_cast<unsigned char>(text[0])];
    for (size_t size = 1; node; ++size) {
      if (nodes_[node].value >= 0) found(size, nodes_[node].value);
      if (size == text.size()) return;
      node = child(node, static_cast<unsigned char>(text[size]));
    }
  }

 private:
  struct Node {
    uint32_t first = 0;  // child; the children lie side by side, ordered by byte
    uint16_t children = 0;
    uint8_t byte = 0;
    int32_t value = -1;
  };
  uint32_t child(uint32_t node, uint8_t byte) const;

  std::vector<Node> nodes_;
  std::array<uint32_t, 256> root_{};
};

}  // namespace tenon::llm
