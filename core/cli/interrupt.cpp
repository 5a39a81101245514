// SPDX-License-Identifier: Apache-2.0
// Handles the signals that end long work.
#include "cli/interrupt.hpp"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <ctime>

#include "cli/watch.hpp"

namespace tenon::cli {
namespace {

// Signal handlers may only use lock-free atomics.
std::atomic<int64_t> first_ms{0};  // time when the flag was set; 0: not set
std::atomic<int> alive{0};
static_assert(std::atomic<int64_t>::is_always_lock_free);

constexpr char kStepLine[] = "\ninterrupted: stops after this step; a second signal ends at once\n";
constexpr char kAnswersLine[] =
    "\ninterrupted: stops when the running answers end; a second signal ends at once\n";
std::atomic<const char*> line = kStepLine;
static_assert(std::atomic<const char*>::is_always_lock_free);

// `timeout` signals the process and then its group; a closing terminal and a shell both send
// SIGHUP. Signals this close together count as one request.
constexpr int64_t kEchoMs = 500;

int64_t now_ms() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<int64_t>(now.tv_sec) * 1000 + now.tv_nsec / 1'000'000 + 1;
}

void on_signal(int number) {
  const int kept_errno = errno;
  const int64_t now = now_ms();
  int64_t first = 0;
  if (first_ms.compare_exchange_strong(first, now)) {
    const char* text = line.load();
    if (write(STDERR_FILENO, text, std::strlen(text)) < 0) errno = kept_errno;  // nobody to tell
  } else if (number != SIGHUP && now - first > kEchoMs) {
    name_calls(number);
    std::signal(number, SIG_DFL);
    std::raise(number);  // delivered when the handler returns
  }
  errno = kept_errno;
}

}  // namespace

InterruptFlag::InterruptFlag(Finishes finishes) {
  if (alive++ == 0) {
    first_ms = 0;
    line = finishes == Finishes::step ? kStepLine : kAnswersLine;
  }
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, &old_int_);
  sigaction(SIGTERM, &action, &old_term_);
  sigaction(SIGHUP, nullptr, &old_hangup_);
  if (old_hangup_.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);
}

InterruptFlag::~InterruptFlag() {
  --alive;
  // Once interrupted, the process only finishes its work. An echo of the signal meanwhile is the
  // same request.
  if (raised()) return;
  sigaction(SIGINT, &old_int_, nullptr);
  sigaction(SIGTERM, &old_term_, nullptr);
  sigaction(SIGHUP, &old_hangup_, nullptr);
}

bool InterruptFlag::raised() const { return first_ms != 0; }

void ignore_closed_pipes() { std::signal(SIGPIPE, SIG_IGN); }
void ignore_size_limit() { std::signal(SIGXFSZ, SIG_IGN); }

}  // namespace tenon::cli
