//variant: SIZE=16 OOB=0 NARROW=1 RANK=1
//variant: SIZE=2 OOB=1 NARROW=0 RANK=3
// SPDX-License-Identifier: Apache-2.0
// gather: rows of units of SIZE bytes found by indices; gather_elements: an index for each element.
#include "index.cuh"
#include "units.cuh"

typedef UnitOf<SIZE>::type Unit;
typedef GatherShape Gather;

constexpr int kEach = 4;  // units of a thread

extern "C" __global__ void __launch_bounds__(256)
    gather(const Unit* data, Unit* y, const Gather g) {
  const i64 first = (i64)blockIdx.x * (256 * kEach) + threadIdx.x;
  Unit value[kEach];
#pragma unroll
  for (int k = 0; k < kEach; ++k) {
    const i64 u = first + k * 256;
    if (u >= g.total) continue;
#if NARROW
    const u32 r = g.rows.quotient((u32)u), o = g.counts.quotient(r);
#else
    const i64 r = u / g.row, o = r / g.axis.count;
#endif
    const i64 column = u - r * g.row, j = r - o * g.axis.count;
    const i64 at = resolve(g.axis, j, column == 0 && o == 0);
    value[k] = Unit{};
    if (at >= 0) value[k] = data[((i64)o * g.axis.length + at) * g.row + column];
  }
#pragma unroll
  for (int k = 0; k < kEach; ++k)
    if (first + k * 256 < g.total) y[first + k * 256] = value[k];
}

// The same of long rows: a warp for each.
extern "C" __global__ void __launch_bounds__(256)
    gather_rows(const Unit* data, Unit* y, const Gather g, const u32 rows) {
  constexpr int ahead = 8;
  const u32 r = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (r >= rows) return;
  const u32 o = g.counts.quotient(r);
  const i64 at = resolve(g.axis, r - o * g.counts.value, lane == 0 && o == 0);
  const Unit* const from = data + ((i64)o * g.axis.length + at) * g.row;
  Unit* const to = y + (i64)r * g.row;
  for (i64 c = lane; c < g.row; c += 32 * ahead) {
    Unit value[ahead] = {};
    if (at >= 0)
#pragma unroll
      for (int k = 0; k < ahead; ++k)
        if (c + k * 32 < g.row) value[k] = from[c + k * 32];
#pragma unroll
    for (int k = 0; k < ahead; ++k)
      if (c + k * 32 < g.row) to[c + k * 32] = value[k];
  }
}

typedef GatherElements Elements;
__device__ inline i64 line_of(const Elements& e, i64 i) {
  i64 at = 0;
#pragma unroll
  for (int k = RANK - 1; k >= 0; --k) {
    const i64 q = k == 0 ? 0 : NARROW ? (i64)((u32)i / (u32)e.dims[k]) : i / e.dims[k];
    at += (i - q * e.dims[k]) * e.strides[k];
    i = q;
  }
  return at;
}

extern "C" __global__ void __launch_bounds__(256)
    gather_elements(const Unit* data, Unit* y, const Elements e) {
  const i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
  if (i >= e.axis.count) return;
  const i64 at = resolve(e.axis, i, true);
  Unit value = {};
  if (at >= 0) value = data[line_of(e, i) + at * e.step];
  y[i] = value;
}
