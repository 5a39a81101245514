// SPDX-License-Identifier: Apache-2.0
// Signal handlers that report which plugin call crashed.
#include "host/crash.hpp"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <mutex>

#include "base/error.hpp"
#include "host/active_call.hpp"

namespace tenon::core {
namespace {

struct Fatal {
  int number;
  const char* name;
};
constexpr Fatal kFatal[] = {{SIGSEGV, "SIGSEGV"},
                            {SIGBUS, "SIGBUS"},
                            {SIGILL, "SIGILL"},
                            {SIGFPE, "SIGFPE"},
                            {SIGABRT, "SIGABRT"}};
struct sigaction former[std::size(kFatal)];

// After a stack overflow of the main thread, the handler needs a stack of its own.
alignas(16) char stack_of_handler[64 << 10];

void write_text(const char* text) {
  for (size_t left = std::strlen(text); left > 0;) {
    const ssize_t n = ::write(STDERR_FILENO, text, left);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;  // stderr is closed
    text += n;
    left -= static_cast<size_t>(n);
  }
}

void tell(const char* signal) {
  char calls[1024];
  bool own = false;
  const uint32_t count = write_active_calls(calls, sizeof calls, own);
  write_text("tenon: the process crashed (");
  write_text(signal);
  if (own) {
    write_text(") in ");
    write_text(calls);
  } else if (count) {
    write_text(") in a thread outside of plugin calls; active: ");
    write_text(calls);
  } else {
    write_text(") outside of plugin calls");
  }
  write_text("\n");
}

void on_fatal(int number, siginfo_t* info, void*) {
  static std::atomic<bool> told{false};
  if (!told.exchange(true)) {
    for (const Fatal& f : kFatal)
      if (f.number == number) tell(f.name);
  } else {
    // Another thread is writing the message and then ends the process.
    const timespec second{1, 0};
    ::nanosleep(&second, nullptr);
  }
  for (size_t i = 0; i < std::size(kFatal); ++i) ::sigaction(kFatal[i].number, &former[i], nullptr);
  // A fault occurs again when the handler returns, so the former handler gets its details. A signal
  // that was sent, also by abort(), is sent again.
  if (!info || info->si_code <= 0) ::raise(number);
}

}  // namespace

void report_crashes() {
  static std::mutex mutex;
  static bool installed = false;
  const std::lock_guard lock(mutex);
  if (installed) return;
  stack_t given{};
  if (::sigaltstack(nullptr, &given) == 0 && (given.ss_flags & SS_DISABLE) != 0) {
    given = {};
    given.ss_sp = stack_of_handler;
    given.ss_size = sizeof stack_of_handler;
    ::sigaltstack(&given, nullptr);  // if it fails, only the message is lost
  }
  struct sigaction action {};
  action.sa_sigaction = on_fatal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < std::size(kFatal); ++i)
    if (::sigaction(kFatal[i].number, &action, &former[i]) != 0)
      fail(Code::internal, "the handler of ", kFatal[i].name, ": ", std::strerror(errno));
  installed = true;
}

}  // namespace tenon::core
