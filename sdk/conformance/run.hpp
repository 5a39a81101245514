// SPDX-License-Identifier: Apache-2.0
// Runs the chosen cases: in threads of this process, or in child processes (--isolate).
#pragma once

#include <memory>
#include <optional>

#include "select.hpp"

namespace tenon::conform {

// Receives each result once, in any order. Calls do not overlap.
using Sink = std::function<void(Result)>;

// The judged device and the reference, checked and open.
class Place {
 public:
  // Throws if a device is not there or cannot be opened.
  Place(const Runtime& runtime, const Options& options);
  const Bench& bench() const { return bench_; }

 private:
  std::optional<Rooms> rooms_{};
  Bench bench_;
  Store nothing_;
  Executable open_;  // keeps the device open
};

// Ctrl-C and SIGTERM end a run after the cases in flight; a second signal ends the process.
namespace interrupt {
void watch();
int signal();      // 0: none
int descriptor();  // readable after a signal, and after each child's end
}  // namespace interrupt

void run_here(const Options& options, const Runtime& runtime, const Selection& selection,
              const Sink& sink);

// isolate.cpp. Throws if a child cannot open the devices.
void run_isolated(const Options& options, const Selection& selection, const Sink& sink);

// worker.cpp. A child of run_isolated: runs the cases that --case names, and reports on kReports.
int work(const Options& options);

// Descriptor of the child's messages, one per line. The first byte says what it is:
//   R       the devices are open
//   B id    a case begins
//   E json  it has ended
//   W text  the plugin calls that are active, as an answer to SIGTERM
//   U text  wrong usage
//   X text  the run itself failed
//   D       all is done
inline constexpr int kReports = 3;
// The child writes this to its output where a case begins and where it ends.
inline constexpr std::string_view kMark = "\x1e\x1ftenon_conform\x1f\x1e";

}  // namespace tenon::conform
