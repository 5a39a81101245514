//variant: TYPE=f32 ROWS=8
//variant: TYPE=f32 ROWS=32
//variant: TYPE=f64 ROWS=16
// SPDX-License-Identifier: Apache-2.0
// LU with partial pivoting, and solutions: a warp for each matrix of at most ROWS rows, a row in each lane.
// Rows stay in their lanes; `place` says which row of the factors a lane holds.
//entry: linalg_warp = warp(In, In, Out, Out, i32*, Solve)
#include "common.cuh"
#include "linalg.args.cuh"
#include "rows.cuh"

typedef TYPE T;
constexpr int kWarps = 4, kRow = ROWS + 1;
constexpr u32 kAll = 0xffffffffu;

__device__ inline T largest(T x) {
  return choose_warp<32>(x, [](T a, T b) { return b > a ? b : a; });
}
__device__ inline int least(int x) {
  return choose_warp<32>(x, [](int a, int b) { return min(a, b); });
}

extern "C" __global__ void __launch_bounds__(128)
    warp(const T* a, const T* b, T* x, T* lu, i32* perm, const Solve s) {
  __shared__ T rows[kWarps][ROWS * kRow];
  const int lane = threadIdx.x % 32, n = s.n;
  const i64 matrix = (i64)blockIdx.x * kWarps + threadIdx.x / 32;
  if (matrix >= s.matrices) return;
  T* const own = rows[threadIdx.x / 32];
  const T* const from = a + matrix * n * n;
  for (int i = lane; i < n * n; i += 32) own[i / n * kRow + i % n] = from[i];
  __syncwarp();
  const bool used = lane < n;
  T row[ROWS];
#pragma unroll
  for (int j = 0; j < ROWS; ++j) row[j] = used && j < n ? own[lane * kRow + j] : T(0);

  int place = used ? lane : 32;
  bool regular = true;
  const auto lane_of = [&](int k) { return __ffs(__ballot_sync(kAll, place == k)) - 1; };
#pragma unroll
  for (int k = 0; k < ROWS; ++k) {
    if (k >= n) continue;
    // The largest of the rows that are left, the first one of equals. NaN is smaller than all.
    const bool left = used && place >= k;
    const T size = left && row[k] == row[k] ? (row[k] < T(0) ? -row[k] : row[k]) : T(-1);
    const T most = largest(size);
    const int best = least(left && size == most ? place : 32);
    const int from_lane = lane_of(best);
    if (place == k)
      place = best;
    else if (lane == from_lane)
      place = k;
    const T pivot = __shfl_sync(kAll, row[k], from_lane);
    regular = regular && pivot != T(0) && isfinite(pivot);
    if (pivot == T(0)) continue;
    const bool below = used && place > k;
    const T factor = row[k] / pivot;
    if (below) row[k] = factor;
#pragma unroll
    for (int j = k + 1; j < ROWS; ++j) {
      const T upper = __shfl_sync(kAll, row[j], from_lane);
      if (below) row[j] -= factor * upper;
    }
  }

  const bool bad = !regular && !s.keeps;
  const T nan = T(0) / T(0);
  if (bad) {
    if (s.fails && lane == 0) report(s.sink, kNumericError, (u64)matrix);
    place = used ? lane : 32;
  }
  if (used && perm) perm[matrix * n + place] = lane;
  if (used && lu) {
    T* const to = lu + (matrix * n + place) * n;
#pragma unroll
    for (int j = 0; j < ROWS; ++j)
      if (j < n) to[j] = bad ? nan : row[j];
  }
  if (!x) return;
  for (i64 c = 0; c < s.columns; ++c) {
    T v = used ? b[(matrix * n + lane) * s.columns + c] : T(0);
#pragma unroll
    for (int k = 0; k < ROWS; ++k) {
      if (k >= n) continue;
      const T known = __shfl_sync(kAll, v, lane_of(k));
      if (used && place > k) v -= row[k] * known;
    }
#pragma unroll
    for (int k = ROWS - 1; k >= 0; --k) {
      if (k >= n) continue;
      if (place == k) v /= row[k];
      const T known = __shfl_sync(kAll, v, lane_of(k));
      if (place < k) v -= row[k] * known;
    }
    if (used) x[(matrix * n + place) * s.columns + c] = bad ? nan : v;
  }
}
