//variant: OOB=0
// SPDX-License-Identifier: Apache-2.0
// What the scatters and the sort of their updates share: entries, one for each update, sorted so
// that those of a row lie together, in the order of their positions.
#pragma once
#include "index.cuh"

typedef ScatterElements Elements;

// Entries: row << position_bits | position. What has no place gets the row behind the last.
__device__ inline i64 row_of(const Scatter& s, u64 entry) {
  return (i64)(entry >> s.position_bits);
}
__device__ inline i64 position_of(const Scatter& s, u64 entry) {
  return (i64)(entry & ((u64(1) << s.position_bits) - 1));
}

// A segment: the entries of one row. Those of more than kLong are listed, {first, end} of each, in
// no order. number[0]: how many; number[1]: how much of them blocks took.
constexpr int kLong = 128;
