// SPDX-License-Identifier: Apache-2.0
// The automaton of Aho and Corasick: its state is the longest end of the text that begins a stop string.
#include "llm/sample/stop.hpp"

#include <deque>

#include "tenon/tenon.hpp"

namespace tenon::llm {

StopStrings::StopStrings(const std::vector<std::string>& strings) : nodes_(1) {
  constexpr size_t kMostStrings = 64, kMostBytes = 16384;
  size_t bytes = 0;
  for (const std::string& s : strings) {
    bytes += s.size();
    sizes_.push_back(s.size());
    if (s.empty())
      throw Error(TENON_INVALID_ARGUMENT, "stop strings: expected texts, got an empty one");
  }
  if (strings.size() > kMostStrings || bytes > kMostBytes)
    throw Error(TENON_INVALID_ARGUMENT,
                "stop strings: expected at most " + std::to_string(kMostStrings) + " with " +
                    std::to_string(kMostBytes) + " bytes, got " + std::to_string(strings.size()) +
                    " with " + std::to_string(bytes));
  for (size_t i = 0; i < strings.size(); ++i) {
    uint32_t at = 0;
    for (const char c : strings[i]) {
      const auto fresh = static_cast<uint32_t>(nodes_.size());
      const auto [edge, is_new] = nodes_[at].next.emplace(static_cast<unsigned char>(c), fresh);
      const uint32_t to = edge->second;
      if (is_new) {
        nodes_.emplace_back();
        nodes_[to].depth = nodes_[at].depth + 1;
      }
      at = to;
    }
    if (nodes_[at].match < 0) nodes_[at].match = static_cast<int64_t>(i);
  }
  std::deque<uint32_t> waiting{0};
  while (!waiting.empty()) {
    const uint32_t from = waiting.front();
    waiting.pop_front();
    for (const auto& [byte, to] : nodes_[from].next) {
      waiting.push_back(to);
      if (from == 0) continue;
      uint32_t at = nodes_[from].fallback;
      while (at != 0 && !nodes_[at].next.contains(byte)) at = nodes_[at].fallback;
      const auto edge = nodes_[at].next.find(byte);
      nodes_[to].fallback = edge == nodes_[at].next.end() ? 0 : edge->second;
      if (nodes_[to].match < 0) nodes_[to].match = nodes_[nodes_[to].fallback].match;
    }
  }
}

std::string StopStrings::push(std::string_view part) {
  if (stopped()) return {};
  for (const char c : part) {
    const auto byte = static_cast<unsigned char>(c);
    held_ += c;
    while (at_ != 0 && !nodes_[at_].next.contains(byte)) at_ = nodes_[at_].fallback;
    const auto edge = nodes_[at_].next.find(byte);
    at_ = edge == nodes_[at_].next.end() ? 0 : edge->second;
    if (nodes_[at_].match < 0) continue;
    found_ = nodes_[at_].match;
    held_.resize(held_.size() - sizes_[static_cast<size_t>(found_)]);
    return std::exchange(held_, {});
  }
  std::string out = held_.substr(0, held_.size() - nodes_[at_].depth);
  held_.erase(0, out.size());
  return out;
}

std::string StopStrings::finish() {
  at_ = 0;
  return std::exchange(held_, {});
}

}  // namespace tenon::llm
