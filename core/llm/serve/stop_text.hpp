// SPDX-License-Identifier: Apache-2.0
// Texts that end an answer, found while it is being written.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tenon::llm::serve {

class StopText {
 public:
  explicit StopText(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  // Takes the next part of the text. Returns what certainly stands before any of the stop texts;
  // the rest, which may be the beginning of one, is kept.
  std::string push(const std::string& part) {
    if (found_) return "";
    held_ += part;
    size_t at = std::string::npos;
    for (const std::string& s : stops_) at = std::min(at, held_.find(s));
    if (at != std::string::npos) {
      found_ = true;
      held_.resize(at);
      return std::exchange(held_, {});
    }
    size_t keep = 0;
    for (const std::string& s : stops_) keep = std::max(keep, partial(s));
    std::string text = held_.substr(0, held_.size() - keep);
    held_.erase(0, text.size());
    return text;
  }
  // The text has ended: what was kept belongs to it.
  std::string finish() { return std::exchange(held_, {}); }
  bool found() const { return found_; }

 private:
  // The length of the longest end of held_ that `stop` begins with.
  size_t partial(std::string_view stop) const {
    const std::string_view text = held_;
    for (size_t n = std::min(text.size(), stop.size() - 1); n > 0; --n)
      if (text.substr(text.size() - n) == stop.substr(0, n)) return n;
    return 0;
  }

  std::vector<std::string> stops_;
  std::string held_;
  bool found_ = false;
};

}  // namespace tenon::llm::serve
