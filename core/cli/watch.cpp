// SPDX-License-Identifier: Apache-2.0
// Signal handlers, and an interval timer that checks the active calls.
#include "cli/watch.hpp"

#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>

#include "tenon/tenon.hpp"

namespace tenon::cli {
namespace {

constexpr int kLookSeconds = 5;
constexpr int kPatienceSeconds = 30;

// Signal handlers may only use lock-free atomics.
std::atomic<int> watches{0};
std::atomic<int> still_seconds{0};
std::atomic<uint64_t> seen_steps{0};

const char* name_of(int signal) {
  switch (signal) {
    case SIGINT:
      return "SIGINT";
    case SIGQUIT:
      return "SIGQUIT";
    case SIGTERM:
      return "SIGTERM";
    default:
      return "SIGALRM";
  }
}

// Collects a line and writes it with one call.
class Line {
 public:
  Line& operator<<(const char* text) {
    for (; *text && size_ < sizeof text_; ++text) text_[size_++] = *text;
    return *this;
  }
  void write() {
    const int kept_errno = errno;
    if (::write(STDERR_FILENO, text_, size_) < 0) errno = kept_errno;  // stderr is closed
  }

 private:
  char text_[1400];
  size_t size_ = 0;
};

// Runs at each tick of the timer.
void look() {
  char calls[1024];
  uint64_t steps = 0;
  const bool within = tenon_active_calls(calls, sizeof calls, &steps) > 0;
  if (!within || steps != seen_steps) {
    seen_steps = steps;
    still_seconds = 0;
    return;
  }
  still_seconds += kLookSeconds;
  if (still_seconds == kPatienceSeconds)
    (Line() << "tenon: " << calls << ": has not returned for 30 s; Ctrl-C ends the process\n")
        .write();
}

void on_signal(int number, siginfo_t* info, void*) {
  if (number == SIGALRM && watches > 0 && info && info->si_code == SI_KERNEL) return look();
  name_calls(number);
  std::signal(number, SIG_DFL);
  std::raise(number);  // delivered when the handler returns
}

}  // namespace

void name_calls(int signal) {
  char calls[1024];
  if (tenon_active_calls(calls, sizeof calls, nullptr) == 0) return;
  (Line() << "\ntenon: ended by " << name_of(signal) << " in " << calls << "\n").write();
}

void name_calls_on_signals() {
  struct sigaction action {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  for (const int number : {SIGINT, SIGQUIT, SIGTERM, SIGALRM}) {
    struct sigaction now {};
    if (sigaction(number, nullptr, &now) == 0 && now.sa_handler != SIG_IGN)
      sigaction(number, &action, nullptr);
  }
}

HangWatch::HangWatch() {
  itimerval now{};
  // An alarm that the parent set is not ours to replace.
  if (getitimer(ITIMER_REAL, &now) != 0 || now.it_value.tv_sec != 0 || now.it_value.tv_usec != 0)
    return;
  struct sigaction handler {};
  if (sigaction(SIGALRM, nullptr, &handler) != 0 || handler.sa_sigaction != on_signal) return;
  still_seconds = 0;
  ++watches;
  armed_ = true;
  const itimerval period{{kLookSeconds, 0}, {kLookSeconds, 0}};
  setitimer(ITIMER_REAL, &period, nullptr);
}

HangWatch::~HangWatch() {
  if (!armed_) return;
  const itimerval none{};
  setitimer(ITIMER_REAL, &none, nullptr);
  --watches;
}

}  // namespace tenon::cli
