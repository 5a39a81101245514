// SPDX-License-Identifier: Apache-2.0
// Sizes of blocks of work and of work areas.
#pragma once

#include <cstdint>

namespace tenon::cpu {

inline int64_t divide_up(int64_t n, int64_t by) { return (n + by - 1) / by; }
inline int64_t round_up(int64_t n, int64_t to) { return divide_up(n, to) * to; }
// Bytes that a part of a work area takes, so that the next one begins with a cache line.
inline uint64_t aligned(int64_t bytes) { return static_cast<uint64_t>(round_up(bytes, 64)); }

}  // namespace tenon::cpu
