// SPDX-License-Identifier: Apache-2.0
// Attention forward with an online softmax: a block takes 64 query rows through the keys, 64 at a
// time. With SPLIT a block takes a range of the keys, and `merge` joins the parts in order.
// Defines: as attention.cuh; DP and VP (dim and v_dim, padded to 16), MMA, WIDE, SPLIT.
//variant: TT=bf16 TS=f32 MASK=0 DP=128 VP=128 MMA=1 WIDE=1 SPLIT=0
//variant: TT=f16 TS=f32 MASK=2 DP=64 VP=64 MMA=1 WIDE=0 SPLIT=1 SOFTCAP=1 KV_LEN=i32 PAST_LEN=i64
//variant: TT=f32 TS=f32 MASK=1 DP=64 VP=64 MMA=0 WIDE=0 SPLIT=0
//variant: TT=f64 TS=f64 MASK=2 DP=16 VP=32 MMA=0 WIDE=0 SPLIT=1 SOFTCAP=1 KV_LEN=i64 PAST_LEN=i32
#include "attention_parts.cuh"

constexpr int kRows = 64, kKeys = 64;

// What a block works on.
struct Piece {
  i32 head, tile, split, first, last;
};
__device__ inline Piece piece_of(const Attention& p) {
  const i32 rows = p.q_len * p.group, tiles = (rows + kRows - 1) / kRows;
  i32 rest = blockIdx.x;
  Piece piece;
  piece.tile = tiles - 1 - rest % tiles;  // with a causal mask the last have most to do
  rest /= tiles;
  piece.split = rest % p.splits;
  piece.head = rest / p.splits;
  const i32 begin = piece.tile * kRows;
  const Limits all = limits_of_rows(p, Head(p, piece.head), begin, min(begin + kRows, rows));
  piece.first = SPLIT ? max(all.first, piece.split * p.split_keys) : all.first;
  piece.last = SPLIT ? min(all.last, (piece.split + 1) * p.split_keys) : all.last;
  return piece;
}
#if MMA && __CUDA_ARCH__ >= 800
constexpr int kQStride = DP + 8, kVStride = VP + 8;

extern "C" __global__ void __launch_bounds__(128) attention(const Attention p) {
  extern __shared__ __align__(16) u8 smem[];
  T *qs = (T*)smem, *ks = qs + kRows * kQStride, *vs = ks + kKeys * kQStride;
  const Piece piece = piece_of(p);
  const Head head(p, piece.head);
  const i32 rows = p.q_len * p.group, r0 = piece.tile * kRows;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const T *q = (const T*)p.q, *k = (const T*)p.k + at(p.k_strides, head.batch, head.k_head, 0),
          *v = (const T*)p.v + at(p.v_strides, head.batch, head.k_head, 0);
  const auto load_k = [&](i32 key) {
    load_rows<DP, kQStride, (bool)WIDE, 128>(ks, k, kKeys, p.dim, [&](int row) {
      return key + row < piece.last ? k + (key + row) * p.k_strides.step : (const T*)nullptr;
    });
    copy_commit();
  };
  const auto load_v = [&](i32 key) {
    load_rows<VP, kVStride, (bool)WIDE, 128>(vs, v, kKeys, p.v_dim, [&](int row) {
      return key + row < piece.last ? v + (key + row) * p.v_strides.step : (const T*)nullptr;
    });
    copy_commit();
  };
  load_rows<DP, kQStride, (bool)WIDE, 128>(qs, q, kRows, p.dim, [&](int row) {
    const RowPlace r = head.row(p, r0 + row);
    return r0 + row < rows ? q + at(p.q_strides, head.batch, r.head, r.step) : (const T*)nullptr;
  });
  load_k(piece.first);

  const bool fine = SPLIT || is_fine(p, head, r0, min(r0 + kRows, rows));
  const bool idle = r0 + warp * 16 >= rows;  // none of the warp's rows is one
  i32 row[2];
  Limits limits[2];
  const T* mask[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    row[h] = r0 + warp * 16 + h * 8 + lane / 4;
    const RowPlace r = head.row(p, row[h]);
    limits[h] = row[h] < rows ? limits_of(p, head.batch, r.step) : Limits{0, 0};
    mask[h] = row[h] < rows ? mask_row_of(p, head, r) : (const T*)nullptr;
  }
  f32 o[VP / 8][4] = {}, m[2] = {-infinity(0.f), -infinity(0.f)}, l[2] = {};
  for (i32 key = piece.first; key < piece.last; key += kKeys) {
    copy_wait<0>();
    __syncthreads();
    load_v(key);
    f32 s[kKeys / 8][4] = {};
    if (!idle)
#pragma unroll
      for (int d = 0; d < DP; d += 16) {
        u32 a[4], b[4];
        load_left<true>(a, qs, kQStride, warp * 16, d);
#pragma unroll
        for (int j = 0; j < kKeys / 16; ++j) {
          load_right<true>(b, ks, kQStride, j * 16, d);
          multiply_add(s[j * 2], a, b[0], b[1], T{});
          multiply_add(s[j * 2 + 1], a, b[2], b[3], T{});
        }
      }
    const bool whole = __all_sync(~0u, limits[0].first <= key && limits[0].last >= key + kKeys &&
                                           limits[1].first <= key && limits[1].last >= key + kKeys);
    f32 most[2] = {-infinity(0.f), -infinity(0.f)};
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int h = e / 2;
        const i32 c = key + j * 8 + lane % 4 * 2 + e % 2;
        f32 capped;
        s[j][e] = whole || (c >= limits[h].first && c < limits[h].last)
                      ? score(p, s[j][e], mask[h], c, capped)
                      : -infinity(0.f);
        most[h] = fmaxf(most[h], s[j][e]);
      }
    f32 base[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      most[h] = fmaxf(most[h], __shfl_xor_sync(~0u, most[h], 1));
      most[h] = fmaxf(most[h], __shfl_xor_sync(~0u, most[h], 2));
      most[h] = fmaxf(most[h], m[h]);
      base[h] = most[h] == -infinity(0.f) ? 0.f : most[h];
      const f32 kept = exp2f((m[h] - base[h]) * kLog2E);
      m[h] = most[h];
      l[h] *= kept;
#pragma unroll
      for (int j = 0; j < VP / 8; ++j) o[j][h * 2] *= kept, o[j][h * 2 + 1] *= kept;
    }
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        s[j][e] = exp2f((s[j][e] - base[e / 2]) * kLog2E);
        l[e / 2] += s[j][e];
      }
    copy_wait<0>();
    __syncthreads();
    if (key + kKeys < piece.last) load_k(key + kKeys);
    if (!idle)
#pragma unroll
      for (int j = 0; j < kKeys / 16; ++j) {
        const f32 *x = s[j * 2], *y = s[j * 2 + 1];
        const u32 a[4] = {pack(x[0], x[1]), pack(x[2], x[3]), pack(y[0], y[1]), pack(y[2], y[3])};
        const u32 rest[4] = {pack_rest(a[0], x[0], x[1]), pack_rest(a[1], x[2], x[3]),
                             pack_rest(a[2], y[0], y[1]), pack_rest(a[3], y[2], y[3])};
#pragma unroll
        for (int d = 0; d < VP; d += 16) {
          u32 b[4];
          load_right<false>(b, vs, kVStride, d, j * 16);
          multiply_add(o[d / 8], a, b[0], b[1], T{});
          multiply_add(o[d / 8 + 1], a, b[2], b[3], T{});
          if (fine) {
            multiply_add(o[d / 8], rest, b[0], b[1], T{});
            multiply_add(o[d / 8 + 1], rest, b[2], b[3], T{});
          }
        }
      }
  }
  copy_wait<0>();
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    l[h] += __shfl_xor_sync(~0u, l[h], 1);
    l[h] += __shfl_xor_sync(~0u, l[h], 2);
    if (row[h] >= rows) continue;
    const RowPlace r = head.row(p, row[h]);
    if (SPLIT) {
      S* part = part_of(p, piece.head, piece.split, row[h]);
      for (int j = 0; j < VP / 8; ++j)
        for (int e = 0; e < 2; ++e) {
          const int col = j * 8 + lane % 4 * 2 + e;
          if (col < p.v_dim) part[col] = o[j][h * 2 + e];
        }
      if (lane % 4 == 0) part[p.v_dim] = m[h], part[p.v_dim + 1] = l[h];
      continue;
    }
    const bool dead = l[h] == 0;
    T* to = (T*)p.o + at(p.o_strides, head.batch, r.head, r.step);
#pragma unroll
    for (int j = 0; j < VP / 8; ++j) {
      const int col = j * 8 + lane % 4 * 2;
      const T x = narrow<T>(dead ? 0.f : o[j][h * 2] / l[h]),
              y = narrow<T>(dead ? 0.f : o[j][h * 2 + 1] / l[h]);
      if (WIDE && col < p.v_dim) {
        store(to + col, Vec<T, 2>{x, y});
      } else {
        if (col < p.v_dim) to[col] = x;
        if (col + 1 < p.v_dim) to[col + 1] = y;
      }
    }
    if (p.lse && lane % 4 == 0)
      ((f32*)p.lse)[row_index(p, head, r)] =
          dead ? -infinity(0.f) : (m[h] == -infinity(0.f) ? 0.f : m[h]) + logf(l[h]);
  }
}
#elif !MMA
// 16 x 16 threads; a thread has rows y + 16 i and keys or columns x + 16 j.
constexpr int kMost = DP > VP ? DP : VP, kQStride = DP + 1, kKeyStride = kMost + 1, kPStride = kKeys + 1;

extern "C" __global__ void __launch_bounds__(256) attention(const Attention p) {
  extern __shared__ __align__(16) u8 smem[];
  S *qs = (S*)smem, *ks = qs + kRows * kQStride, *ps = ks + kKeys * kKeyStride;
  const Piece piece = piece_of(p);
  const Head head(p, piece.head);
  const i32 rows = p.q_len * p.group, r0 = piece.tile * kRows;
  const int x = threadIdx.x % 16, y = threadIdx.x / 16;
  const auto load_all = [&](S* to, int stride, int padded, int cols, auto place_of) {
    for (int c = threadIdx.x; c < 64 * padded; c += 256) {
      const T* from = place_of(c / padded);
      const int col = c % padded;
      to[c / padded * stride + col] = from && col < cols ? (S)widen(from[col]) : S(0);
    }
  };
  const auto load_keys = [&](const void* base, const Strides& strides, i32 key, int padded, int cols) {
    const T* from = (const T*)base + at(strides, head.batch, head.k_head, 0);
    load_all(ks, kKeyStride, padded, cols, [&](int row) {
      return key + row < piece.last ? from + (key + row) * strides.step : (const T*)nullptr;
    });
  };
  load_all(qs, kQStride, DP, p.dim, [&](int row) {
    const RowPlace r = head.row(p, r0 + row);
    return r0 + row < rows ? (const T*)p.q + at(p.q_strides, head.batch, r.head, r.step)
                           : (const T*)nullptr;
  });
  i32 row[4];
  Limits limits[4];
  const T* mask[4];
  S o[4][VP / 16] = {}, m[4], l[4] = {};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    row[i] = r0 + y + 16 * i;
    const RowPlace r = head.row(p, row[i]);
    limits[i] = row[i] < rows ? limits_of(p, head.batch, r.step) : Limits{0, 0};
    mask[i] = row[i] < rows ? mask_row_of(p, head, r) : (const T*)nullptr;
    m[i] = -infinity(S(0));
  }
  for (i32 key = piece.first; key < piece.last; key += kKeys) {
    __syncthreads();
    load_keys(p.k, p.k_strides, key, DP, p.dim);
    __syncthreads();
    S s[4][4] = {};
#pragma unroll 4
    for (int d = 0; d < DP; ++d) {
      S a[4], b[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        a[i] = qs[(y + 16 * i) * kQStride + d], b[i] = ks[(x + 16 * i) * kKeyStride + d];
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) s[i][j] += a[i] * b[j];
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      S most = m[i];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const i32 c = key + x + 16 * j;
        S capped;
        s[i][j] = c >= limits[i].first && c < limits[i].last ? score(p, s[i][j], mask[i], c, capped)
                                                             : -infinity(S(0));
        most = s[i][j] > most ? s[i][j] : most;
      }
#pragma unroll
      for (int lanes = 8; lanes > 0; lanes /= 2) {
        const S other = __shfl_xor_sync(~0u, most, lanes);
        most = other > most ? other : most;
      }
      const S base = most == -infinity(S(0)) ? S(0) : most, kept = exp(m[i] - base);
      m[i] = most;
      l[i] *= kept;
#pragma unroll
      for (int c = 0; c < VP / 16; ++c) o[i][c] *= kept;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const S weight = exp(s[i][j] - base);
        l[i] += weight;
        ps[(y + 16 * i) * kPStride + x + 16 * j] = weight;
      }
    }
    __syncthreads();
    load_keys(p.v, p.v_strides, key, VP, p.v_dim);
    __syncthreads();
#pragma unroll 4
    for (int c = 0; c < kKeys; ++c) {
      S a[4], b[VP / 16];
#pragma unroll
      for (int i = 0; i < 4; ++i) a[i] = ps[(y + 16 * i) * kPStride + c];
#pragma unroll
      for (int j = 0; j < VP / 16; ++j) b[j] = ks[c * kKeyStride + x + 16 * j];
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < VP / 16; ++j) o[i][j] += a[i] * b[j];
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int lanes = 8; lanes > 0; lanes /= 2) l[i] += __shfl_xor_sync(~0u, l[i], lanes);
    if (row[i] >= rows) continue;
    const RowPlace r = head.row(p, row[i]);
    S* part = SPLIT ? part_of(p, piece.head, piece.split, row[i]) : (S*)nullptr;
    T* to = (T*)p.o + at(p.o_strides, head.batch, r.head, r.step);
    const bool dead = l[i] == 0;
#pragma unroll
    for (int j = 0; j < VP / 16; ++j) {
      const int col = x + 16 * j;
      if (col >= p.v_dim) continue;
      if (SPLIT)
        part[col] = o[i][j];
      else
        to[col] = narrow<T>(dead ? S(0) : o[i][j] / l[i]);
    }
    if (x != 0) continue;
    if (SPLIT)
      part[p.v_dim] = m[i], part[p.v_dim + 1] = l[i];
    else if (p.lse)
      ((S*)p.lse)[row_index(p, head, r)] =
          dead ? -infinity(S(0)) : (m[i] == -infinity(S(0)) ? S(0) : m[i]) + log(l[i]);
  }
}
#endif
