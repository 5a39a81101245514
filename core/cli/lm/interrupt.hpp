// SPDX-License-Identifier: Apache-2.0
// Ctrl-C as a flag: long work looks at it between steps, finishes what it must, and ends.
#pragma once

#include <unistd.h>

#include <csignal>

namespace tenon::cli {

// While it lives, SIGINT and SIGTERM set the flag and say so; a second one kills as usual. One made
// while another lives shares its flag.
class InterruptFlag {
 public:
  InterruptFlag() {
    if (alive_++ == 0) raised_ = 0;
    struct sigaction action {};
    action.sa_handler = [](int) {
      raised_ = 1;
      static constexpr char kSaid[] = "\ninterrupted: ends after this step; once more kills\n";
      if (write(STDERR_FILENO, kSaid, sizeof kSaid - 1) < 0) return;  // nobody to tell
    };
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    sigaction(SIGINT, &action, &old_int_);
    sigaction(SIGTERM, &action, &old_term_);
  }
  ~InterruptFlag() {
    sigaction(SIGINT, &old_int_, nullptr);
    sigaction(SIGTERM, &old_term_, nullptr);
    --alive_;
  }
  InterruptFlag(const InterruptFlag&) = delete;
  InterruptFlag& operator=(const InterruptFlag&) = delete;
  bool raised() const { return raised_ != 0; }

 private:
  static inline volatile std::sig_atomic_t raised_ = 0;
  static inline int alive_ = 0;
  struct sigaction old_int_ {
  }, old_term_{};
};

}  // namespace tenon::cli
