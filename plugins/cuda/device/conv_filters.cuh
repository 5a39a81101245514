// SPDX-License-Identifier: Apache-2.0
// Filters in the order that the products of convolutions read.
#pragma once
#include "conv.args.cuh"

// To [group][tap][c][m] (kByM) or [group][m][tap][padded]. A thread makes one element, or a piece of
// 8 channels.
template <bool kByM, class Unit>
__device__ __forceinline__ void order_filters(const Unit* w, Unit* y, const ConvFilters& s,
                                              i64 thread) {
  constexpr u32 kEach = kByM ? 1 : 8;
  const i64 item = thread * kEach;
  if (item >= s.count) return;
  u32 at = (u32)item, m, c, tap, group;
  if constexpr (kByM) {
    m = at % s.m, at /= s.m;
    c = at % s.c, at /= s.c;
    tap = at % s.taps, group = at / s.taps;
  } else {
    c = at % s.padded, at /= s.padded;
    tap = at % s.taps, at /= s.taps;
    m = at % s.m, group = at / s.m;
  }
  const Unit* const from = w + group * s.step_group + m * s.step_m + tap;
  Vec<Unit, kEach> v;
#pragma unroll
  for (u32 k = 0; k < kEach; ++k) v.v[k] = c + k < s.c ? from[(c + k) * s.step_c] : Unit(0);
  store(y + item, v);
}
