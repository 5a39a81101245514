//variant: KIND=0 POINTS=256 RADICES=16,16 LANES=16 THREADS=256 COLUMNS=1 PARTS=2 INVERSE=0 IN8=1 OUT8=1
//variant: KIND=0 POINTS=1000 RADICES=10,10,10 LANES=100 THREADS=200 COLUMNS=1 PARTS=2 INVERSE=1 IN8=1 OUT8=1
//variant: KIND=0 POINTS=3003 RADICES=13,11,7,3 LANES=273 THREADS=273 COLUMNS=1 PARTS=1 INVERSE=0 IN8=0 OUT8=0
//variant: KIND=1 POINTS=512 RADICES=8,8,8 LANES=64 THREADS=256 COLUMNS=1 PARTS=2 INVERSE=0 IN8=1 OUT8=1
//variant: KIND=2 POINTS=200 RADICES=10,10,2 LANES=20 THREADS=240 COLUMNS=1 PARTS=2 INVERSE=1 IN8=1 OUT8=1
//variant: KIND=3 POINTS=135 RADICES=15,9 LANES=9 THREADS=252 COLUMNS=1 PARTS=2 INVERSE=0 IN8=0 OUT8=0
//variant: KIND=4 POINTS=9 RADICES=9 LANES=1 THREADS=256 COLUMNS=1 PARTS=2 INVERSE=1 IN8=0 OUT8=0
// SPDX-License-Identifier: Apache-2.0
// Transforms of rows. KIND 0: complex numbers. 1: 2 POINTS real numbers, 2: back to them. 3: POINTS real numbers, 4:
// back to them. IN8, OUT8: numbers are read and written as pairs of 8 bytes.
//entry: fft_rows = rows(In, Out, In, FftRows)
#include "fft.cuh"

extern __shared__ __align__(16) unsigned char memory[];
constexpr int kArea = fft_area(POINTS, 1, KIND == 1 ? 2 : PARTS, LANES);

__device__ __forceinline__ c64 pair_at(const f32* x, i64 at) {
  if constexpr (IN8) {
    const Vec<f32, 2> v = load<f32, 2>(x + at);
    return {v.v[0], v.v[1]};
  }
  return {x[at], x[at + 1]};
}
__device__ __forceinline__ void put_pair(f32* y, i64 at, c64 v) {
  if constexpr (OUT8)
    store<f32, 2>(y + at, {{v.re, v.im}});
  else
    y[at] = v.re, y[at + 1] = v.im;
}
__device__ __forceinline__ c64 oriented(c64 v) { return INVERSE ? swapped(v) : v; }

extern "C" __global__ void __launch_bounds__(THREADS, kBlocks)
    rows(const void* x, void* y, const void* table, const FftRows g) {
  const int own = threadIdx.x / LANES;
  const Lane lane{(int)threadIdx.x % LANES, 0};
  const i64 row = (i64)blockIdx.x * (THREADS / LANES) + own;
  const bool live = row < g.rows;
  f32* const area = reinterpret_cast<f32*>(memory) + own * kArea;
  const c64* const roots = static_cast<const c64*>(table);
  constexpr bool kComplexIn = KIND == 0 || KIND == 2 || KIND == 4;
  constexpr bool kComplexOut = KIND == 0 || KIND == 1 || KIND == 3;
  const f32* const from = static_cast<const f32*>(x) + row * g.in_row * (kComplexIn ? 2 : 1);
  f32* const to = static_cast<f32*>(y) + row * g.out_row * (kComplexOut ? 2 : 1);
  // Bin k of the operand; the first one and that in the middle are real numbers.
  const auto bin = [&](int k) -> c64 {
    if (!live || k >= g.there) return {0, 0};
    const c64 v = pair_at(from, 2 * k);
    return {v.re, k == 0 || (KIND == 2 && k == POINTS) ? 0.f : v.im};
  };

  if constexpr (KIND == 0) {
    transform_each<false>(
        roots, area, lane,
        [&](int i) {
          return live && i < g.there ? oriented(pair_at(from, 2 * i)) : c64{0, 0};
        },
        [&](int i, c64 v) {
          if (live) put_pair(to, 2 * i, scaled(oriented(v), g.factor));
        });
  } else if constexpr (KIND == 1) {
    transform_kept(roots, area, lane, [&](int i) -> c64 {
      if (live && 2 * i + 1 < g.there) return pair_at(from, 2 * i);
      return {live && 2 * i < g.there ? from[2 * i] : 0.f, 0.f};
    });
    if (!live) return;
    for (int k = lane.index; k <= POINTS / 2; k += LANES) {
      const TwoBins two = split_bins(kept(area, lane, k), kept(area, lane, k == 0 ? 0 : POINTS - k),
                                     entry_of(roots, kSplitRoots + k));
      put_pair(to, 2 * k, scaled(two.low, g.factor));
      put_pair(to, 2 * (POINTS - k), scaled(two.high, g.factor));
    }
  } else if constexpr (KIND == 2) {
    transform_each<false>(
        roots, area, lane,
        [&](int i) {
          const c64 a = bin(i), b = conjugate(bin(POINTS - i));
          const c64 even = a + b, odd = (a - b) * conjugate(entry_of(roots, kSplitRoots + i));
          return swapped(even + c64{-odd.im, odd.re});
        },
        [&](int i, c64 v) {
          if (live) put_pair(to, 2 * i, scaled(swapped(v), g.factor));
        });
  } else if constexpr (KIND == 3) {
    transform_each<false>(
        roots, area, lane,
        [&](int i) {
          return c64{live && i < g.there ? from[i] : 0.f, 0.f};
        },
        [&](int i, c64 v) {
          if (live && i <= POINTS / 2) put_pair(to, 2 * i, scaled(v, g.factor));
        });
  } else {
    transform_each<false>(
        roots, area, lane,
        [&](int i) { return swapped(i <= POINTS / 2 ? bin(i) : conjugate(bin(POINTS - i))); },
        [&](int i, c64 v) {
          if (live) to[i] = v.im * g.factor;
        });
  }
}
