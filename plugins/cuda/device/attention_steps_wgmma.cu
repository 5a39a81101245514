// SPDX-License-Identifier: Apache-2.0
// attention_steps.cu for many query rows on sm_90, with the same bits: wgmma multiplies, and the copy engine
// brings keys and values. Each of the two consumer warpgroups of a block takes 64 query rows through the
// keys. It starts the product of the next segment's keys before it sums the values of the last, and makes
// weights meanwhile.
// Defines: as attention_bulk.cu.
//variant: TT=bf16 TS=f32 MASK=0 DP=128 VP=128 GROUPS=2 KEYS=64 STAGES=3 BLOCKS=1 PRODUCER=1 PLAIN=0 KV_LEN=i64 PAST_LEN=i64 BLOCK_TABLE=i64 PIECE=32
//variant: TT=f16 TS=f32 MASK=0 DP=64 VP=64 GROUPS=2 KEYS=64 STAGES=4 BLOCKS=1 PRODUCER=1 PLAIN=0 KV_LEN=i32 PAST_LEN=i64 SOFTCAP=1
//entry: attention_steps_wgmma = attention(Attention, AttentionWork)
#define TILE_STEP KEYS
#include "attention_bulk.cuh"
#include "attention_spans.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
static_assert(KEYS == kSegment && PRODUCER && !PLAIN, "");

// Maxima of the scores of both rows of a quad, and sums of their weights.
struct RowStats {
  f32 top[2] = {-infinity(0.f), -infinity(0.f)}, total[2] = {};
};
// Products with the keys of a segment become weights.
__device__ __forceinline__ void weigh(const Attention& p, const BulkRows& rows, i32 key,
                                      f32 (&s)[KEYS / 2], RowStats& stats) {
  const bool all = rows.first <= key && rows.last >= key + KEYS;
  stats = RowStats();
#pragma unroll
  for (int i = 0; i < KEYS / 2; ++i) {
    const int h = i / 2 % 2, c = i / 4 * 8 + i % 2;
    // Without short-circuit: selects, not branches.
    const bool seen = all | ((c >= rows.begins[h] - key) & (c < rows.ends[h] - key));
    s[i] = seen ? fixed_score(p, s[i]) : -infinity(0.f);
    stats.top[h] = fmaxf(stats.top[h], s[i]);
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    stats.top[h] = fmaxf(stats.top[h], __shfl_xor_sync(~0u, stats.top[h], 1));
    stats.top[h] = fmaxf(stats.top[h], __shfl_xor_sync(~0u, stats.top[h], 2));
    const f32 base = base_of(stats.top[h]);
#pragma unroll
    for (int i = h * 2; i < KEYS / 2; i += 4) {
      s[i] = fixed_weight(s[i], base), s[i + 1] = fixed_weight(s[i + 1], base);
      stats.total[h] += s[i] + s[i + 1];
    }
    stats.total[h] = quad_sum(stats.total[h]);
  }
}
// of(i): element i of the sums so far.
template <class Of>
__device__ __forceinline__ void join_rows(Of of, RowStats& stats, const f32 (&now)[VP / 2],
                                          const RowStats& of_now) {
  const Joint joint[2] = {{stats.top[0], of_now.top[0]}, {stats.top[1], of_now.top[1]}};
#pragma unroll
  for (int i = 0; i < VP / 2; ++i) {
    f32& sum = of(i);
    sum = joint[i / 2 % 2].of(sum, now[i]);
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    stats.total[h] = joint[h].of(stats.total[h], of_now.total[h]);
    stats.top[h] = joint[h].top;
  }
}

// A consumer. before: in shared memory, the thread's sums of earlier spans, kConsumers apart.
constexpr int kConsumers = GROUPS * 128;
__device__ __forceinline__ void consume(const Attention& p, const Work& w, const Layout& at,
                                        const Task& task, int group, f32* before) {
  const int lane = threadIdx.x % 32;
  const i32 first = task.all.first, last = task.all.last;
  const BulkRows rows(p, task);
  f32 s[KEYS / 2], now[VP / 2], span[VP / 2] = {};
  u32 weights[KEYS / 16][4], rest[KEYS / 16][4];
  RowStats of_now, of_span, of_all;
  const Operands operands(at, group);
  Stage stage;
  const auto add_values = [&] {
    const u64 values = operands.values(stage);
#pragma unroll
    for (int k = 0; k < KEYS; k += 16) {
      wgmma(now, weights[k / 16], values + (k * 128 >> 4), T{});
      wgmma(now, rest[k / 16], values + (k * 128 >> 4), T{});
    }
    wgmma_commit();
  };
  const auto clear_sums = [&] {
#pragma unroll
    for (int i = 0; i < VP / 2; ++i) now[i] = 0;
    settle(now);
  };
  const auto round_weights = [&] {
#pragma unroll
    for (int k = 0; k < KEYS / 16; ++k) round_sixteen<true>(s + k * 8, weights[k], rest[k]);
    settle(weights), settle(rest);
  };
  // Of the tile at `key`. Values that no row attends to may hold anything, and zero times infinity is no zero.
  const auto clear_unseen = [&](i32 key) {
    const i32 seen = task.reach.of_step(step_of(p, task.r0)).first;
    if (seen > key)
      clear_values(at.v + stage.before().slot * kVBytes, 0, min(seen - key, KEYS), group);
  };
  // The sums of the segment in front of `next` join the span; behind its last one, the span joins all.
  const auto join = [&](i32 next, const RowStats& of_segment) {
    join_rows([&](int i) -> f32& { return span[i]; }, of_span, now, of_segment);
    if (next % kSpan != 0 && next < last) return;
    join_rows([&](int i) -> f32& { return before[i * kConsumers]; }, of_all, span, of_span);
#pragma unroll
    for (int i = 0; i < VP / 2; ++i) span[i] = 0;
    of_span = RowStats();
  };
#pragma unroll
  for (int i = 0; i < VP / 2; ++i) before[i * kConsumers] = 0;
  barrier_wait(at.q_full, 0);
  if (first < last) {
    await_keys(at, stage);
    await_turn(group);
    wgmma_fence();
    operands.multiply_keys(s, stage);
    end_turn(group);
    wgmma_wait<0>();
    settle(s);
    release(lane, at.k_empty + stage.slot * 8);
    stage.next();
    weigh(p, rows, first, s, of_now);
    round_weights();
    i32 key = first + KEYS;
    for (; key < last; key += KEYS) {
      await_keys(at, stage);
      await_turn(group);
      settle(s);
      clear_sums();
      wgmma_fence();
      operands.multiply_keys(s, stage);
      await_values(at, stage);
      clear_unseen(key - KEYS);
      add_values();
      end_turn(group);
      wgmma_wait<1>();
      settle(s);
      release(lane, at.k_empty + stage.slot * 8);
      const RowStats of_segment = of_now;
      weigh(p, rows, key, s, of_now);
      wait_behind(of_now.total[0] + of_now.total[1]);
      wgmma_wait<0>();
      settle(now);
      release(lane, at.v_empty + stage.before().slot * 8);
      stage.next();
      join(key, of_segment);
      round_weights();
    }
    await_values(at, stage);
    clear_unseen(key - KEYS);
    const i32 seen = task.reach.of_step(p.q_len - 1).last;
    if (seen < key && seen < p.k_len)
      clear_values(at.v + stage.before().slot * kVBytes, seen - (key - KEYS), KEYS, group);
    clear_sums();
    wgmma_fence();
    add_values();
    wgmma_wait<0>();
    settle(now);
    join(key, of_now);
  }
  const Task again(p, w);  // computed again: nothing of it stays in registers meanwhile
  const Head head(p, again.index);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const i32 row = rows.row + h * 8, step = step_of(p, row);
    const RowPlace r = {head.k_head * p.group + row - step * p.group, step};
    const f32 sum = of_all.total[h];
    const bool real = row < again.end;
    store_row(p, head, r, real, [&](int eight) {
      const f32* const x = before + (eight * 4 + h * 2) * kConsumers;
      return sum == 0 ? 0 : pack(x[0] / sum, x[kConsumers] / sum);
    });
    if (lane % 4 == 0 && real) store_lse(p, head, r, of_all.top[h], sum);
  }
}
#endif

extern "C" __global__ void __launch_bounds__(kThreads, BLOCKS)
    attention(const Attention p, const __grid_constant__ Work w) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  await_earlier();
  let_next_begin();
  extern __shared__ __align__(1024) u8 smem[];
  const Layout at(shared_address(smem));
  const Task task(p, w);
#ifdef BLOCK_TABLE
  if (task.r0 == 0 && task.index % p.k_heads == 0) check_blocks(p, task.index / p.k_heads);
#endif
  if (threadIdx.x == 0) make_barriers(at);
  __syncthreads();
  const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);
  if (group == GROUPS) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kOfProducer));
    if (threadIdx.x == GROUPS * 128) produce(p, w, at, task);
    return;
  }
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kOfConsumer));
  if (group == GROUPS - 1) end_turn(group);
  constexpr u32 kOfTiles = kQBytes + STAGES * (kKBytes + kVBytes);
  static_assert((1 + 4 * STAGES) * 8 + 8 <= kBarrierBytes, "");
  f32* const before = reinterpret_cast<f32*>(smem + kOfTiles + kBarrierBytes) + threadIdx.x;
  consume(p, w, at, task, group, before);
#endif
}
