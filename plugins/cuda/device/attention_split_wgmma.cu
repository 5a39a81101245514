// SPDX-License-Identifier: Apache-2.0
// Attention forward of f32 on the tensor cores of sm_90, each number a sum of two tf32 numbers, as
// in attention_split.cu but with wgmma: a warpgroup has 64 query rows. Shared memory holds the parts
// of keys and values apart, and values transposed (keys are columns). Of each 8 keys the even ones
// come first, then the odd ones: so lie a warpgroup's scores in its registers.
// Defines: as attention.cuh; DP and VP (dim and v_dim, padded to 32), GROUPS (warpgroups, 1 or 2);
// rows are multiples of 16 bytes, and so are addresses.
//variant: TT=f32 TS=f32 MASK=0 DP=32 VP=32 GROUPS=2
//variant: TT=f32 TS=f32 MASK=2 DP=64 VP=32 GROUPS=1 SOFTCAP=1 KV_LEN=i32 PAST_LEN=i64
//variant: TT=f32 TS=f32 MASK=1 DP=64 VP=64 GROUPS=2
//variant: TT=f32 TS=f32 MASK=0 DP=64 VP=64 GROUPS=2 KV_LEN=i64 PAST_LEN=i64 BLOCK_TABLE=i64
#include "attention_quads.cuh"
#include "tf32_parts.cuh"
#include "wgmma.cuh"

constexpr int kThreads = GROUPS * 128;
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
constexpr int kRows = GROUPS * 64, kWarps = GROUPS * 4, kKeys = 64;
constexpr u32 kKeyBytes = kKeys * DP * 4, kValueBytes = kKeys * VP * 4;  // of a part

// The place of column `col` of row `row` in a tile of ROWS rows of f32.
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
  const QueryTile tile(p, kRows);
  const Head& head = tile.head;
  const Limits all = tile.keys;
  const int lane = threadIdx.x % 32, quad = lane % 4;
  const f32 *k = first_key(head, p.k, p.k_strides), *v = first_key(head, p.v, p.v_strides);
  const QuadRows rows(p, head, tile.r0 + (int)threadIdx.x / 32 * 16, tile.end);
  const QueryPlaces places{p, head, p.q, p.q_strides, 0, tile.end};
  const f32* const query[2] = {places(rows.row[0]), places(rows.row[1])};
  u32 high[DP / 8][4], low[DP / 8][4];
#pragma unroll
  for (int d = 0; d < DP / 8; ++d)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int col = d * 8 + e / 2 * 4 + quad;
      const Parts x = split(query[e % 2] && col < p.dim ? query[e % 2][col] : 0.f);
      high[d][e] = x.high, low[d][e] = x.low;
    }
  f32 o[VP / 2] = {}, row_max[2] = {-infinity(0.f), -infinity(0.f)}, row_sum[2] = {}, rescale[2];
  for (i32 first = all.first; first < all.last; first += kKeys) {
    if (first != all.first) __syncthreads();  // the last tile was read
    typedef Vec<f32, 4> Four;
    const auto fetch = [&](const f32* base, i64 step, int key, int col, int cols) {
#ifdef BLOCK_TABLE
      const i32 line =
          first + key < all.last && col < cols ? line_of(p, head.batch, first + key) : -1;
      if (line >= 0) return load<f32, 4>(base + line * step + col);
#else
      if (first + key < all.last && col < cols) return load<f32, 4>(base + (first + key) * step + col);
#endif
      return Four{};
    };
    // A thread loads 16 bytes of rows. A warp takes 16 rows of values, two pieces of each: their
    // columns are stored to different banks.
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
        const i32 c = first + quad_column(i);
        const f32* const x = query[i / 2 % 2];
        if (s[i] == s[i] || !x || c >= all.last) continue;
        i32 line = c;
#ifdef BLOCK_TABLE
        line = line_of(p, head.batch, c);
        if (line < 0) continue;
#endif
        f32 sum = 0;
#pragma unroll 1
        for (int d = 0; d < p.dim; ++d) sum += x[d] * k[line * p.k_strides.step + d];
        s[i] = sum;
      }
    mask_scores(p, rows, first, s);
    f32 base[2];
    follow_scores<false>(s, kLog2E, row_max, base, rescale);
    row_sum[0] *= rescale[0], row_sum[1] *= rescale[1];
    rescale_sums(o, rescale);
    // The parts of half of the weights at a time: more would spill.
#pragma unroll
    for (int j0 = 0; j0 < kKeys / 8; j0 += kKeys / 16) {
      u32 high_part[kKeys / 16][4], low_part[kKeys / 16][4];
#pragma unroll
      for (int j = 0; j < kKeys / 16; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const f32 weight = weight_of<false>(s[(j0 + j) * 4 + e], base[e / 2], kLog2E);
          row_sum[e / 2] += weight;
          const Parts parts = split(weight);
          // Operands count rows first, sums count columns first.
          high_part[j][e % 2 * 2 + e / 2] = parts.high, low_part[j][e % 2 * 2 + e / 2] = parts.low;
        }
      settle(high_part), settle(low_part), settle(o);
      wgmma_fence();
      const auto add = [&](const u32(&a)[kKeys / 16][4], u32 part) {
#pragma unroll
        for (int j = 0; j < kKeys / 16; ++j)
          wgmma_tf32(o, a[j], tile_name<VP>(part, 0, (j0 + j) * 16), true);
      };
      add(low_part, value_tile), add(high_part, value_tile + kValueBytes);
      add(high_part, value_tile);
      wgmma_commit();
      wgmma_wait<0>();
      settle(o);
    }
  }
  finish_quads<true>(p, tile, rows, o, row_max, row_sum);
#endif
}
