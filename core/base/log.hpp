// SPDX-License-Identifier: Apache-2.0
// Log lines for the operator of the program. Errors are thrown, not logged.
#pragma once

#include <cstdint>
#include <string_view>

namespace tenon::core {

// Numbers as in backend.h.
enum class LogLevel : uint32_t { debug = 0, info = 1, warning = 2, error = 3 };

// Called by one thread at a time. Must not log.
using LogSink = void (*)(LogLevel level, std::string_view text, void* user);

// Replaces the sink of the process. Null restores the default, which writes warnings and errors to
// stderr.
void set_log_sink(LogSink sink, void* user);

void log(LogLevel level, std::string_view text) noexcept;

}  // namespace tenon::core
