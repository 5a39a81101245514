// SPDX-License-Identifier: Apache-2.0
// How many threads the system makes. TBB makes its workers late and keeps them; where the system
// refuses one (RLIMIT_NPROC, the pids control group) it waits forever or aborts. So they are made
// and ended here first.
#pragma once

namespace tenon::cpu {

// As many of `wanted` threads, the caller's included, as live at once; at least 1.
int makeable_threads(int wanted);

// The most that makeable_threads found where it found too few, else INT_MAX.
int thread_limit();

// TBB's workers have ended: what was found need not hold any longer.
void forget_threads();

}  // namespace tenon::cpu
