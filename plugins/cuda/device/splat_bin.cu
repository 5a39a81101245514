//variant: TYPE=f32
//variant: TYPE=f64
// SPDX-License-Identifier: Apache-2.0
// splat_bin: counts the entries of each block of Gaussians, sums the counts, then writes the entries.
// The threads of a block share its entries, however large its Gaussians are.
//entry: splat_bin_count = count(SplatBin)
//entry: splat_bin_sum = sum(SplatBin, i64, ErrorSink)
//entry: splat_bin_emit = emit(SplatBin)
//entry: splat_bin_fill = fill(SplatBin)
#include "order.cuh"
#include "splat.args.cuh"

typedef TYPE T;
constexpr int kPairs = 256;  // of a block

// The tiles that a Gaussian touches: none if it is not visible.
struct Reach {
  i32 left = 0, top = 0, width = 0, height = 0;
  u32 depth = 0;
  __device__ i64 entries() const { return (i64)width * height; }
};

__device__ inline i32 clamped(T v, i64 most) { return (i32)fmax(fmin(v, (T)most), (T)0); }

__device__ inline Reach reach_of(const SplatBin& s, i64 pair) {
  if (pair >= s.pairs) return {};
  const f32 inf = __uint_as_float(0x7F800000u);
  const i32 radius = s.radii[pair];
  const T* const mean = static_cast<const T*>(s.means2d) + 2 * pair;
  const T x = mean[0], y = mean[1], r = (T)radius, tile = (T)s.size;
  const f32 depth = (f32) static_cast<const T*>(s.depths)[pair];
  if (radius <= 0 || !(depth > 0) || !(depth < inf) || !(fabs(x) < (T)inf) || !(fabs(y) < (T)inf))
    return {};
  Reach to;
  to.left = clamped(floor((x - r) / tile), s.columns);
  to.width = clamped(ceil((x + r) / tile), s.columns) - to.left;
  to.top = clamped(floor((y - r) / tile), s.rows);
  to.height = clamped(ceil((y + r) / tile), s.rows) - to.top;
  to.depth = __float_as_uint(depth);
  return to;
}

extern "C" __global__ void __launch_bounds__(kPairs) count(const SplatBin s) {
  i64 total;
  sum_before<kPairs>(reach_of(s, (i64)blockIdx.x * kPairs + threadIdx.x).entries(), total);
  if (threadIdx.x == 0) s.starts[blockIdx.x] = total;
}

// One block.
extern "C" __global__ void __launch_bounds__(1024)
    sum(const SplatBin s, const i64 blocks, const ErrorSink sink) {
  constexpr int each = 8;
  i64 before = 0;
  for (i64 first = 0; first < blocks; first += 1024 * each) {
    i64 own[each], mine = 0, total;
#pragma unroll
    for (int k = 0; k < each; ++k) {
      const i64 at = first + (i64)threadIdx.x * each + k;
      own[k] = at < blocks ? s.starts[at] : 0;
      mine += own[k];
    }
    i64 at = before + sum_before<1024>(mine, total);
#pragma unroll
    for (int k = 0; k < each; ++k) {
      const i64 block = first + (i64)threadIdx.x * each + k;
      if (block < blocks) s.starts[block] = at;
      at += own[k];
    }
    before += total;
  }
  if (threadIdx.x > 0) return;
  *s.count = before;
  if (before > s.entries) report(sink, kOutOfMemory, (u64)min(before, ((i64)1 << 40) - 1));
}

extern "C" __global__ void __launch_bounds__(kPairs) emit(const SplatBin s) {
  __shared__ i64 starts[kPairs];
  __shared__ Reach reaches[kPairs];
  const i64 first = (i64)blockIdx.x * kPairs;
  const Reach mine = reach_of(s, first + threadIdx.x);
  i64 total;
  starts[threadIdx.x] = sum_before<kPairs>(mine.entries(), total);
  reaches[threadIdx.x] = mine;
  __syncthreads();
  const i64 begin = s.starts[blockIdx.x];
  total = min(total, s.entries - begin);  // the others were reported
  for (i64 e = threadIdx.x; e < total; e += kPairs) {
    // The last pair that starts here or before: of those with the same start it has entries.
    int owner = 0;
#pragma unroll
    for (int step = kPairs / 2; step > 0; step /= 2)
      if (starts[owner + step] <= e) owner += step;
    const Reach& r = reaches[owner];
    const i64 pair = first + owner;
    const u32 place = (u32)(e - starts[owner]);
    const i64 row = pair / s.points * s.rows + r.top + place / (u32)r.width;
    const i64 tile = row * s.columns + r.left + place % (u32)r.width;
    s.keys[begin + e] = tile << 32 | (i64)r.depth;
    s.ids[begin + e] = (i32)pair;
  }
}

// Entries that are not used.
extern "C" __global__ void __launch_bounds__(256) fill(const SplatBin s) {
  const i64 first = (i64)blockIdx.x * 1024 + threadIdx.x, count = *s.count;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const i64 at = first + k * 256;
    if (at < count || at >= s.entries) continue;
    s.keys[at] = (i64)(~(u64)0 >> 1);
    s.ids[at] = -1;
  }
}
