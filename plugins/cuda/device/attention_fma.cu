// SPDX-License-Identifier: Apache-2.0
// Attention forward in f32 without tensor cores, heads of up to 128 elements: 16 x 8 threads, of
// which each has TR query rows and TC keys of a tile in registers, so that FMAs and not shared
// memory set the pace. Defines: as attention.cuh; DP and VP (dim and v_dim, padded to 16), TR, TC,
// WIDE (dims and addresses are multiples of 16 bytes).
//variant: TT=f32 TS=f32 MASK=0 DP=32 VP=32 TR=8 TC=4 WIDE=1
//variant: TT=f32 TS=f32 MASK=2 DP=64 VP=48 TR=4 TC=2 WIDE=0 SOFTCAP=1 KV_LEN=i32 PAST_LEN=i64
//variant: TT=f16 TS=f32 MASK=1 DP=128 VP=128 TR=2 TC=1 WIDE=0
#include "attention.cuh"

constexpr int kThreads = 128, kLanes = 16, kGroups = kThreads / kLanes;
constexpr int kRows = kGroups * TR, kKeys = kLanes * TC;
// Rows of 16-byte pieces in which neighbours lie in other banks.
constexpr int kDimStride = DP + 4, kValueStride = VP + 4, kWeightStride = kKeys + 16;
// A thread's columns of the result: kEach, kWide of them side by side.
constexpr int kEach = VP / kLanes, kWide = kEach % 4 == 0 ? 4 : kEach % 2 == 0 ? 2 : 1;
__device__ inline int column(int c) {
  return c / kWide * (kLanes * kWide) + threadIdx.x % kLanes * kWide + c % kWide;
}

// Rows into shared memory; zeros where place_of gives nullptr and from column `cols` on.
template <int COLS, int STRIDE, int ROWS, class PlaceOf>
__device__ __forceinline__ void load_tile(S* to, const void* anywhere, int cols, PlaceOf place_of) {
  constexpr int kStep = WIDE ? 4 : 1, kPerRow = COLS / kStep;
#pragma unroll 4
  for (int c = threadIdx.x; c < ROWS * kPerRow; c += kThreads) {
    const int row = c / kPerRow, col = c % kPerRow * kStep;
    const T* from = place_of(row);
    S* target = to + row * STRIDE + col;
    const bool valid = from && col < cols;
#if WIDE && __CUDA_ARCH__ >= 800
    copy_async(target, valid ? (const void*)(from + col) : anywhere, valid);
#else
#pragma unroll
    for (int e = 0; e < kStep; ++e) target[e] = valid ? (S)widen(from[col + e]) : S(0);
#endif
  }
}
__device__ inline void loaded() {
#if WIDE && __CUDA_ARCH__ >= 800
  copy_commit();
  copy_wait<0>();
#endif
  __syncthreads();
}

extern "C" __global__ void __launch_bounds__(kThreads) attention(const Attention p) {
  begin_early();
  extern __shared__ __align__(16) u8 smem[];
  S *qs = (S*)smem, *ks = qs + kRows * kDimStride, *vs = ks + kKeys * kDimStride,
    *ws = vs + kKeys * kValueStride;
  const i32 rows = p.q_len * p.group, tiles = (rows + kRows - 1) / kRows;
  const i32 tile = tiles - 1 - (i32)blockIdx.x % tiles;  // with a causal mask the last have most to do
  const Head head(p, blockIdx.x / tiles);
  const i32 r0 = tile * kRows;
  const Limits all = limits_of_rows(p, head, r0, min(r0 + kRows, rows));
  const int x = threadIdx.x % kLanes, y = threadIdx.x / kLanes;
  const T *k = (const T*)p.k + at(p.k_strides, head.batch, head.k_head, 0),
          *v = (const T*)p.v + at(p.v_strides, head.batch, head.k_head, 0);
  load_tile<DP, kDimStride, kRows>(qs, p.q, p.dim, [&](int row) {
    const RowPlace r = head.row(p, r0 + row);
    return r0 + row < rows ? (const T*)p.q + at(p.q_strides, head.batch, r.head, r.step)
                           : (const T*)nullptr;
  });
  i32 row[TR];
  Limits limits[TR];
  const T* mask[TR];
  S o[TR][kEach] = {}, m[TR], l[TR] = {};
#pragma unroll
  for (int i = 0; i < TR; ++i) {
    row[i] = r0 + y + kGroups * i;
    const RowPlace r = head.row(p, row[i]);
    limits[i] = row[i] < rows ? limits_of(p, head.batch, r.step) : Limits{0, 0};
    mask[i] = row[i] < rows ? mask_row_of(p, head, r) : (const T*)nullptr;
    m[i] = -infinity(S(0));
  }
  for (i32 key = all.first; key < all.last; key += kKeys) {
    if (key != all.first) __syncthreads();  // the last tile was read
    load_tile<DP, kDimStride, kKeys>(ks, p.k, p.dim, [&](int c) {
      return key + c < all.last ? k + (key + c) * p.k_strides.step : (const T*)nullptr;
    });
    load_tile<VP, kValueStride, kKeys>(vs, p.v, p.v_dim, [&](int c) {
      return key + c < all.last ? v + (key + c) * p.v_strides.step : (const T*)nullptr;
    });
    loaded();
    S s[TR][TC] = {};
#pragma unroll 2
    for (int d = 0; d < DP; d += 4) {
      Vec<S, 4> a[TR], b[TC];
#pragma unroll
      for (int i = 0; i < TR; ++i) a[i] = load<S, 4>(qs + (y + kGroups * i) * kDimStride + d);
#pragma unroll
      for (int j = 0; j < TC; ++j) b[j] = load<S, 4>(ks + (x + kLanes * j) * kDimStride + d);
#pragma unroll
      for (int e = 0; e < 4; ++e)
#pragma unroll
        for (int i = 0; i < TR; ++i)
#pragma unroll
          for (int j = 0; j < TC; ++j) s[i][j] += a[i].v[e] * b[j].v[e];
    }
#pragma unroll
    for (int i = 0; i < TR; ++i) {
      S most = m[i];
#pragma unroll
      for (int j = 0; j < TC; ++j) {
        const i32 c = key + x + kLanes * j;
        S capped;
        s[i][j] = c >= limits[i].first && c < limits[i].last ? score(p, s[i][j], mask[i], c, capped)
                                                             : -infinity(S(0));
        most = s[i][j] > most ? s[i][j] : most;
      }
#pragma unroll
      for (int lanes = kLanes / 2; lanes > 0; lanes /= 2) {
        const S other = __shfl_xor_sync(~0u, most, lanes);
        most = other > most ? other : most;
      }
      const S base = most == -infinity(S(0)) ? S(0) : most, kept = exp(m[i] - base);
      m[i] = most;
      l[i] *= kept;
#pragma unroll
      for (int c = 0; c < kEach; ++c) o[i][c] *= kept;
#pragma unroll
      for (int j = 0; j < TC; ++j) {
        const S weight = exp(s[i][j] - base);
        l[i] += weight;
        ws[(y + kGroups * i) * kWeightStride + x + kLanes * j] = weight;
      }
    }
    __syncwarp();  // a row's weights are those of half a warp
#pragma unroll 2
    for (int c = 0; c < kKeys; c += 4) {
      Vec<S, 4> a[TR];
#pragma unroll
      for (int i = 0; i < TR; ++i) a[i] = load<S, 4>(ws + (y + kGroups * i) * kWeightStride + c);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        Vec<S, kWide> b[kEach / kWide];
#pragma unroll
        for (int g = 0; g < kEach / kWide; ++g)
          b[g] = load<S, kWide>(vs + (c + e) * kValueStride + column(g * kWide));
#pragma unroll
        for (int i = 0; i < TR; ++i)
#pragma unroll
          for (int g = 0; g < kEach; ++g) o[i][g] += a[i].v[e] * b[g / kWide].v[g % kWide];
      }
    }
  }
#pragma unroll
  for (int i = 0; i < TR; ++i) {
#pragma unroll
    for (int lanes = kLanes / 2; lanes > 0; lanes /= 2) l[i] += __shfl_xor_sync(~0u, l[i], lanes);
    if (row[i] >= rows) continue;
    const RowPlace r = head.row(p, row[i]);
    T* to = (T*)p.o + at(p.o_strides, head.batch, r.head, r.step);
    const bool dead = l[i] == 0;
#pragma unroll
    for (int c = 0; c < kEach; ++c)
      if (column(c) < p.v_dim) to[column(c)] = narrow<T>(dead ? S(0) : o[i][c] / l[i]);
    if (x == 0 && p.lse)
      ((S*)p.lse)[row_index(p, head, r)] =
          dead ? -infinity(S(0)) : (m[i] == -infinity(S(0)) ? S(0) : m[i]) + log(l[i]);
  }
}
