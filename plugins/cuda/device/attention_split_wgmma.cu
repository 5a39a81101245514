// SPDX-License-Identifier: Apache-2.0
// Attention forward in f32 on the tensor cores of sm_90, each number a sum of two of tf32, as in
// attention_split.cu, but with wgmma: a warpgroup has 64 query rows. Keys and values lie in shared
// memory by their parts, the values with keys as columns: in each 8 of them first the even, then the
// odd ones, which is how a warpgroup's scores lie in its registers.
// Defines: as attention.cuh; DP and VP (dim and v_dim, padded to 32), GROUPS (warpgroups, 1 or 2);
// dims and addresses are multiples of 16 bytes.
//variant: TT=f32 TS=f32 MASK=0 DP=32 VP=32 GROUPS=2
//variant: TT=f32 TS=f32 MASK=2 DP=64 VP=32 GROUPS=1 SOFTCAP=1 KV_LEN=i32 PAST_LEN=i64
//variant: TT=f32 TS=f32 MASK=1 DP=64 VP=64 GROUPS=2
#include "attention.cuh"
#include "wgmma.cuh"

constexpr int kThreads = GROUPS * 128;
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
constexpr int kRows = GROUPS * 64, kWarps = GROUPS * 4, kKeys = 64;
constexpr u32 kKeyBytes = kKeys * DP * 4, kValueBytes = kKeys * VP * 4;  // of a part

struct Parts {
  u32 high, low;
};
// Of what is no number the rest is none either. Of the rest the tensor cores see the upper bits.
__device__ inline Parts split(f32 x) {
  const u32 high = (__float_as_uint(x) + 0x1000) & 0xFFFFE000;  // to nearest
  return {high, __float_as_uint(x - __uint_as_float(high))};
}
// Where column `col` of row `row` lies in a tile of ROWS rows of f32.
template <int ROWS>
__device__ __forceinline__ u32 place(int row, int col) {
  return col / 32 * (ROWS * 128) + row * 128 + (col / 4 % 8 ^ row % 8) * 16 + col % 4 * 4;
}
#endif

extern "C" __global__ void __launch_bounds__(kThreads, (DP + VP > 64 ? 2 : 4) / GROUPS) attention(const Attention p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  begin_early();
  extern __shared__ __align__(1024) u8 smem[];
  u8 *const keys = smem, *const values = smem + 2 * kKeyBytes;
  const i32 rows = p.q_len * p.group, tiles = (rows + kRows - 1) / kRows;
  const i32 tile = tiles - 1 - (i32)blockIdx.x % tiles;  // with a causal mask the last have most to do
  const Head head(p, blockIdx.x / tiles);
  const i32 r0 = tile * kRows;
  const Limits all = limits_of_rows(p, head, r0, min(r0 + kRows, rows));
  const int lane = threadIdx.x % 32, quad = lane % 4;
  const f32 *k = (const f32*)p.k + at(p.k_strides, head.batch, head.k_head, 0),
            *v = (const f32*)p.v + at(p.v_strides, head.batch, head.k_head, 0);
  i32 row[2];
  Limits limits[2];
  const f32 *mask[2], *query[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    row[h] = r0 + (int)threadIdx.x / 32 * 16 + h * 8 + lane / 4;
    const RowPlace r = head.row(p, row[h]);
    limits[h] = row[h] < rows ? limits_of(p, head.batch, r.step) : Limits{0, 0};
    mask[h] = row[h] < rows ? mask_row_of(p, head, r) : (const f32*)nullptr;
    query[h] = row[h] < rows ? (const f32*)p.q + at(p.q_strides, head.batch, r.head, r.step)
                             : (const f32*)nullptr;
  }
  u32 high[DP / 8][4], low[DP / 8][4];
#pragma unroll
  for (int d = 0; d < DP / 8; ++d)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int col = d * 8 + e / 2 * 4 + quad;
      const Parts x = split(query[e % 2] && col < p.dim ? query[e % 2][col] : 0.f);
      high[d][e] = x.high, low[d][e] = x.low;
    }
  f32 o[VP / 2] = {}, m[2] = {-infinity(0.f), -infinity(0.f)}, l[2] = {};
  for (i32 first = all.first; first < all.last; first += kKeys) {
    if (first != all.first) __syncthreads();  // the last tile was read
    typedef Vec<f32, 4> Four;
    const auto fetch = [&](const f32* base, i64 step, int key, int col, int cols) {
      if (first + key < all.last && col < cols) return load<f32, 4>(base + (first + key) * step + col);
      return Four{};
    };
    // Of the keys a thread takes 16 bytes of a row; of the values as well, 16 keys and two times 16
    // bytes being a warp's, whose columns lie in different banks.
    constexpr int kKeyLoads = kKeys * DP / 4 / kThreads, kValueLoads = kKeys * VP / 4 / kThreads;
    Four key_part[kKeyLoads], value_part[kValueLoads];
    const auto key_of = [&](int i) { return ((int)threadIdx.x + i * kThreads) / (DP / 4); };
    const auto dim_of = [&](int i) { return ((int)threadIdx.x + i * kThreads) % (DP / 4) * 4; };
    const auto pair_of = [&](int i) { return ((int)threadIdx.x / 32 + i * kWarps) % (VP / 8); };
    const auto value_of = [&](int i) {
      return ((int)threadIdx.x / 32 + i * kWarps) / (VP / 8) * 16 + lane / 2;
    };
    const auto column_of = [&](int i) { return pair_of(i) * 8 + lane % 2 * 4; };
#pragma unroll
    for (int i = 0; i < kKeyLoads; ++i)
      key_part[i] = fetch(k, p.k_strides.step, key_of(i), dim_of(i), p.dim);
#pragma unroll
    for (int i = 0; i < kValueLoads; ++i)
      value_part[i] = fetch(v, p.v_strides.step, value_of(i), column_of(i), p.v_dim);
#pragma unroll
    for (int i = 0; i < kKeyLoads; ++i) {
      Vec<u32, 4> x, y;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const Parts s = split(key_part[i].v[e]);
        x.v[e] = s.high, y.v[e] = s.low;
      }
      u8* const to = keys + place<kKeys>(key_of(i), dim_of(i));
      store((u32*)to, x), store((u32*)(to + kKeyBytes), y);
    }
#pragma unroll
    for (int i = 0; i < kValueLoads; ++i) {
      const int key = value_of(i), col = (key & ~7) | (key & 1) << 2 | (key & 7) >> 1;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const Parts s = split(value_part[i].v[e]);
        u8* const to = values + place<VP>(column_of(i) + e, col);
        *(u32*)to = s.high, *(u32*)(to + kValueBytes) = s.low;
      }
    }
    shared_to_wgmma();
    __syncthreads();
    const u32 key_tile = shared_address(keys), value_tile = shared_address(values);
    f32 s[kKeys / 2];
    wgmma_fence();
#pragma unroll
    for (int d = 0; d < DP / 8; ++d)
      wgmma_tf32(s, low[d], tile_name<kKeys>(key_tile, 0, d * 16), d > 0);
#pragma unroll
    for (int d = 0; d < DP / 8; ++d)
      wgmma_tf32(s, high[d], tile_name<kKeys>(key_tile + kKeyBytes, 0, d * 16), true);
#pragma unroll
    for (int d = 0; d < DP / 8; ++d)
      wgmma_tf32(s, high[d], tile_name<kKeys>(key_tile, 0, d * 16), true);
    wgmma_commit();
    wgmma_wait<0>();
    settle(s);
    bool odd = false;
#pragma unroll
    for (int i = 0; i < kKeys / 2; ++i) odd |= s[i] != s[i];
    if (odd)
#pragma unroll
      for (int i = 0; i < kKeys / 2; ++i) {
        const i32 c = first + i / 4 * 8 + quad * 2 + i % 2;
        const f32* const x = query[i / 2 % 2];
        if (s[i] == s[i] || !x || c >= all.last) continue;
        f32 sum = 0;
#pragma unroll 1
        for (int d = 0; d < p.dim; ++d) sum += x[d] * k[c * p.k_strides.step + d];
        s[i] = sum;
      }
    const bool whole = limits[0].first <= first && limits[0].last >= first + kKeys &&
                       limits[1].first <= first && limits[1].last >= first + kKeys;
    f32 most[2] = {m[0], m[1]};
#pragma unroll
    for (int i = 0; i < kKeys / 2; ++i) {
      const int h = i / 2 % 2;
      const i32 c = first + i / 4 * 8 + quad * 2 + i % 2;
      f32 capped;
      s[i] = whole || (c >= limits[h].first && c < limits[h].last)
                 ? score(p, s[i], mask[h], c, capped)
                 : -infinity(0.f);
      most[h] = s[i] > most[h] ? s[i] : most[h];
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
      for (int i = 0; i < VP / 2; ++i)
        if (i / 2 % 2 == h) o[i] *= kept;
    }
    // Half of the weights at a time: their parts are enough for the registers.
#pragma unroll
    for (int j0 = 0; j0 < kKeys / 8; j0 += kKeys / 16) {
      u32 weight[kKeys / 16][4], rest[kKeys / 16][4];
#pragma unroll
      for (int j = 0; j < kKeys / 16; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const f32 x = exp2_of((s[(j0 + j) * 4 + e] - base[e / 2]) * kLog2E);
          l[e / 2] += x;
          const Parts parts = split(x);
          // Rows, then columns: the other way round in the sums.
          weight[j][e % 2 * 2 + e / 2] = parts.high, rest[j][e % 2 * 2 + e / 2] = parts.low;
        }
      settle(weight), settle(rest), settle(o);
      wgmma_fence();
      const auto add = [&](const u32(&a)[kKeys / 16][4], u32 part) {
#pragma unroll
        for (int j = 0; j < kKeys / 16; ++j)
          wgmma_tf32(o, a[j], tile_name<VP>(part, 0, (j0 + j) * 16), true);
      };
      add(rest, value_tile), add(weight, value_tile + kValueBytes), add(weight, value_tile);
      wgmma_commit();
      wgmma_wait<0>();
      settle(o);
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
      const f32 x = dead ? 0.f : o[c * 4 + h * 2] / l[h], y = dead ? 0.f : o[c * 4 + h * 2 + 1] / l[h];
      if (col < p.v_dim) store(to + col, Vec<f32, 2>{x, y});
    }
    if (p.lse && quad == 0)
      ((f32*)p.lse)[row_index(p, head, r)] =
          dead ? -infinity(0.f) : (m[h] == -infinity(0.f) ? 0.f : m[h]) + log(l[h]);
  }
#endif
}
