// SPDX-License-Identifier: Apache-2.0
// Signals that interrupt long work: they set a flag, which the work checks between steps, so that
// it can save.
#pragma once

#include <csignal>

namespace tenon::cli {

// What the process finishes before it stops, as the printed line says.
enum class Finishes { step, answers };

// During its lifetime, SIGINT, SIGTERM and SIGHUP set the flag and print a line. An ignored SIGHUP
// stays ignored, as under nohup. A second SIGINT or SIGTERM names the active plugin call and ends
// the process immediately. Several objects share one state, and the line of the first. Once the flag is set, the handlers
// remain until the process ends.
class InterruptFlag {
 public:
  explicit InterruptFlag(Finishes finishes = Finishes::step);
  ~InterruptFlag();
  InterruptFlag(const InterruptFlag&) = delete;
  InterruptFlag& operator=(const InterruptFlag&) = delete;
  bool raised() const;

 private:
  struct sigaction old_int_ {
  }, old_term_{}, old_hangup_{};
};

// From now on, a write to a closed pipe fails with EPIPE and does not end the process. On Ctrl-C,
// `tee` ends before the training that writes to it.
void ignore_closed_pipes();
// The same for files beyond the size limit of the process (RLIMIT_FSIZE): EFBIG.
void ignore_size_limit();

}  // namespace tenon::cli
