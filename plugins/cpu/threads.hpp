// SPDX-License-Identifier: Apache-2.0
// Finds out how many threads the system allows (RLIMIT_NPROC, the pids control group).
#pragma once

namespace tenon::cpu {

// The number of new threads, at most `wanted`, that can live at once beside the existing ones. They
// have ended when the function returns.
int makeable_threads(int wanted);

}  // namespace tenon::cpu
