// SPDX-License-Identifier: Apache-2.0
// A progress line on a terminal, never wider than it. Prints nothing if standard error is not a
// terminal.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>

#include "cli/terminal.hpp"

namespace tenon::cli {

class Progress {
 public:
  Progress(int64_t first, int64_t total) : first_(first), total_(total) {}
  ~Progress() { clear(); }

  // done of total; rate: "12345 tok/s" and the like are the caller's.
  void show(int64_t done, const std::string& remarks) {
    if (!terminal_) return;
    const auto now = Clock::now();
    if (now - drawn_ < std::chrono::milliseconds(100) && done != total_) return;
    drawn_ = now;
    const size_t width = terminal_width(STDERR_FILENO) - 1;
    const int64_t cells = width < 80 ? 10 : 24;  // width of the bar
    const auto filled = total_ > 0 ? std::min(cells * done / total_, cells) : cells;
    std::string bar(static_cast<size_t>(filled), '=');
    bar.resize(static_cast<size_t>(cells), ' ');
    const std::string line = std::to_string(done) + "/" + std::to_string(total_) + " [" + bar +
                             "] " + left(done) + " left  " + remarks;
    std::fprintf(stderr, "\r\033[K%s", cut_to(line, width).c_str());
    std::fflush(stderr);
    shown_ = true;
  }
  // Clears the line before other output.
  void clear() {
    if (shown_) std::fprintf(stderr, "\r\033[K"), std::fflush(stderr);
    shown_ = false;
  }
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  std::string left(int64_t done) const {
    if (done <= first_) return "?";
    const double per_step = seconds() / static_cast<double>(done - first_);
    return duration_text(per_step * static_cast<double>(total_ - done));
  }
  int64_t first_, total_;
  bool terminal_ = is_terminal(STDERR_FILENO);
  bool shown_ = false;
  Clock::time_point start_ = Clock::now(), drawn_{};
};

}  // namespace tenon::cli
