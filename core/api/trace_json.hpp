// SPDX-License-Identifier: Apache-2.0
// Writes a trace in Chrome's trace event format, which Perfetto reads.
#pragma once

#include <functional>
#include <string_view>

#include "exec/trace.hpp"

namespace tenon::core {

// Passes the text to `sink` in pieces. Writes complete events ("X"), with times in microseconds
// from the start of the trace. Process 1 is the host, with one thread per host thread. A device
// with streams is a process of its own, with one thread per lane.
void write_trace(const Trace& trace, const std::function<void(std::string_view)>& sink);

}  // namespace tenon::core
