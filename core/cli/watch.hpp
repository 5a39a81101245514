// SPDX-License-Identifier: Apache-2.0
// Names the active plugin call when the process is killed or hangs.
#pragma once

namespace tenon::cli {

// After this call, SIGINT, SIGQUIT, SIGTERM and SIGALRM name the active plugin calls on stderr
// before they end the process. Ignored signals stay ignored.
void name_calls_on_signals();
// Writes that line if a call is active. Async-signal-safe.
void name_calls(int signal);

// During its lifetime, a plugin call that does not return within 30 s is named on stderr, once. Used
// while plugins are loaded and shut down; a run or a compilation may take any time.
class HangWatch {
 public:
  HangWatch();
  ~HangWatch();
  HangWatch(const HangWatch&) = delete;
  HangWatch& operator=(const HangWatch&) = delete;

 private:
  bool armed_ = false;
};

}  // namespace tenon::cli
