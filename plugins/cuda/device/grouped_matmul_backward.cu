// SPDX-License-Identifier: Apache-2.0
// Gradients of grouped_matmul beside dx (grouped_matmul.cu): dw of an expert, a^T (p b) over its
// rows, where a and b are x and dy or the other way round; and dp from its terms.
// Defines: dtypes TYPE, TY (of what the tiles store), TP (of factors, or none), TD (of dp); SIZE (of
// a tile), WIDE (see mma_tile), KIND: 0 any dtype, 1 tensor cores, 2 those with factors.
//variant: TYPE=f32 TY=f32 TP=f32 TD=f32 SIZE=128 WIDE=0 KIND=0
//variant: TYPE=f64 TY=f64 TD=f64 SIZE=64 WIDE=0 KIND=0
//variant: TYPE=bf16 TY=bf16 TD=bf16 SIZE=128 WIDE=1 KIND=1
//variant: TYPE=f16 TY=f32 TD=f16 SIZE=64 WIDE=0 KIND=1
//variant: TYPE=f16 TY=f16 TP=f32 TD=f32 SIZE=64 WIDE=0 KIND=2
//variant: TYPE=bf16 TY=f32 TP=bf16 TD=bf16 SIZE=128 WIDE=1 KIND=2
#include "row_groups.cuh"
#include "tile.cuh"

typedef TYPE T;
typedef acc_t<T> S;
constexpr int kTile = SIZE;

typedef WeightProductOf<T, TY> WeightProduct;

// An expert's rows may be cut into pieces, of which a block has one.
struct Place {
  i64 i, j;  // first row and column of the tile
  i64 first, count;  // rows of the operands
  TY* y;
};
__device__ inline Place place_of(const WeightProduct& p) {
  constexpr int kStep = 64;  // pieces are of so many rows each
  const u32 tiles = p.tiles_m * p.tiles_n, t = blockIdx.x % tiles;
  const i64 matrix = blockIdx.x / tiles;
  const i32 expert = (i32)(matrix % p.experts), piece = (i32)(matrix / p.experts);
  const i64 rows = p.starts[expert + 1] - p.starts[expert];
  const i64 most = ((rows + p.pieces - 1) / p.pieces + kStep - 1) / kStep * kStep;
  const i64 begin = min(piece * most, rows);
  return {(i64)(t / p.tiles_n) * kTile, (i64)(t % p.tiles_n) * kTile, p.starts[expert] + begin,
          min(most, rows - begin), p.y + matrix * p.m * p.n};
}
__device__ inline i64 row_at(const WeightProduct& p, i64 k) { return p.order ? p.order[k] : k; }
__device__ inline S factor(const WeightProduct& p, i64 row) {
#ifdef TP
  return (S)widen(((const TP*)p.p)[row]);
#else
  return 1;
#endif
}

#if KIND == 0
extern "C" __global__ void __launch_bounds__(kTileThreads) weights(const WeightProduct p) {
  const Place at = place_of(p);
  S acc[kTile / 16][kTile / 16] = {};
  const auto get_a = [&](int i, i64 k) {
    const i64 col = at.i + i;
    return col < p.m && k < at.count ? (S)widen(p.a[row_at(p, at.first + k) * p.m + col]) : S(0);
  };
  const auto get_b = [&](int j, i64 k) {
    const i64 col = at.j + j;
    if (col >= p.n || k >= at.count) return S(0);
    const i64 row = row_at(p, at.first + k);
    return (S)widen(p.b[row * p.n + col]) * factor(p, row);
  };
  fma_tile<S, kTile, false, false>(get_a, get_b, at.count, acc);
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  for (int i = 0; i < kTile / 16; ++i) {
    const i64 row = at.i + tile_at(i, ty);
    if (row >= p.m) continue;
#pragma unroll
    for (int j = 0; j < kTile / 16; ++j) {
      const i64 col = at.j + tile_at(j, tx);
      if (col < p.n) at.y[row * p.n + col] = narrow<TY>(acc[i][j]);
    }
  }
}
#elif __CUDA_ARCH__ >= 800
#if KIND == 2
// Factors times halves do not fit halves. tf32 holds a as it is, and p b as the sum of two: as good
// as f32, at half the rate.
constexpr int kDepth = 2048 / kTile;  // rows in shared memory: 8 elements for each thread
constexpr int kStride = kTile + 8;    // lanes of a fragment are in different banks

typedef Vec<u32, 4> Words;
// The sum of both is x; infinity and NaN are in the first alone.
struct Halves {
  u32 high, low;
};
__device__ inline bool finite(u32 bits) { return (bits & 0x7F800000u) != 0x7F800000u; }
__device__ inline u32 to_tf32(f32 x) {
  u32 y;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
  return y;
}
__device__ inline Halves halves_of(f32 x) {
  const u32 bits = __float_as_uint(x), high = bits & 0xFFFFE000u;
  return {high, finite(bits) ? to_tf32(x - __uint_as_float(high)) : 0u};
}
// Elements [col, col + 8) of a row, times by.
__device__ inline void load_wide(f32 (&to)[8], const T* row, i64 col, i64 cols, S by) {
  Vec<T, 8> v = {};
  if (WIDE) {
    if (col < cols) v = load<T, 8>(row + col);
  } else {
#pragma unroll
    for (int e = 0; e < 8; ++e)
      if (col + e < cols) v.v[e] = row[col + e];
  }
#pragma unroll
  for (int e = 0; e < 8; ++e) to[e] = col + e < cols ? widen(v.v[e]) * by : 0.f;
}
__device__ inline void multiply_add_wide(f32 (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, "
      "%9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ inline void multiply(const WeightProduct& p, const Place& at, MmaAcc<kTile>& acc) {
  using Acc = MmaAcc<kTile>;
  __shared__ __align__(16) u32 as[kDepth][kStride];
  __shared__ __align__(16) u32 bs[2][kDepth][kStride];  // high, low
  const int k_own = threadIdx.x / (kTile / 8), col = threadIdx.x % (kTile / 8) * 8;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int wm = warp / 4 * Acc::kM + lane / 4, wn = warp % 4 * Acc::kN + lane / 4;
  f32 a[8], b[8];
  const auto fetch = [&](i64 k0) {
    const bool real = k0 + k_own < at.count;
    const i64 row = real ? row_at(p, at.first + k0 + k_own) : 0;
    load_wide(a, p.a + row * p.m, at.i + col, real ? p.m : 0, 1);
    load_wide(b, p.b + row * p.n, at.j + col, real ? p.n : 0, real ? factor(p, row) : 0);
  };
  if (at.count > 0) fetch(0);
  for (i64 k0 = 0; k0 < at.count; k0 += kDepth) {
    __syncthreads();
#pragma unroll
    for (int e = 0; e < 8; e += 4) {
      Words w, high, low;
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const Halves h = halves_of(b[e + r]);
        w.v[r] = __float_as_uint(a[e + r]), high.v[r] = h.high, low.v[r] = h.low;
      }
      store(&as[k_own][col + e], w);
      store(&bs[0][k_own][col + e], high);
      store(&bs[1][k_own][col + e], low);
    }
    __syncthreads();
    if (k0 + kDepth < at.count) fetch(k0 + kDepth);
#pragma unroll
    for (int k = 0; k < kDepth; k += 8) {
      u32 left[Acc::kM / 16][4];
      const u32* ka = as[k + lane % 4] + wm;
#pragma unroll
      for (int i = 0; i < Acc::kM / 16; ++i)
#pragma unroll
        for (int r = 0; r < 4; ++r) left[i][r] = ka[r / 2 * 4 * kStride + i * 16 + r % 2 * 8];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        u32 right[Acc::kN / 8][2];
        const u32* kb = bs[half][k + lane % 4] + wn;
#pragma unroll
        for (int j = 0; j < Acc::kN / 8; ++j)
#pragma unroll
          for (int r = 0; r < 2; ++r) right[j][r] = kb[r * 4 * kStride + j * 8];
#pragma unroll
        for (int i = 0; i < Acc::kM / 16; ++i) {
          if (half == 1)  // what is not finite was taken with the first; times 0 it would be NaN
#pragma unroll
            for (int r = 0; r < 4; ++r) left[i][r] = finite(left[i][r]) ? left[i][r] : 0u;
#pragma unroll
          for (int j = 0; j < Acc::kN / 8; ++j) multiply_add_wide(acc.v[i][j], left[i], right[j]);
        }
      }
    }
  }
}
#else
// Rows whose order says where each term lies, as a thread walks them (see Walk): those of the next
// part are looked up ahead.
struct Gather {
  using Part = MmaPart<kTile, false>;
  static constexpr int kPerRow = Part::kCols / 8, kPass = kTileThreads / kPerRow;
  static constexpr int kLoads = Part::kRows / kPass;
  const T* base;  // at the thread's columns
  const i32* order;
  i64 ld;
  i32 terms, cols, next[kLoads];

  __device__ Gather(const WeightProduct& p, const Place& at, const T* rows, i64 width, i64 i0) {
    const int row = threadIdx.x / kPerRow, col = threadIdx.x % kPerRow * 8;
    base = rows + (p.order ? 0 : at.first * width), order = p.order ? p.order + at.first : nullptr;
    ld = width;
    cols = (i32)(width - i0) - col;
    terms = cols > 0 ? (i32)at.count - row : 0;
    base += cols > 0 ? i0 + col : 0;
    look_up(0);
  }
  __device__ void look_up(i32 k0) {
    const i32 k = k0 + (i32)threadIdx.x / kPerRow;
#pragma unroll
    for (int q = 0; q < kLoads; ++q)
      next[q] = terms - k0 - q * kPass <= 0 ? 0 : order ? order[k + q * kPass] : k + q * kPass;
  }
};
template <int TILE, bool BY_K, bool VEC>
__device__ __forceinline__ void load_part(T* part, Gather& m, i64, i64 k0) {
  T* to = part + threadIdx.x / Gather::kPerRow * Gather::Part::kStride +
          threadIdx.x % Gather::kPerRow * 8;
#pragma unroll
  for (int q = 0; q < Gather::kLoads; ++q, to += Gather::kPass * Gather::Part::kStride) {
    const bool valid = m.terms - (i32)k0 - q * Gather::kPass > 0;
    load_eight<VEC>(to, m.base + m.next[q] * m.ld, valid ? m.cols : 0);
  }
  m.look_up((i32)k0 + kMmaDepth);
}

__device__ inline void multiply(const WeightProduct& p, const Place& at, MmaAcc<kTile>& acc) {
  extern __shared__ __align__(16) u8 smem[];
  Gather a(p, at, p.a, p.m, at.i), b(p, at, p.b, p.n, at.j);
  mma_tile<kTile, false, false, (bool)WIDE>(a, at.i, b, at.j, at.count, (T*)smem, acc);
}
#endif

extern "C" __global__ void __launch_bounds__(kTileThreads, 2) weights(const WeightProduct p) {
  const Place at = place_of(p);
  MmaAcc<kTile> acc = {};
  multiply(p, at, acc);
  const bool pairs = p.n % 2 == 0;
#pragma unroll
  for (int i = 0; i < kTile / 32; ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const i64 row = at.i + acc.row(i, half);
      if (row >= p.m) continue;
#pragma unroll
      for (int j = 0; j < kTile / 32; ++j) {
        const i64 col = at.j + acc.col(j);
        if (col >= p.n) continue;
        TY* to = at.y + row * p.n + col;
        Vec<TY, 2> pair;
        pair.v[0] = narrow<TY>(acc.v[i][j][half * 2]);
        pair.v[1] = narrow<TY>(acc.v[i][j][half * 2 + 1]);
        if (pairs) {
          store(to, pair);
        } else {
          to[0] = pair.v[0];
          if (col + 1 < p.n) to[1] = pair.v[1];
        }
      }
    }
}
#endif

// The pieces' sums, in order.
extern "C" __global__ void __launch_bounds__(256)
    add_pieces(const S* sums, T* y, i64 count, u32 pieces) {
  const i64 at = (i64)blockIdx.x * 256 + threadIdx.x;
  if (at >= count) return;
  S sum = sums[at];
  for (u32 k = 1; k < pieces; ++k) sum += sums[k * count + at];
  y[at] = narrow<T>(sum);
}

// dp of a row, by a warp: the sum of its `width` terms.
extern "C" __global__ void __launch_bounds__(256)
    add_dots(const S* dots, TD* dp, i64 rows, i64 width) {
  const i64 row = (i64)blockIdx.x * 8 + threadIdx.x / 32;
  if (row >= rows) return;
  S sum = 0;
  for (i64 k = threadIdx.x % 32; k < width; k += 32) sum += dots[row * width + k];
#pragma unroll
  for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
  if (threadIdx.x % 32 == 0) dp[row] = narrow<TD>(sum);
}
