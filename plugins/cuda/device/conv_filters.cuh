// SPDX-License-Identifier: Apache-2.0
// Filters in the order that the products of convolutions read.
#pragma once
#include "conv.args.cuh"

// Which of 16 terms is at place k where the right operand of bytes is stored by terms.
__device__ __forceinline__ u32 across_term(u32 k) { return k / 4 * 2 + k % 2 + k / 2 % 2 * 8; }

// To [group][tap][c][m] (kByM) or [group][m][tap][padded], kAcross: in the order of across_term. A
// thread makes one element, or a piece of 8 channels.
template <bool kByM, bool kAcross = false, class Unit>
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
  for (u32 k = 0; k < kEach; ++k) {
    const u32 own = kAcross ? c / 16 * 16 + across_term(c % 16 + k) : c + k;
    v.v[k] = own < s.c ? from[own * s.step_c] : Unit(0);
  }
  store(y + item, v);
}
