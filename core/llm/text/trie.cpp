// SPDX-License-Identifier: Apache-2.0
// Built level by level from sorted texts: the texts below a node are one range.
#include "llm/text/trie.hpp"

#include <algorithm>

namespace tenon::llm {

Trie::Trie(std::vector<std::pair<std::string_view, int32_t>> texts) {
  std::stable_sort(texts.begin(), texts.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  struct Range {
    size_t begin, end, depth;
    uint32_t node;
  };
  std::vector<Range> queue{{0, texts.size(), 0, 0}};
  nodes_.emplace_back();
  for (size_t next = 0; next < queue.size(); ++next) {
    const Range r = queue[next];
    size_t i = r.begin;
    for (; i < r.end && texts[i].first.size() == r.depth; ++i)
      if (r.depth > 0) nodes_[r.node].value = texts[i].second;
    nodes_[r.node].first = static_cast<uint32_t>(nodes_.size());
    while (i < r.end) {
      const auto byte = static_cast<uint8_t>(texts[i].first[r.depth]);
      const size_t begin = i;
      while (i < r.end && static_cast<uint8_t>(texts[i].first[r.depth]) == byte) ++i;
      const auto node = static_cast<uint32_t>(nodes_.size());
      nodes_.emplace_back().byte = byte;
      ++nodes_[r.node].children;
      if (r.depth == 0) root_[byte] = node;
      queue.push_back({begin, i, r.depth + 1, node});
    }
  }
}

uint32_t Trie::child(uint32_t node, uint8_t byte) const {
  const Node& parent = nodes_[node];
  const auto begin = nodes_.begin() + parent.first, end = begin + parent.children;
  const auto at =
      std::lower_bound(begin, end, byte, [](const Node& n, uint8_t b) { return n.byte < b; });
  return at != end && at->byte == byte ? static_cast<uint32_t>(at - nodes_.begin()) : 0;
}

}  // namespace tenon::llm
