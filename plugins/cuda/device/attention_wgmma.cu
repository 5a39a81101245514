// SPDX-License-Identifier: Apache-2.0
// Attention forward on sm_90 with wgmma, of what attention_bulk.cu does not take: a block of two
// warpgroups takes 128 query rows through the keys, 128 or 64 at a time. While the weights of some
// keys are made, the tensor cores sum the values of those before; the next keys and values are
// under way to shared memory. Defines: as attention.cuh; DP and VP (dim and v_dim, padded to 64 or
// 128), PLAIN (1: the score is the product times a positive scale).
//variant: TT=bf16 TS=f32 MASK=0 DP=128 VP=128 PLAIN=1
//variant: TT=f16 TS=f32 MASK=2 DP=64 VP=64 PLAIN=0 SOFTCAP=1 KV_LEN=i32 PAST_LEN=i64
#include "attention_wgmma.cuh"
#include "row_max.cuh"

constexpr int kThreads = 256, kRows = 128;
// Narrow heads leave room for two blocks on a multiprocessor, which then hide each other's waits.
constexpr int kBlocks = DP + VP > 128 ? 1 : 2, kKeys = DP + VP > 128 ? 128 : 64;
constexpr int kStages = 3;

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// What a thread knows of its two query rows, 8 apart.
struct Rows2 {
  Limits limits[2];
  const T* mask[2];
  i32 first, last;  // keys that every row of the warp may attend to
};

// Products become weights of the keys from `key` on; `kept` is what the sums so far are multiplied
// by.
__device__ __forceinline__ void weigh(const Attention& p, const Rows2& rows, i32 key,
                                      f32 (&s)[kKeys / 2], f32 (&most)[2], f32 (&sum)[2],
                                      f32 (&kept)[2]) {
  const int lane = threadIdx.x % 32;
  const bool whole = rows.first <= key && rows.last >= key + kKeys;
  if (!PLAIN || !whole)
#pragma unroll
    for (int i = 0; i < kKeys / 2; ++i) {
      const int h = i / 2 % 2;
      const i32 c = key + i / 4 * 8 + lane % 4 * 2 + i % 2;
      const bool allowed = whole || (c >= rows.limits[h].first && c < rows.limits[h].last);
#if PLAIN
      if (!allowed) s[i] = -infinity(0.f);
#else
      f32 capped;
      s[i] = allowed ? score(p, s[i], rows.mask[h], c, capped) : -infinity(0.f);
#endif
    }
  const f32 factor = (PLAIN ? (f32)p.scale : 1.f) * kLog2E;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    f32 now = most[h];
#pragma unroll
    for (int i = 0; i < kKeys / 2; i += 4) now = fmaxf(now, fmaxf(s[i + h * 2], s[i + h * 2 + 1]));
    now = fmaxf(now, __shfl_xor_sync(~0u, now, 1));
    now = fmaxf(now, __shfl_xor_sync(~0u, now, 2));
    const RowMax next = follow_max<(bool)PLAIN>(most[h], now, factor);
    most[h] = next.most, kept[h] = next.kept;
    f32 part[2] = {};
#pragma unroll
    for (int i = 0; i < kKeys / 2; i += 4)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        f32& x = s[i + h * 2 + e];
        x = weight_of<(bool)PLAIN>(x, next.base, factor);
        part[e] += x;
      }
    sum[h] = sum[h] * kept[h] + (part[0] + part[1]);
  }
}

// The weights as a left operand, and what their rounding lost.
template <bool FINE>
__device__ __forceinline__ void round_weights(const f32 (&s)[kKeys / 2], u32 (&w)[kKeys / 16][4],
                                              u32 (&rest)[kKeys / 16][4]) {
#pragma unroll
  for (int i = 0; i < kKeys / 4; ++i) {
    const u32 both = pack(s[i * 2], s[i * 2 + 1]);
    w[i / 4][i % 4] = both;
    if (FINE) rest[i / 4][i % 4] = pack_rest(both, s[i * 2], s[i * 2 + 1]);
  }
  settle(w);
  if (FINE) settle(rest);
}

// FINE: the values are summed with weights of twice the digits.
template <bool FINE>
__device__ __forceinline__ void attend(const Attention& p, const Head& head, const Limits& all,
                                       i32 r0, u32 smem) {
  constexpr u32 kQBytes = kRows * DP * 2, kKBytes = kKeys * DP * 2, kVBytes = kKeys * VP * 2;
  const u32 qs = smem, ks = qs + kQBytes, vs = ks + kStages * kKBytes,
            barrier = vs + kStages * kVBytes;
  const i32 rows = p.q_len * p.group, tiles = (max(all.last - all.first, 0) + kKeys - 1) / kKeys;
  const int group = threadIdx.x / 128, lane = threadIdx.x % 32;
  KeyRows<kKeys, DP, kThreads> k_rows(head, p.k, p.k_strides, all.first, all.last, p.dim);
  KeyRows<kKeys, VP, kThreads> v_rows(head, p.v, p.v_strides, all.first, all.last, p.v_dim);
  const auto load_k = [&](int tile) {
    if (tile < tiles) k_rows.load(ks + tile % kStages * kKBytes);
  };
  const auto load_v = [&](int tile) {
    if (tile < tiles) v_rows.load(vs + tile % kStages * kVBytes);
  };
  QueryRows<kRows, DP, kThreads>(p, head, p.q, p.q_strides, r0, p.dim).load(qs);
  load_k(0);
  copy_commit();
  load_v(0);
  load_k(1);
  copy_commit();
  Arrival arrival(barrier, kThreads);

  i32 row[2];
  Rows2 facts;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    row[h] = r0 + threadIdx.x / 32 * 16 + h * 8 + lane / 4;
    const RowPlace r = head.row(p, row[h]);
    const bool real = row[h] < rows;
    // A row that is none takes what it finds, so that it makes no tile a special one.
    facts.limits[h] =
        real ? limits_of(p, head.batch, r.step) : Limits{0, MASK ? 0 : p.k_len + kKeys};
    facts.mask[h] = real ? mask_row_of(p, head, r) : (const T*)nullptr;
  }
  facts.first = __reduce_max_sync(~0u, max(facts.limits[0].first, facts.limits[1].first));
  facts.last = __reduce_min_sync(~0u, min(facts.limits[0].last, facts.limits[1].last));

  f32 s[kKeys / 2], o[VP / 2], most[2] = {-infinity(0.f), -infinity(0.f)}, sum[2] = {}, kept[2];
  u32 weights[kKeys / 16][4], rest[kKeys / 16][4];
#pragma unroll
  for (int i = 0; i < VP / 2; ++i) o[i] = 0;
  settle(o);
  const auto multiply_keys = [&](int tile) {
    wgmma_rows<DP, kRows, T>(s, qs, group * 64, ks + tile % kStages * kKBytes);
    wgmma_commit();
  };
  const auto add_values = [&](int tile) {
    wgmma_sums<kKeys, T>(o, weights, vs + tile % kStages * kVBytes);
    if (FINE) wgmma_sums<kKeys, T>(o, rest, vs + tile % kStages * kVBytes);
    wgmma_commit();
  };
  if (tiles > 0) {
    arrival.arrive<1>();
    arrival.wait();
    follow(group);
    wgmma_fence();
    multiply_keys(0);
    wgmma_wait<0>();
    go_on(group);
    settle(s);
    weigh(p, facts, all.first, s, most, sum, kept);
    round_weights<FINE>(s, weights, rest);
    arrival.arrive<0>();
    for (int tile = 0; tile < tiles; ++tile) {
      arrival.wait();
      load_v(tile + 1);
      load_k(tile + 2);
      copy_commit();
      if (tile + 1 == tiles) break;
      settle(s);
      settle(o);
      wgmma_fence();
      multiply_keys(tile + 1);
      add_values(tile);
      wgmma_wait<1>();
      settle(s);
      weigh(p, facts, all.first + (tile + 1) * kKeys, s, most, sum, kept);
      wait_behind(sum[0] + sum[1]);
      arrival.arrive<0>();
      wgmma_wait<0>();
      settle(o);
      if (__any_sync(~0u, kept[0] != 1 || kept[1] != 1))
#pragma unroll
        for (int i = 0; i < VP / 2; ++i) o[i] *= kept[i / 2 % 2];
      round_weights<FINE>(s, weights, rest);
    }
    settle(o);
    wgmma_fence();
    add_values(tiles - 1);
    wgmma_wait<0>();
    settle(o);
  }
  copy_wait<0>();
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    sum[h] += __shfl_xor_sync(~0u, sum[h], 1);
    sum[h] += __shfl_xor_sync(~0u, sum[h], 2);
    if (row[h] >= rows) continue;
    const RowPlace r = head.row(p, row[h]);
    const bool dead = sum[h] == 0;
    T* to = (T*)p.o + at(p.o_strides, head.batch, r.head, r.step);
#pragma unroll
    for (int j = 0; j < VP / 8; ++j) {
      const int col = j * 8 + lane % 4 * 2;
      const T x = narrow<T>(dead ? 0.f : o[j * 4 + h * 2] / sum[h]),
              y = narrow<T>(dead ? 0.f : o[j * 4 + h * 2 + 1] / sum[h]);
      if (col < p.v_dim) store(to + col, Vec<T, 2>{x, y});
    }
    const f32 base = PLAIN ? most[h] * (f32)p.scale : most[h];
    if (p.lse && lane % 4 == 0)
      ((f32*)p.lse)[row_index(p, head, r)] =
          dead ? -infinity(0.f) : (most[h] == -infinity(0.f) ? 0.f : base) + logf(sum[h]);
  }
}

extern "C" __global__ void __launch_bounds__(kThreads, kBlocks) attention(const Attention p) {
  extern __shared__ __align__(1024) u8 smem[];
  const i32 rows = p.q_len * p.group, tiles = (rows + kRows - 1) / kRows;
  // With a causal mask the last rows have most to do.
  const i32 r0 = (tiles - 1 - (i32)blockIdx.x % tiles) * kRows;
  const Head head(p, blockIdx.x / tiles);
  const i32 end = min(r0 + kRows, rows);
  const Limits all = limits_of_rows(p, head, r0, end);
#if PLAIN
  if (!is_fine(p, head, r0, end))
    return attend<false>(p, head, all, r0, shared_address(smem));
#endif  // else one text is enough: it takes long to compile
  attend<true>(p, head, all, r0, shared_address(smem));
}
#endif
