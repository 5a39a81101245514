// SPDX-License-Identifier: Apache-2.0
// Whether the system makes more threads (RLIMIT_NPROC, the pids control group).
#pragma once

namespace tenon::cpu {

// How many of `wanted` new threads live at once beside those that there are. They end before it
// returns.
int makeable_threads(int wanted);

}  // namespace tenon::cpu
