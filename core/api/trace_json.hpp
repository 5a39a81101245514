// SPDX-License-Identifier: Apache-2.0
// A trace in Chrome's trace event format, as Perfetto reads it.
#pragma once

#include <functional>
#include <string_view>

#include "exec/trace.hpp"

namespace tenon::core {

// Hands the text over in pieces. Complete events ("X"), times in microseconds from the trace's
// start. Process 1 is the host, a thread of it per thread; a device with streams is a process of
// its own, a thread of it per lane.
void write_trace(const Trace& trace, const std::function<void(std::string_view)>& sink);

}  // namespace tenon::core
