//variant: STEP=0 POINTS=100 RADICES=10,10 LANES=10 COLUMNS=16 THREADS=160 PARTS=2 INVERSE=1 NEXT=8 IN8=0 OUT8=1
//variant: STEP=1 POINTS=1024 RADICES=16,16,4 LANES=64 COLUMNS=8 THREADS=512 PARTS=2 INVERSE=0 NEXT=8 IN8=1 OUT8=1
//variant: STEP=2 POINTS=1024 RADICES=16,16,4 LANES=64 COLUMNS=8 THREADS=512 PARTS=2 INVERSE=0 NEXT=8 IN8=1 OUT8=1
//variant: STEP=1 POINTS=1155 RADICES=15,11,7 LANES=165 COLUMNS=4 THREADS=660 PARTS=1 INVERSE=1 NEXT=16 IN8=1 OUT8=1
//variant: STEP=2 POINTS=2187 RADICES=9,9,9,3 LANES=243 COLUMNS=4 THREADS=972 PARTS=1 INVERSE=1 NEXT=4 IN8=0 OUT8=0
// SPDX-License-Identifier: Apache-2.0
// Transforms of columns, COLUMNS neighbours in a block. STEP 0: along an axis that is not the last one, [outer, points,
// columns]. STEP 1 and 2: a long row of first*second points as a matrix of `first` rows. Step 1 transforms its columns
// and turns result k of column c by k*c of first*second parts of a turn. Step 2 transforms the rows, which step 1 has
// written so that NEXT of them alternate. Both read and write pieces of COLUMNS numbers.
//entry: fft_columns = columns(In, Out, In, FftColumns)
#include "fft.cuh"

extern __shared__ __align__(16) unsigned char memory[];

// x and y are used once; what step 1 hands to step 2 may stay in the cache.
__device__ __forceinline__ c64 read(const c64* at) {
  if constexpr (STEP == 2) {
    const Vec<f32, 2> v = load<f32, 2>(&at->re);
    return {v.v[0], v.v[1]};
  } else if constexpr (IN8) {
    const float2 v = __ldcs(reinterpret_cast<const float2*>(at));
    return {v.x, v.y};
  }
  return *at;
}
__device__ __forceinline__ void write(c64* at, c64 v) {
  if constexpr (STEP == 1)
    store<f32, 2>(&at->re, {{v.re, v.im}});
  else if constexpr (OUT8)
    __stcs(reinterpret_cast<float2*>(at), make_float2(v.re, v.im));
  else
    *at = v;
}
__device__ __forceinline__ c64 oriented(c64 v) { return INVERSE ? swapped(v) : v; }

// exp(-2 pi i m / g.points), 0 <= m < g.points. Both numbers are exact as floats.
__device__ __forceinline__ c64 root_of(int m, const FftColumns& g) {
  const f32 part = (f32)m * g.inverse;
  const f32 rest = fmaf(-part, g.points, (f32)m) * g.inverse * (f32)kTurn;
  f32 sine, cosine;
  sincospif(2 * part, &sine, &cosine);
  return {cosine - rest * sine, -(sine + rest * cosine)};
}

// store(q, v[q] * w * step^q) for q from Q on, by products of few roots: powers[b] = step^(2^b).
template <int BIT, int Q, int R, class Store>
__device__ __forceinline__ void turn_each(const c64 (&v)[R], const c64* powers, c64 w,
                                          Store& store) {
  if constexpr (BIT < 0) {
    store(Number<Q>{}, v[Q] * w);
  } else {
    turn_each<BIT - 1, Q>(v, powers, w, store);
    if constexpr (Q + (1 << BIT) < R)
      turn_each<BIT - 1, Q + (1 << BIT)>(v, powers, w * powers[BIT], store);
  }
}
constexpr int bits_of(int n) { return n < 1 ? 0 : 1 + bits_of(n / 2); }

// Within one transform of two steps 32 bits count.
template <bool wide>
struct IndexOf {
  typedef int type;
};
template <>
struct IndexOf<true> {
  typedef i64 type;
};
typedef IndexOf<STEP == 0>::type Index;

extern "C" __global__ void __launch_bounds__(THREADS, kBlocks)
    columns(const void* x, void* y, const void* table, const FftColumns g) {
  begin_early();
  const Lane lane{(int)threadIdx.x / COLUMNS, (int)threadIdx.x % COLUMNS};
  const u32 group = blockIdx.x % g.groups;
  const i64 outer = blockIdx.x / g.groups;
  const Index width = (Index)g.columns, column = (Index)group * COLUMNS + lane.column;
  const bool live = column < width;
  f32* const area = reinterpret_cast<f32*>(memory);
  const c64* const roots = static_cast<const c64*>(table);
  const c64* const from = static_cast<const c64*>(x) + outer * g.in_outer;
  c64* const to = static_cast<c64*>(y) + outer * g.out_outer;

  const auto take = [&](int i) -> c64 {
    if (!live) return {0, 0};
    if constexpr (STEP == 2)
      return read(from + ((Index)group * POINTS + i) * COLUMNS + lane.column);
    if (STEP == 0 && i >= g.there) return {0, 0};
    return oriented(read(from + i * width + column));
  };
  transform<false>(roots, area, lane, take, [&](int b, auto& v) {
    constexpr int R = Pass<kPasses - 1>::radix;
    if (!live) return;
    if constexpr (STEP == 1) {
      constexpr int kBits = bits_of(R - 1);
      c64 powers[kBits > 0 ? kBits : 1];
      each<0, kBits>([&](auto k) {
        constexpr int K = decltype(k)::value;
        if constexpr (K % 2 == 0)
          powers[K] = root_of((kApart << K) * column, g);
        else
          powers[K] = powers[K - 1] * powers[K - 1];
      });
      // Result k is at (k / NEXT * width + column) * NEXT + k % NEXT.
      const Index first = (b - b % NEXT) * width + column * NEXT + b % NEXT;
      const auto put = [&](auto q, c64 result) {
        constexpr int Q = decltype(q)::value;
        if constexpr (kApart % NEXT == 0) {
          write(to + (first + Q * kApart * width), result);
        } else {
          const int k = b + Q * kApart;
          write(to + ((k - k % NEXT) * width + column * NEXT + k % NEXT), result);
        }
      };
      turn_each<kBits - 1, 0>(v, powers, root_of(b * column, g), put);
    } else {
      each<0, R>([&](auto q) {
        constexpr int Q = decltype(q)::value;
        write(to + ((b + Q * kApart) * width + column), scaled(oriented(v[Q]), g.factor));
      });
    }
  });
}
