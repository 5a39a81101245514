// SPDX-License-Identifier: Apache-2.0
// One line of progress on a terminal; nothing where standard error is none.
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>

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
    constexpr int kWidth = 24;
    const int filled = total_ > 0 ? static_cast<int>(kWidth * done / total_) : kWidth;
    std::string bar(static_cast<size_t>(filled), '=');
    bar.resize(kWidth, ' ');
    std::fprintf(stderr, "\r\033[K%lld/%lld [%s] %s  %s left", static_cast<long long>(done),
                 static_cast<long long>(total_), bar.c_str(), remarks.c_str(), left(done).c_str());
    std::fflush(stderr);
    shown_ = true;
  }
  // Makes room for another line.
  void clear() {
    if (shown_) std::fprintf(stderr, "\r\033[K"), std::fflush(stderr);
    shown_ = false;
  }
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  std::string left(int64_t done) const {
    if (done <= first_) return "--:--";
    const double per_step = seconds() / static_cast<double>(done - first_);
    const auto s = static_cast<int64_t>(per_step * static_cast<double>(total_ - done) + 0.5);
    char text[32];
    std::snprintf(text, sizeof text, "%lld:%02lld", static_cast<long long>(s / 60),
                  static_cast<long long>(s % 60));
    return text;
  }
  int64_t first_, total_;
  bool terminal_ = ::isatty(STDERR_FILENO) != 0;
  bool shown_ = false;
  Clock::time_point start_ = Clock::now(), drawn_{};
};

}  // namespace tenon::cli
