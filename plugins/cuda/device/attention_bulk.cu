// SPDX-License-Identifier: Apache-2.0
// Attention forward of halves on sm_90 with wgmma; the copy engine brings keys and values. Each of
// the GROUPS consumer warpgroups of a block takes 64 query rows through the keys, KEYS at a time.
// It starts the product of the next keys before it sums the values of the last, and makes weights
// meanwhile.
// Defines: as attention.cuh; DP and VP (dim and v_dim, padded to 64 or 128); GROUPS, KEYS, STAGES
// (of the pipeline), BLOCKS (on a multiprocessor); PLAIN (1: scores are products times a positive
// scale, without mask or cap); COLUMNS (defined: the mask has one number for each key of a batch, in
// aligned pairs, and there is no cap); PIECE (with BLOCK_TABLE: keys of a copy, a divisor of KEYS and of the keys of
// a block); UNSEEN (1: there may be keys that no row attends to; a define, because
// their code would slow down narrow heads); PRODUCER (1: another warpgroup starts the copies, and the
// consumers take turns at the tensor cores, so that one makes weights while the other multiplies; 0:
// a consumer thread starts the copies, for narrow heads, where several blocks hide each other's waits
// and need the registers).
//variant: TT=bf16 TS=f32 MASK=0 DP=128 VP=128 GROUPS=2 KEYS=128 STAGES=2 BLOCKS=1 PRODUCER=1 PLAIN=1 UNSEEN=0
//variant: TT=f16 TS=f32 MASK=0 DP=64 VP=64 GROUPS=2 KEYS=64 STAGES=4 BLOCKS=2 PRODUCER=0 PLAIN=1 UNSEEN=1 KV_LEN=i64 PAST_LEN=i32
//variant: TT=f16 TS=f32 MASK=2 DP=128 VP=64 GROUPS=2 KEYS=128 STAGES=2 BLOCKS=1 PRODUCER=1 PLAIN=0 UNSEEN=1 SOFTCAP=1 KV_LEN=i32 PAST_LEN=i64
//variant: TT=bf16 TS=f32 MASK=1 DP=64 VP=64 GROUPS=2 KEYS=64 STAGES=4 BLOCKS=2 PRODUCER=0 PLAIN=0 UNSEEN=0
//variant: TT=f16 TS=f32 MASK=2 DP=64 VP=64 GROUPS=1 KEYS=64 STAGES=4 BLOCKS=2 PRODUCER=0 PLAIN=0 UNSEEN=0 COLUMNS=1
//variant: TT=bf16 TS=f32 MASK=0 DP=128 VP=128 GROUPS=2 KEYS=128 STAGES=2 BLOCKS=1 PRODUCER=1 PLAIN=1 UNSEEN=1 KV_LEN=i64 PAST_LEN=i64 BLOCK_TABLE=i64 PIECE=32
//variant: TT=f16 TS=f32 MASK=0 DP=64 VP=64 GROUPS=2 KEYS=64 STAGES=4 BLOCKS=2 PRODUCER=0 PLAIN=1 UNSEEN=1 KV_LEN=i64 PAST_LEN=i64 BLOCK_TABLE=i64 PIECE=32
#include "attention_bulk.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// Products q·k of the keys from `key` on become weights, in place.
__device__ __forceinline__ void weigh(const Attention& p, const Task& task, const BulkRows& rows,
                                      i32 key, f32 (&s)[KEYS / 2], f32 (&row_max)[2],
                                      f32 (&row_sum)[2], f32 (&rescale)[2]) {
#if PLAIN
  if (rows.last < key + KEYS)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const i32 end = rows.ends[h] - key;
#pragma unroll
      for (int i = h * 2; i < KEYS / 2; i += 4)
#pragma unroll
        for (int e = 0; e < 2; ++e)
          if (i / 4 * 8 + e >= end) s[i + e] = -infinity(0.f);
    }
  if (rows.first > key)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const i32 first = task.limits_of_row(p, rows.row + h * 8).first - key - quad_column(0);
#pragma unroll
      for (int i = h * 2; i < KEYS / 2; i += 4)
#pragma unroll
        for (int e = 0; e < 2; ++e)
          if (i / 4 * 8 + e < first) s[i + e] = -infinity(0.f);
    }
  softmax_step<true>(s, (f32)p.scale * kLog2E, row_max, row_sum, rescale);
#elif defined(COLUMNS)
  const f32 scale = (f32)p.scale;
#pragma unroll
  for (int i = 0; i < KEYS / 2; i += 4) {
    const i32 column = key + quad_column(i);
    Vec<T, 2> added = {};
    if (column < p.k_len) added = load<T, 2>(rows.mask[0] + column);
#pragma unroll
    for (int e = 0; e < 4; ++e) s[i + e] = s[i + e] * scale + widen(added.v[e % 2]);
  }
  if (rows.last < key + KEYS || rows.first > key)
#pragma unroll
    for (int i = 0; i < KEYS / 2; ++i) {
      const int h = i / 2 % 2, c = i / 4 * 8 + i % 2;
      if (c < rows.begins[h] - key || c >= rows.ends[h] - key) s[i] = -infinity(0.f);
    }
  softmax_step<false>(s, kLog2E, row_max, row_sum, rescale);
#else
#pragma unroll
  for (int i = 0; i < KEYS / 2; ++i) {
    const int h = i / 2 % 2, c = i / 4 * 8 + i % 2;
    f32 capped;
    s[i] = c >= rows.begins[h] - key && c < rows.ends[h] - key
               ? score(p, s[i], rows.mask[h], key + quad_column(i), capped)
               : -infinity(0.f);
  }
  softmax_step<false>(s, kLog2E, row_max, row_sum, rescale);
#endif
}

// A consumer. last: where the keys of its rows end. FEW_KEYS: weights are two halves each.
template <bool FEW_KEYS>
__device__ __forceinline__ void consume(const Attention& p, const Work& w, const Layout& at,
                                        const Task& task, int group, i32 last) {
  const int lane = threadIdx.x % 32;
  const i32 first = task.all.first;
  const BulkRows rows(p, task);
  f32 s[KEYS / 2], o[VP / 2], row_max[2] = {-infinity(0.f), -infinity(0.f)}, row_sum[2] = {},
                              rescale[2];
  u32 weights[KEYS / 16][4], rest[KEYS / 16][4];
#pragma unroll
  for (int i = 0; i < VP / 2; ++i) o[i] = 0;
  settle(o);
  const Operands operands(at, group);
  Stage stage;
  const auto add_values = [&] {
    const u64 values = operands.values(stage);
#pragma unroll
    for (int k = 0; k < KEYS; k += 16) wgmma(o, weights[k / 16], values + (k * 128 >> 4), T{});
#pragma unroll
    for (int k = 0; k < KEYS && FEW_KEYS; k += 16)
      wgmma(o, rest[k / 16], values + (k * 128 >> 4), T{});
    wgmma_commit();
  };
  const auto round_weights = [&] {
#pragma unroll
    for (int k = 0; k < KEYS / 16; ++k) round_sixteen<FEW_KEYS>(s + k * 8, weights[k], rest[k]);
    settle(weights);
    if (FEW_KEYS) settle(rest);
  };
  barrier_wait(at.q_full, 0);
  if (first < last) {
    await_keys(at, stage);
    await_turn(group);
    wgmma_fence();
    operands.multiply_keys(s, stage);
    end_turn(group);
    wgmma_wait<0>();
    settle(s);
    if (PRODUCER) release(lane, at.k_empty + stage.slot * 8);
    stage.next();
    weigh(p, task, rows, first, s, row_max, row_sum, rescale);
    round_weights();
    i32 key = first + KEYS;
    for (; key < last; key += KEYS) {
      await_keys(at, stage);
      await_turn(group);
      settle(s);
      settle(o);
      wgmma_fence();
      operands.multiply_keys(s, stage);
      await_values(at, stage);
      add_values();
      end_turn(group);
      refill(p, w, at, stage, first, key, last);
      wgmma_wait<1>();
      settle(s);
      if (PRODUCER) release(lane, at.k_empty + stage.slot * 8);
      weigh(p, task, rows, key, s, row_max, row_sum, rescale);
      wait_behind(row_sum[0] + row_sum[1]);
      wgmma_wait<0>();
      settle(o);
      release(lane, at.v_empty + stage.before().slot * 8);
      stage.next();
      rescale_sums(o, rescale);
      round_weights();
    }
    await_values(at, stage);
#if UNSEEN
    // Values that no row attends to may hold anything, and zero times infinity is no zero.
    const i32 seen = task.reach.of_step(p.q_len - 1).last;
    if (seen < key && seen < p.k_len)
      clear_values(at.v + stage.before().slot * kVBytes, seen - (key - KEYS), KEYS, group);
#endif
    settle(o);
    wgmma_fence();
    add_values();
    wgmma_wait<0>();
    settle(o);
    if (!PRODUCER) release(lane, at.v_empty + stage.before().slot * 8);
  }
  const Task again(p, w);  // computed again: nothing of it stays in registers meanwhile
  const Head head(p, again.index);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const f32 sum = quad_sum(row_sum[h]);
    const i32 row = rows.row + h * 8, step = step_of(p, row);
    const RowPlace r = {head.k_head * p.group + row - step * p.group, step};
    const bool dead = sum == 0, real = row < again.end;
    const f32 over = 1 / sum;
    store_row(p, head, r, real, [&](int eight) {
      const f32* const x = o + eight * 4 + h * 2;
      return dead ? 0 : pack(x[0] * over, x[1] * over);
    });
    if (lane % 4 == 0 && real)
      store_lse(p, head, r, PLAIN ? row_max[h] * (f32)p.scale : row_max[h], sum);
  }
#if !PRODUCER
  // Tiles that only the other consumer's rows need.
  for (i32 key = first + (max(last - first, 0) + KEYS - 1) / KEYS * KEYS; key < again.all.last;
       key += KEYS) {
    refill(p, w, at, stage, first, key, again.all.last);
    barrier_wait(at.v_full + stage.slot * 8, stage.phase);
    release(lane, at.v_empty + stage.slot * 8);
    stage.next();
  }
#endif
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
  if (threadIdx.x == (PRODUCER ? 0 : (GROUPS - 1) * 128)) {
    make_barriers(at);
    if (!PRODUCER) fill(p, w, at, task);
  }
  __syncthreads();
  const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);
#if PRODUCER
  if (group == GROUPS) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kOfProducer));
    if (threadIdx.x == GROUPS * 128) produce(p, w, at, task);
    return;
  }
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kOfConsumer));
#endif
  if (PRODUCER && group == GROUPS - 1) end_turn(group);
  const i32 begin = task.r0 + group * 64, end = min(begin + 64, task.end);
  i32 last = task.all.last;
  bool few_keys = false;
  if (begin < end) {
    const Limits a = task.reach.of_step(step_of(p, begin)),
                 b = task.reach.of_step(step_of(p, end - 1));
    few_keys = min(a.last - a.first, b.last - b.first) < kFewKeys;
    if (!PRODUCER) last = b.last;
  } else if (!PRODUCER) {
    last = task.all.first;
  }
#if PLAIN
  if (!few_keys) return consume<false>(p, w, at, task, group, last);
#endif  // else one instance is enough: it takes long to compile
  consume<true>(p, w, at, task, group, last);
#endif
}
