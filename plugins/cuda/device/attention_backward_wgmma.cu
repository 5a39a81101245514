// SPDX-License-Identifier: Apache-2.0
// Gradients of attention on sm_90 with wgmma. `delta` computes facts about query rows
// (attention_sums.cu corrects them if lse is large); `queries` computes dq, a block takes 128 query
// rows through the keys, 64 at a time; `keys` computes dk and dv, a block takes 128 keys through the
// rows, 64 at a time. Each sum has one writer and a fixed order. The products of a tile are in
// flight while weights and slopes of the tile before are made.
// Defines: as attention.cuh; DP and VP (dim and v_dim, padded to 64 or 128), PLAIN (1: scores are
// products times a positive scale, without mask or cap).
//variant: TT=bf16 TS=f32 MASK=0 DP=128 VP=128 PLAIN=1
//variant: TT=f16 TS=f32 MASK=2 DP=64 VP=64 PLAIN=0 SOFTCAP=1 KV_LEN=i32 PAST_LEN=i64
#include "attention_facts.cuh"
#include "attention_wgmma.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
constexpr int kThreads = 256, kSide = 128, kThrough = 64, kStages = 4;
constexpr u32 kStageBytes = kThrough * (DP + VP) * 2, kSideBytes = kSide * (DP + VP) * 2;

extern "C" __global__ void __launch_bounds__(128) delta(const Attention p) {
  constexpr int kLanes = VP / 8, kRowsPerBlock = 128 / kLanes;
  const i64 rows = (i64)p.q_len * p.group,
            index = (i64)blockIdx.x * kRowsPerBlock + threadIdx.x / kLanes;
  const bool real = index < rows * p.batch * p.k_heads;
  const Head head(p, real ? (i32)(index / rows) : 0);
  const RowPlace r = head.row(p, real ? (i32)(index % rows) : 0);
  const int col = threadIdx.x % kLanes * 8;
  f32 sum = 0;
  if (real && col < p.v_dim) {
    const i64 from = at(p.o_strides, head.batch, r.head, r.step) + col;
    const Vec<T, 8> x = load<T, 8>((const T*)p.dout + from), y = load<T, 8>((const T*)p.o + from);
#pragma unroll
    for (int e = 0; e < 8; ++e) sum += widen(x.v[e]) * widen(y.v[e]);
  }
#pragma unroll
  for (int lanes = kLanes / 2; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
  if (!real || col != 0) return;
  facts_of(p, 0)[index] = row_facts(((const f32*)p.lse_in)[row_index(p, head, r)], sum);
}

// The weight of an element from its product q·k, if the row has factor 1 and scores are PLAIN.
__device__ __forceinline__ f32 plain_weight(const Attention& p, const RowFacts& row, f32 qk) {
  return exp2_of(__fmaf_rn(qk, (f32)p.scale * kLog2E, row.base));
}
// The same in any row: a large score and the shift cancel before anything is rounded.
__device__ __forceinline__ f32 weight_of(const Attention& p, const RowFacts& row, const T* mask,
                                         i32 key, f32 qk, f32& capped) {
  return exp2_of((score(p, qk, mask, key, capped) - row.shift) * kLog2E) * row.factor;
}
__device__ __forceinline__ void round_all(const f32 (&s)[kThrough / 2],
                                          u32 (&w)[kThrough / 16][4]) {
#pragma unroll
  for (int k = 0; k < kThrough / 16; ++k) round_sixteen<false>(s + k * 8, w[k], w[k]);
  settle(w);
}

// Stores the thread's part of the row h (of two) of sums, times `factor`.
template <int N>
__device__ __forceinline__ void store_sums(T* to, const f32 (&c)[N], int h, int cols, f32 factor) {
#pragma unroll
  for (int j = 0; j < N / 4; ++j) {
    const int col = j * 8 + threadIdx.x % 4 * 2;
    if (col < cols)
      store(to + col, Vec<T, 2>{narrow<T>(c[j * 4 + h * 2] * factor),
                                narrow<T>(c[j * 4 + h * 2 + 1] * factor)});
  }
}
template <int N>
__device__ __forceinline__ void clear(f32 (&c)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) c[i] = 0;
  settle(c);  // before any product is in flight
}

extern "C" __global__ void __launch_bounds__(kThreads, 1) queries(const Attention p) {
  extern __shared__ __align__(1024) u8 smem[];
  const u32 qs = shared_address(smem), dos = qs + kSide * DP * 2, stages = qs + kSideBytes;
  const i32 rows = p.q_len * p.group, row_tiles = (rows + kSide - 1) / kSide;
  // Blocks of late rows start first: with a causal mask these have the most keys.
  const i32 r0 = (row_tiles - 1 - (i32)blockIdx.x % row_tiles) * kSide;
  const Head head(p, blockIdx.x / row_tiles);
  const int group = threadIdx.x / 128, lane = threadIdx.x % 32;
  const Limits all = limits_of_rows(p, head, r0, min(r0 + kSide, rows));
  const i32 tiles = (max(all.last - all.first, 0) + kThrough - 1) / kThrough;
  const auto stage = [&](i32 tile) { return stages + tile % kStages * kStageBytes; };
  KeyRows<kThrough, DP, kThreads> k_rows(head, p.k, p.k_strides, all.first, all.last, p.dim);
  KeyRows<kThrough, VP, kThreads> v_rows(head, p.v, p.v_strides, all.first, all.last, p.v_dim);
  const auto load = [&](i32 tile) {
    if (tile < tiles) {
      k_rows.load(stage(tile));
      v_rows.load(stage(tile) + kThrough * DP * 2);
    }
    copy_commit();
  };
  QueryRows<kSide, DP, kThreads>(p, head, p.q, p.q_strides, r0, p.dim).load(qs);
  QueryRows<kSide, VP, kThreads>(p, head, p.dout, p.o_strides, r0, p.v_dim).load(dos);
  load(0);
  Arrival arrival(stages + kStages * kStageBytes, kThreads);
  i32 row[2];
  RowFacts facts[2];
  Limits limits[2];
  const T* mask[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    row[h] = r0 + threadIdx.x / 32 * 16 + h * 8 + lane / 4;
    const RowPlace r = head.row(p, row[h]);
    const bool real = row[h] < rows;
    // A row that does not exist makes no tile a special one: its weights are 0.
    facts[h] = real ? facts_of(p, blockIdx.x / row_tiles)[row[h]] : dead_row();
    limits[h] = real ? limits_of(p, head.batch, r.step) : Limits{0, MASK ? 0 : p.k_len + kThrough};
    mask[h] = real ? mask_row_of(p, head, r) : (const T*)nullptr;
  }
  const i32 first = __reduce_max_sync(~0u, max(limits[0].first, limits[1].first)),
            last = __reduce_min_sync(~0u, min(limits[0].last, limits[1].last));
  const bool plain = PLAIN && __all_sync(~0u, is_plain(facts[0]) && is_plain(facts[1]));
  f32 dq[DP / 2], s[kThrough / 2], ds[kThrough / 2];
  u32 slopes[kThrough / 16][4];
#ifdef SOFTCAP
  f32 capped[kThrough / 2];
#else
  f32 capped[1];
#endif
  clear(dq);
  const auto multiply = [&](i32 tile) {
    wgmma_rows<DP, kSide, T>(s, qs, group * 64, stage(tile));
    wgmma_commit();
    wgmma_rows<VP, kSide, T>(ds, dos, group * 64, stage(tile) + kThrough * DP * 2);
    wgmma_commit();
  };
  const auto sum = [&](i32 tile) {
    wgmma_sums<kThrough, T>(dq, slopes, stage(tile));
    wgmma_commit();
  };
  const auto weigh_all = [&](i32 tile) {
    settle(s);
    const i32 key = all.first + tile * kThrough;
    const bool whole = first <= key && last >= key + kThrough;
    if (plain && whole) {
#pragma unroll
      for (int i = 0; i < kThrough / 2; ++i) s[i] = plain_weight(p, facts[i / 2 % 2], s[i]);
      return;
    }
    const auto weigh_these = [&](auto allowed) {
#pragma unroll
      for (int i = 0; i < kThrough / 2; ++i) {
        const int h = i / 2 % 2;
        const i32 c = key + i / 4 * 8 + lane % 4 * 2 + i % 2;
        f32& cap = capped[i % (sizeof capped / 4)];
        cap = 0;  // no weight, no slope
        s[i] = allowed(h, c) ? weight_of(p, facts[h], mask[h], c, s[i], cap) : 0.f;
      }
    };
    if (!PLAIN && whole)
      weigh_these([](int, i32) { return true; });
    else
      weigh_these([&](int h, i32 c) { return c >= limits[h].first && c < limits[h].last; });
  };
  const auto slope_all = [&] {
    settle(ds);
#pragma unroll
    for (int i = 0; i < kThrough / 2; ++i)
      ds[i] = slope_of(p, facts[i / 2 % 2].delta, s[i], ds[i], capped[i % (sizeof capped / 4)]);
  };
  if (tiles > 0) {
    arrival.arrive<0>();
    arrival.wait();
    load(1);
    follow(group);
    wgmma_fence();
    multiply(0);
    wgmma_wait<0>();
    go_on(group);
    weigh_all(0);
    slope_all();
    round_all(ds, slopes);
    arrival.arrive<0>();
    for (i32 tile = 0; tile + 1 < tiles; ++tile) {
      arrival.wait();
      load(tile + 2);
      settle(dq);
      wgmma_fence();
      multiply(tile + 1);
      sum(tile);
      wgmma_wait<2>();
      weigh_all(tile + 1);
      wait_behind(s);
      wgmma_wait<1>();
      slope_all();
      wait_behind(ds);
      arrival.arrive<0>();
      wgmma_wait<0>();
      settle(dq);
      round_all(ds, slopes);
    }
    wgmma_fence();
    sum(tiles - 1);
  }
  wgmma_wait<0>();
  settle(dq);
  copy_wait<0>();
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    if (row[h] >= rows) continue;
    if (is_dead(facts[h])) {
#pragma unroll
      for (int i = h * 2; i < DP / 2; i += 4) dq[i] = dq[i + 1] = 0;
    }
    const RowPlace place = head.row(p, row[h]);
    store_sums((T*)p.dq + at(p.q_strides, head.batch, place.head, place.step), dq, h, p.dim,
               (f32)p.scale);
  }
}

// The first of [begin, end) for which `is` holds: false before it, true from there on.
template <class Is>
__device__ inline i32 first_that(i32 begin, i32 end, Is is) {
  while (begin < end) {
    const i32 middle = begin + (end - begin) / 2;
    if (is(middle))
      end = middle;
    else
      begin = middle + 1;
  }
  return begin;
}
// Facts about the rows of a tile of which not all rows attend to all keys.
struct RowLimits {
  Limits limits;
  const T* mask;
};

extern "C" __global__ void __launch_bounds__(kThreads, 1) keys(const Attention p) {
  extern __shared__ __align__(1024) u8 smem[];
  const u32 ks = shared_address(smem), vs = ks + kSide * DP * 2, stages = ks + kSideBytes;
  RowFacts* all_facts = (RowFacts*)(smem + kSideBytes + kStages * kStageBytes);
  RowLimits* all_limits = (RowLimits*)(all_facts + kStages * kThrough);
  const i32 rows = p.q_len * p.group, key_tiles = (p.k_len + kSide - 1) / kSide,
            key0 = (i32)blockIdx.x % key_tiles * kSide,
            row_tiles = (rows + kThrough - 1) / kThrough;
  const Head head(p, blockIdx.x / key_tiles);
  const int group = threadIdx.x / 128, lane = threadIdx.x % 32;
  // No row attends to keys beyond the limit of the last step, and these may hold anything.
  const i32 end = rows > 0 ? limits_of_rows(p, head, 0, rows).last : 0;
  const auto limits_of_tile = [&](i32 tile) {
    return limits_of_rows(p, head, tile * kThrough, min((tile + 1) * kThrough, rows));
  };
  // Both limits ascend, so the tiles with a row that attends to any of the keys are adjacent, and
  // so are the tiles whose rows all attend to all of them.
  const i32 begin = first_that(0, row_tiles, [&](i32 t) { return limits_of_tile(t).last > key0; }),
            behind = first_that(begin, row_tiles,
                                [&](i32 t) { return limits_of_tile(t).first >= key0 + kSide; }),
            whole_begin =
                first_that(begin, behind,
                           [&](i32 t) {
                             const i32 r = t * kThrough;
                             return limits_of_rows(p, head, r, r + 1).last >= key0 + kSide;
                           }),
            whole_behind = first_that(whole_begin, min(behind, rows / kThrough), [&](i32 t) {
              const i32 r = (t + 1) * kThrough;
              return limits_of_rows(p, head, r - 1, r).first > key0;
            });
  bool plain = false;  // not known yet
  const auto is_whole = [&](i32 tile) {
    return plain && tile >= whole_begin && tile < whole_behind;
  };
  const auto stage = [&](i32 tile) { return stages + tile % kStages * kStageBytes; };
  QueryRows<kThrough, DP, kThreads> q_rows(p, head, p.q, p.q_strides, begin * kThrough, p.dim);
  QueryRows<kThrough, VP, kThreads> dout_rows(p, head, p.dout, p.o_strides, begin * kThrough,
                                              p.v_dim);
  const auto load = [&](i32 tile) {
    if (tile < behind) {
      q_rows.load(stage(tile));
      dout_rows.load(stage(tile) + kThrough * DP * 2);
      const i32 r = tile * kThrough + threadIdx.x;
      if (threadIdx.x < kThrough) {
        const int slot = tile % kStages * kThrough + threadIdx.x;
        // Zeros for rows that do not exist: their weights are multiplied by zeros.
        const RowFacts* from = facts_of(p, blockIdx.x / key_tiles) + r;
        asm volatile(
            "cp.async.ca.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(all_facts + slot)),
            "l"(from), "r"(r < rows ? 16 : 0)
            : "memory");
        if (!is_whole(tile)) {
          const RowPlace place = head.row(p, r);
          all_limits[slot] = r < rows ? RowLimits{limits_of(p, head.batch, place.step),
                                                  mask_row_of(p, head, place)}
                                      : RowLimits{{0, 0}, nullptr};
        }
      }
    }
    copy_commit();
  };
  KeyRows<kSide, DP, kThreads>(head, p.k, p.k_strides, key0, end, p.dim).load(ks);
  KeyRows<kSide, VP, kThreads>(head, p.v, p.v_strides, key0, end, p.v_dim).load(vs);
  load(begin);
  i32 flags = 0;
  for (i32 tile = begin + (i32)threadIdx.x; tile < behind; tile += kThreads)
    flags |= tile_flags(p, blockIdx.x / key_tiles)[tile];
#if PLAIN
  plain = !__syncthreads_or(flags & kCorrected);
#endif
  const bool has_dead = __syncthreads_or(flags & kHasDead);
  Arrival arrival(shared_address(all_limits + kStages * kThrough), kThreads);
  // The thread's part of a tile is there. Its rows without keys give nothing to dv, even if their
  // dout is NaN.
  const auto arrive = [&](i32 tile) {
    if (has_dead && tile < behind) {
      copy_wait<0>();
      const RowFacts* facts = facts_of(p, blockIdx.x / key_tiles);
      TileCopy<kThrough, VP, kThreads>::clear(stage(tile) + kThrough * DP * 2, [&](int row) {
        const i32 r = tile * kThrough + row;
        return r < rows && is_dead(facts[r]);
      });
    }
    arrival.arrive<0>();
  };
  f32 dk[DP / 2], dv[VP / 2], s[kThrough / 2], ds[kThrough / 2];  // keys down, rows across
  u32 weights[kThrough / 16][4], slopes[kThrough / 16][4];
#ifdef SOFTCAP
  f32 capped[kThrough / 2];
#else
  f32 capped[1];
#endif
  clear(dk);
  clear(dv);
  const i32 key = key0 + threadIdx.x / 32 * 16 + lane / 4;  // and the key 8 further
  const auto multiply = [&](i32 tile) {
    wgmma_rows<DP, kSide, T>(s, ks, group * 64, stage(tile));
    wgmma_commit();
    wgmma_rows<VP, kSide, T>(ds, vs, group * 64, stage(tile) + kThrough * DP * 2);
    wgmma_commit();
  };
  const auto sum_values = [&](i32 tile) {
    wgmma_sums<kThrough, T>(dv, weights, stage(tile) + kThrough * DP * 2);
    wgmma_commit();
  };
  const auto sum_keys = [&](i32 tile) {
    wgmma_sums<kThrough, T>(dk, slopes, stage(tile));
    wgmma_commit();
  };
  const auto weigh_all = [&](i32 tile) {
    settle(s);
    const RowFacts* facts = all_facts + tile % kStages * kThrough + lane % 4 * 2;
    const RowLimits* limits = all_limits + tile % kStages * kThrough + lane % 4 * 2;
    if (is_whole(tile))
#pragma unroll
      for (int i = 0; i < kThrough / 2; ++i)
        s[i] = plain_weight(p, facts[i / 4 * 8 + i % 2], s[i]);
    else
#pragma unroll
      for (int i = 0; i < kThrough / 2; ++i) {
        const int r = i / 4 * 8 + i % 2;
        const i32 c = key + i / 2 % 2 * 8;
        const Limits l = limits[r].limits;
        f32& cap = capped[i % (sizeof capped / 4)];
        cap = 0;  // no weight, no slope
        s[i] = (c >= l.first) & (c < l.last)
                   ? weight_of(p, facts[r], limits[r].mask, c, s[i], cap)
                   : 0.f;
      }
  };
  // From the rounded weights: the unrounded ones would spill.
  const auto slope_all = [&](i32 tile) {
    settle(ds);
    const RowFacts* facts = all_facts + tile % kStages * kThrough + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < kThrough / 2; ++i)
      ds[i] = slope_of(p, facts[i / 4 * 8 + i % 2].delta,
                       widen(T{(u16)(weights[i / 8][i / 2 % 4] >> i % 2 * 16)}), ds[i],
                       capped[i % (sizeof capped / 4)]);
    if (has_dead)  // dout·v of a row without keys may be NaN
#pragma unroll
      for (int i = 0; i < kThrough / 2; ++i)
        if (is_dead(facts[i / 4 * 8 + i % 2])) ds[i] = 0;
  };
  if (begin < behind) {
    arrive(begin);
    arrival.wait();
    load(begin + 1);
    follow(group);
    wgmma_fence();
    multiply(begin);
    wgmma_wait<1>();
    go_on(group);
    weigh_all(begin);
    round_all(s, weights);
    wgmma_fence();
    sum_values(begin);
    wgmma_wait<1>();
    slope_all(begin);
    wgmma_wait<0>();
    settle(dv);
    round_all(ds, slopes);
    arrive(begin + 1);
    for (i32 tile = begin; tile + 1 < behind; ++tile) {
      arrival.wait();
      load(tile + 2);
      settle(dk);
      settle(dv);
      wgmma_fence();
      multiply(tile + 1);
      sum_keys(tile);
      wgmma_wait<2>();
      weigh_all(tile + 1);
      round_all(s, weights);
      wgmma_fence();
      sum_values(tile + 1);
      wgmma_wait<2>();
      slope_all(tile + 1);
      wait_behind(ds);
      arrive(tile + 2);
      wgmma_wait<0>();
      settle(dk);
      settle(dv);
      round_all(ds, slopes);
    }
    wgmma_fence();
    sum_keys(behind - 1);
  }
  wgmma_wait<0>();
  settle(dk);
  settle(dv);
  copy_wait<0>();
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const i32 c = key + h * 8;
    if (c >= p.k_len) continue;
    store_sums((T*)p.dk + at(p.k_strides, head.batch, head.k_head, c), dk, h, p.dim, (f32)p.scale);
    store_sums((T*)p.dv + at(p.v_strides, head.batch, head.k_head, c), dv, h, p.v_dim, 1.f);
  }
}
#endif
