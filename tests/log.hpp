// SPDX-License-Identifier: Apache-2.0
// Log lines, for tests that check what is logged.
#pragma once

#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tenon/tenon.hpp"

namespace tenon::test {

// What is logged while it lives.
class Log {
 public:
  Log() {
    tenon_log_to(
        [](void* user, uint32_t level, tenon_str text) {
          auto* self = static_cast<Log*>(user);
          const std::lock_guard lock(self->mutex_);
          self->lines_.emplace_back(level, std::string(text.data, text.size));
        },
        this);
  }
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;
  ~Log() { tenon_log_to(nullptr, nullptr); }
  // Lines of this level and above; 3 is that of errors.
  std::vector<std::string> lines(uint32_t least = 0) const {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> out;
    for (const auto& [level, text] : lines_)
      if (level >= least) out.push_back(text);
    return out;
  }
  bool says(std::string_view words) const {
    for (const std::string& line : lines())
      if (line.find(words) != std::string::npos) return true;
    return false;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::pair<uint32_t, std::string>> lines_;
};

}  // namespace tenon::test
