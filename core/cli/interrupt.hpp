// SPDX-License-Identifier: Apache-2.0
// Signals that ask long work to end: a flag that the work reads between its steps, so that it can
// save what it has.
#pragma once

#include <csignal>

namespace tenon::cli {

// While it lives, SIGINT, SIGTERM and SIGHUP set the flag and say so on stderr. SIGHUP stays
// ignored where it was ignored, as under nohup. A second SIGINT or SIGTERM ends the process at
// once. A flag made while another lives shares its state. Once it is set, the handlers stay in place
// until the process ends.
class InterruptFlag {
 public:
  InterruptFlag();
  ~InterruptFlag();
  InterruptFlag(const InterruptFlag&) = delete;
  InterruptFlag& operator=(const InterruptFlag&) = delete;
  bool raised() const;

 private:
  struct sigaction old_int_ {
  }, old_term_{}, old_hangup_{};
};

// From here on a write to a closed pipe fails with EPIPE instead of ending the process. Ctrl-C ends
// `tee` before it ends a training that writes to it.
void ignore_closed_pipes();
// A file beyond the size limit of the process (RLIMIT_FSIZE) fails with EFBIG instead.
void ignore_size_limit();

}  // namespace tenon::cli
