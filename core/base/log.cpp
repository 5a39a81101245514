// SPDX-License-Identifier: Apache-2.0
// Writes log lines to stderr, or passes them to the app's function.
#include "base/log.hpp"

#include <cstdio>
#include <mutex>

namespace tenon::core {
namespace {

// Never destroyed, because plugins may log at process exit.
struct Sink {
  std::mutex mutex;
  LogSink call = nullptr;
  void* user = nullptr;
};
Sink& sink() {
  static Sink& the = *new Sink;
  return the;
}

void write_to_stderr(LogLevel level, std::string_view text) {
  if (level < LogLevel::warning) return;
  std::fprintf(stderr, "tenon: %s: %.*s\n", level == LogLevel::warning ? "warning" : "error",
               static_cast<int>(text.size()), text.data());
}

}  // namespace

void set_log_sink(LogSink call, void* user) {
  Sink& to = sink();
  const std::lock_guard lock(to.mutex);
  to.call = call;
  to.user = user;
}

void log(LogLevel level, std::string_view text) noexcept try {
  Sink& to = sink();
  const std::lock_guard lock(to.mutex);
  if (to.call) {
    to.call(level, text, to.user);
  } else {
    write_to_stderr(level, text);
  }
} catch (...) {
  // An exception of the sink must not end a plugin's call.
}

}  // namespace tenon::core
