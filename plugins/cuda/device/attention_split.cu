// SPDX-License-Identifier: Apache-2.0
// Attention forward in f32 on the tensor cores of sm_80 and on: each number is a sum of two of tf32,
// and a product of two numbers the three products of their parts that matter, which lose about what
// f32 sums lose. A warp has 16 query rows. Where a query or a key is not finite, or too large for
// tf32, its scores are made without; a value that is not gives NaN, as infinity times zero does.
// Defines: as attention.cuh; DP and VP (dim and v_dim, padded to 16), WARPS, KEYS (of a tile), WIDE
// (dims and addresses are multiples of 16 bytes).
//variant: TT=f32 TS=f32 MASK=0 DP=32 VP=32 WARPS=4 KEYS=64 WIDE=1
//variant: TT=f32 TS=f32 MASK=2 DP=64 VP=48 WARPS=2 KEYS=32 WIDE=0 SOFTCAP=1 KV_LEN=i32 PAST_LEN=i64
//variant: TT=f32 TS=f32 MASK=1 DP=128 VP=128 WARPS=1 KEYS=16 WIDE=0
#include "attention.cuh"

#if __CUDA_ARCH__ >= 800
constexpr int kThreads = 32 * WARPS, kRows = 16 * WARPS, kKeys = KEYS;
// Rows that are read together lie in different banks.
constexpr int kDimStride = DP % 32 == 0 ? DP + 16 : DP, kValueStride = VP + 4;

// Rows into shared memory; zeros where place_of gives nullptr and from column `cols` on.
template <int COLS, int STRIDE, int ROWS, class PlaceOf>
__device__ __forceinline__ void load_tile(f32* to, const void* anywhere, int cols,
                                          PlaceOf place_of) {
  constexpr int kStep = WIDE ? 4 : 1, kPerRow = COLS / kStep;
#pragma unroll 4
  for (int c = threadIdx.x; c < ROWS * kPerRow; c += kThreads) {
    const int row = c / kPerRow, col = c % kPerRow * kStep;
    const f32* from = place_of(row);
    f32* target = to + row * STRIDE + col;
    const bool valid = from && col < cols;
#if WIDE
    copy_async(target, valid ? (const void*)(from + col) : anywhere, valid);
#else
    *target = valid ? from[col] : 0;
#endif
  }
}

struct Parts {
  u32 high, low;
};
// Of what is no number the rest is none either. Of the rest the tensor cores see the upper bits.
__device__ inline Parts split(f32 x) {
  const u32 high = (__float_as_uint(x) + 0x1000) & 0xFFFFE000;  // to nearest
  return {high, __float_as_uint(x - __uint_as_float(high))};
}
__device__ inline void multiply_add_tf32(f32 (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0,
                                         u32 b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, "
      "%9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
// c[i] (16 x 8 each) += a (16 x 8) b[i] (8 x 8), the smallest parts first. The products of one sum lie
// apart, so that none waits for the one before.
template <int N>
__device__ __forceinline__ void multiply_add(f32 (*c)[4], const Parts (&a)[4],
                                             const Parts (&b)[N][2]) {
#pragma unroll
  for (int i = 0; i < N; ++i)
    multiply_add_tf32(c[i], a[0].low, a[1].low, a[2].low, a[3].low, b[i][0].high, b[i][1].high);
#pragma unroll
  for (int i = 0; i < N; ++i)
    multiply_add_tf32(c[i], a[0].high, a[1].high, a[2].high, a[3].high, b[i][0].low, b[i][1].low);
#pragma unroll
  for (int i = 0; i < N; ++i)
    multiply_add_tf32(c[i], a[0].high, a[1].high, a[2].high, a[3].high, b[i][0].high, b[i][1].high);
}

extern "C" __global__ void __launch_bounds__(kThreads, VP > 32 ? 3 : 4) attention(const Attention p) {
  extern __shared__ __align__(16) u8 smem[];
  f32 *qs = (f32*)smem, *ks = qs + kRows * kDimStride, *vs = ks + kKeys * kDimStride;
  const i32 rows = p.q_len * p.group, tiles = (rows + kRows - 1) / kRows;
  const i32 tile = tiles - 1 - (i32)blockIdx.x % tiles;  // with a causal mask the last have most to do
  const Head head(p, blockIdx.x / tiles);
  const i32 r0 = tile * kRows;
  const Limits all = limits_of_rows(p, head, r0, min(r0 + kRows, rows));
  const int warp = threadIdx.x / 32, line = threadIdx.x % 32 / 4, quad = threadIdx.x % 4;
  const f32 *k = (const f32*)p.k + at(p.k_strides, head.batch, head.k_head, 0),
            *v = (const f32*)p.v + at(p.v_strides, head.batch, head.k_head, 0);
  load_tile<DP, kDimStride, kRows>(qs, p.q, p.dim, [&](int row) {
    const RowPlace r = head.row(p, r0 + row);
    return r0 + row < rows ? (const f32*)p.q + at(p.q_strides, head.batch, r.head, r.step)
                           : (const f32*)nullptr;
  });
  i32 row[2];
  Limits limits[2];
  const f32* mask[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    row[h] = r0 + warp * 16 + h * 8 + line;
    const RowPlace r = head.row(p, row[h]);
    limits[h] = row[h] < rows ? limits_of(p, head.batch, r.step) : Limits{0, 0};
    mask[h] = row[h] < rows ? mask_row_of(p, head, r) : (const f32*)nullptr;
  }
  f32 o[VP / 8][4] = {}, m[2] = {-infinity(0.f), -infinity(0.f)}, l[2] = {};
  // Four lanes hold 16 columns of a row, of which each product takes two of every lane: the same in
  // both operands, so that the order does not matter.
  const f32* const query = qs + (warp * 16 + line) * kDimStride + quad * 4;
  const f32* const key_row = ks + line * kDimStride + quad * 4;
  const f32* const value_row = vs + quad * 2 * kValueStride + line;
  for (i32 key = all.first; key < all.last; key += kKeys) {
    if (key != all.first) __syncthreads();  // the last tile was read
    load_tile<DP, kDimStride, kKeys>(ks, p.k, p.dim, [&](int c) {
      return key + c < all.last ? k + (key + c) * p.k_strides.step : (const f32*)nullptr;
    });
    load_tile<VP, kValueStride, kKeys>(vs, p.v, p.v_dim, [&](int c) {
      return key + c < all.last ? v + (key + c) * p.v_strides.step : (const f32*)nullptr;
    });
    copy_commit();
    copy_wait<0>();
    __syncthreads();
    f32 s[kKeys / 8][4] = {};
#pragma unroll 1
    for (int d = 0; d < DP; d += 16) {
      const Vec<f32, 4> low = load<f32, 4>(query + d),
                        high = load<f32, 4>(query + 8 * kDimStride + d);
      Parts a[2][4];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        a[h][0] = split(low.v[h * 2]), a[h][1] = split(high.v[h * 2]);
        a[h][2] = split(low.v[h * 2 + 1]), a[h][3] = split(high.v[h * 2 + 1]);
      }
      constexpr int kGroup = kKeys / 8 < 4 ? kKeys / 8 : 4;
#pragma unroll
      for (int j = 0; j < kKeys / 8; j += kGroup) {
        Parts b[2][kGroup][2];
#pragma unroll
        for (int i = 0; i < kGroup; ++i) {
          const Vec<f32, 4> x = load<f32, 4>(key_row + (j + i) * 8 * kDimStride + d);
#pragma unroll
          for (int e = 0; e < 4; ++e) b[e / 2][i][e % 2] = split(x.v[e]);
        }
#pragma unroll
        for (int h = 0; h < 2; ++h) multiply_add(s + j, a[h], b[h]);
      }
    }
    bool odd = false;
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) odd |= s[j][e] != s[j][e];
    if (odd)
#pragma unroll
      for (int j = 0; j < kKeys / 8; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const f32 *x = qs + (warp * 16 + e / 2 * 8 + line) * kDimStride,
                    *y = ks + (j * 8 + quad * 2 + e % 2) * kDimStride;
          f32 sum = 0;
#pragma unroll 1
          for (int d = 0; d < DP; ++d) sum += x[d] * y[d];
          if (s[j][e] != s[j][e]) s[j][e] = sum;
        }
    const bool whole = limits[0].first <= key && limits[0].last >= key + kKeys &&
                       limits[1].first <= key && limits[1].last >= key + kKeys;
    f32 most[2] = {m[0], m[1]};
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int h = e / 2;
        const i32 c = key + j * 8 + quad * 2 + e % 2;
        f32 capped;
        s[j][e] = whole || (c >= limits[h].first && c < limits[h].last)
                      ? score(p, s[j][e], mask[h], c, capped)
                      : -infinity(0.f);
        most[h] = s[j][e] > most[h] ? s[j][e] : most[h];
      }
    f32 base[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int lanes = 2; lanes > 0; lanes /= 2) {
        const f32 other = __shfl_xor_sync(~0u, most[h], lanes);
        most[h] = other > most[h] ? other : most[h];
      }
      base[h] = most[h] == -infinity(0.f) ? 0.f : most[h];
      const f32 kept = exp2_of((m[h] - base[h]) * kLog2E);
      m[h] = most[h];
      l[h] *= kept;
#pragma unroll
      for (int c = 0; c < VP / 8; ++c) o[c][h * 2] *= kept, o[c][h * 2 + 1] *= kept;
    }
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        s[j][e] = exp2_of((s[j][e] - base[e / 2]) * kLog2E);
        l[e / 2] += s[j][e];
      }
      const Parts a[4] = {split(s[j][0]), split(s[j][2]), split(s[j][1]), split(s[j][3])};
      Parts b[VP / 8][2];
#pragma unroll
      for (int c = 0; c < VP / 8; ++c) {
        const f32* from = value_row + j * 8 * kValueStride + c * 8;
        b[c][0] = split(from[0]), b[c][1] = split(from[kValueStride]);
      }
      multiply_add(o, a, b);
    }
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
#pragma unroll
    for (int lanes = 2; lanes > 0; lanes /= 2) l[h] += __shfl_xor_sync(~0u, l[h], lanes);
    if (row[h] >= rows) continue;
    const RowPlace r = head.row(p, row[h]);
    f32* to = (f32*)p.o + at(p.o_strides, head.batch, r.head, r.step);
    const bool dead = l[h] == 0;
#pragma unroll
    for (int c = 0; c < VP / 8; ++c) {
      const int col = c * 8 + quad * 2;
      const f32 x = dead ? 0.f : o[c][h * 2] / l[h], y = dead ? 0.f : o[c][h * 2 + 1] / l[h];
      if (WIDE && col < p.v_dim) {
        store(to + col, Vec<f32, 2>{x, y});
      } else {
        if (col < p.v_dim) to[col] = x;
        if (col + 1 < p.v_dim) to[col + 1] = y;
      }
    }
    if (p.lse && quad == 0)
      ((f32*)p.lse)[row_index(p, head, r)] =
          dead ? -infinity(0.f) : (m[h] == -infinity(0.f) ? 0.f : m[h]) + log(l[h]);
  }
}
#endif
