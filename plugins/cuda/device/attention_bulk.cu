// SPDX-License-Identifier: Apache-2.0
// Attention forward on sm_90 with wgmma, keys and values brought by the copy engine: of scores that
// are products times a positive scale, no key being hidden but by causality and windows. A block
// takes 64 query rows for each of its GROUPS warpgroups through the keys, KEYS at a time; a
// warpgroup asks for the next scores before it sums the values of the last, and makes weights
// meanwhile. Defines: as attention.cuh (MASK=0); DP and VP (dim and v_dim, padded to 64 or 128);
// GROUPS, KEYS, STAGES (tiles of keys and of values on chip), BLOCKS (on a multiprocessor); APART
// (1: a warpgroup more asks for the tiles, and the others take turns at the tensor cores, so that
// one's arithmetic is under the other's products; 0: a thread of those asks, for narrow heads,
// where blocks hide each other's waits and need the registers).
//variant: TT=bf16 TS=f32 MASK=0 DP=128 VP=128 GROUPS=2 KEYS=128 STAGES=2 BLOCKS=1 APART=1
//variant: TT=f16 TS=f32 MASK=0 DP=64 VP=64 GROUPS=2 KEYS=64 STAGES=4 BLOCKS=2 APART=0
#include "attention_bulk.cuh"
#include "row_max.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// Registers of a thread: the warpgroup that asks for tiles leaves its own to the others.
constexpr int kAsking = 24, kEqual = 65536 / (kThreads * BLOCKS) / 8 * 8,
              kMost = (kEqual * (GROUPS + 1) - kAsking) / GROUPS / 8 * 8,
              kAttending = kMost < 240 ? kMost : 240;

// What a thread knows of its two query rows, 8 apart.
struct Rows2 {
  i32 row, ends[2];  // where the keys end for each, less the thread's first column
  i32 first, last;   // keys that every row of the warp may attend to
  __device__ Rows2(const Attention& p, const Work& w, i32 r0)
      : row(r0 + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4) {
    const Limits l = limits_of_row(p, w, row), m = limits_of_row(p, w, row + 8);
    ends[0] = l.last - column(), ends[1] = m.last - column();
    first = __reduce_max_sync(~0u, max(l.first, m.first));
    last = __reduce_min_sync(~0u, min(l.last, m.last));
  }
  static __device__ int column() { return threadIdx.x % 4 * 2; }
};
// Products become weights of the keys from `key` on; `kept` is what the sums so far are multiplied
// by.
__device__ __forceinline__ void weigh(const Attention& p, const Work& w, const Rows2& rows, i32 key,
                                      f32 (&s)[KEYS / 2], f32 (&most)[2], f32 (&sum)[2],
                                      f32 (&kept)[2]) {
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
      const i32 first = limits_of_row(p, w, rows.row + h * 8).first - key - Rows2::column();
#pragma unroll
      for (int i = h * 2; i < KEYS / 2; i += 4)
#pragma unroll
        for (int e = 0; e < 2; ++e)
          if (i / 4 * 8 + e < first) s[i + e] = -infinity(0.f);
    }
  const f32 factor = (f32)p.scale * kLog2E;
  // Both rows at once, each in two parts: few wait for the one before.
  f32 now[4], base[2], part[4];
  now[0] = fmaxf(most[0], s[0]), now[1] = s[1], now[2] = fmaxf(most[1], s[2]), now[3] = s[3];
#pragma unroll
  for (int i = 4; i < KEYS / 2; ++i) now[i % 4] = fmaxf(now[i % 4], s[i]);
  now[0] = fmaxf(now[0], now[1]), now[2] = fmaxf(now[2], now[3]);
#pragma unroll
  for (int lanes = 1; lanes < 4; lanes *= 2)
#pragma unroll
    for (int h = 0; h < 2; ++h)
      now[h * 2] = fmaxf(now[h * 2], __shfl_xor_sync(~0u, now[h * 2], lanes));
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const RowMax next = follow_max<true>(most[h], now[h * 2], factor);
    most[h] = next.most, base[h] = next.base, kept[h] = next.kept;
  }
#pragma unroll
  for (int i = 0; i < KEYS / 2; ++i) {
    s[i] = weight_of<true>(s[i], base[i / 2 % 2], factor);
    part[i % 4] = i < 4 ? s[i] : part[i % 4] + s[i];
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) sum[h] = sum[h] * kept[h] + (part[h * 2] + part[h * 2 + 1]);
}

// The weights as a left operand, and what their rounding lost.
template <bool FINE>
__device__ __forceinline__ void round_weights(const f32 (&s)[KEYS / 2], u32 (&w)[KEYS / 16][4],
                                              u32 (&rest)[KEYS / 16][4]) {
#pragma unroll
  for (int i = 0; i < KEYS / 4; ++i) {
    const u32 both = pack(s[i * 2], s[i * 2 + 1]);
    w[i / 4][i % 4] = both;
    if (FINE) rest[i / 4][i % 4] = pack_rest(both, s[i * 2], s[i * 2 + 1]);
  }
  settle(w);
  if (FINE) settle(rest);
}

// A warpgroup's turn at the tensor cores.
__device__ __forceinline__ void await_turn(int group) {
  if (APART) asm volatile("bar.sync %0, 256;" ::"r"(2 + group) : "memory");
}
__device__ __forceinline__ void end_turn(int group) {
  if (APART) asm volatile("bar.arrive %0, 256;" ::"r"(2 + (group + 1) % GROUPS) : "memory");
}

// Two columns of each of four times 8, in each lane of a quad, become 8 columns.
__device__ __forceinline__ Vec<u32, 4> exchange(const u32 (&w)[4]) {
  const bool upper = threadIdx.x & 2, odd = threadIdx.x & 1;
  const u32 a = __shfl_xor_sync(~0u, upper ? w[0] : w[2], 2),
            b = __shfl_xor_sync(~0u, upper ? w[1] : w[3], 2);
  const u32 x0 = upper ? a : w[0], x1 = upper ? w[2] : a, y0 = upper ? b : w[1],
            y1 = upper ? w[3] : b;
  const u32 c = __shfl_xor_sync(~0u, odd ? x0 : y0, 1), d = __shfl_xor_sync(~0u, odd ? x1 : y1, 1);
  return {odd ? c : x0, odd ? y0 : c, odd ? d : x1, odd ? y1 : d};
}

// FINE: the values are summed with weights of twice the digits.
template <bool FINE>
__device__ __forceinline__ void attend(const Attention& p, const Work& w, const Places& at,
                                       const Task& task, int group, i32 last) {
  const int lane = threadIdx.x % 32;
  const i32 first = task.all.first;
  const Rows2 facts(p, w, task.r0);
  f32 s[KEYS / 2], o[VP / 2], most[2] = {-infinity(0.f), -infinity(0.f)}, sum[2] = {}, kept[2];
  u32 weights[KEYS / 16][4], rest[KEYS / 16][4];
#pragma unroll
  for (int i = 0; i < VP / 2; ++i) o[i] = 0;
  settle(o);
  const u64 q_name = tile_name<kRows>(at.q, group * 64, 0), k_name = tile_name<KEYS>(at.k, 0, 0),
            v_name = tile_name<KEYS>(at.v, 0, 0);
  Turn turn;
  const auto multiply_keys = [&] {
    const u64 keys = k_name + turn.slot * (kKBytes >> 4);
#pragma unroll
    for (int k = 0; k < DP; k += 16)
      wgmma(s, q_name + ((k / 64 * (kRows * 128) + k % 64 * 2) >> 4),
            keys + ((k / 64 * (KEYS * 128) + k % 64 * 2) >> 4), k > 0, T{});
    wgmma_commit();
  };
  const auto add_values = [&] {
    const u64 values = v_name + turn.before().slot * (kVBytes >> 4);
#pragma unroll
    for (int k = 0; k < KEYS; k += 16) wgmma(o, weights[k / 16], values + (k * 128 >> 4), T{});
#pragma unroll
    for (int k = 0; k < KEYS && FINE; k += 16) wgmma(o, rest[k / 16], values + (k * 128 >> 4), T{});
    wgmma_commit();
  };
  const auto tell = [&](u32 barrier) {
    if (lane == 0) barrier_arrive(barrier);
  };
  const auto await_keys = [&] { barrier_wait(at.k_full + turn.slot * 8, turn.phase); };
  const auto await_values = [&] {
    barrier_wait(at.v_full + turn.before().slot * 8, turn.before().phase);
  };
  barrier_wait(at.q_full, 0);
  if (first < last) {
    await_keys();
    await_turn(group);
    wgmma_fence();
    multiply_keys();
    end_turn(group);
    wgmma_wait<0>();
    settle(s);
    if (APART) tell(at.k_empty + turn.slot * 8);
    turn.next();
    weigh(p, w, facts, first, s, most, sum, kept);
    round_weights<FINE>(s, weights, rest);
    for (i32 key = first + KEYS; key < last; key += KEYS) {
      await_keys();
      await_turn(group);
      settle(s);
      settle(o);
      wgmma_fence();
      multiply_keys();
      await_values();
      add_values();
      end_turn(group);
      bring_next(p, w, at, turn, first, key, last);
      wgmma_wait<1>();
      settle(s);
      if (APART) tell(at.k_empty + turn.slot * 8);
      weigh(p, w, facts, key, s, most, sum, kept);
      wait_behind(sum[0] + sum[1]);
      wgmma_wait<0>();
      settle(o);
      tell(at.v_empty + turn.before().slot * 8);
      turn.next();
      if (__any_sync(~0u, kept[0] != 1 || kept[1] != 1))
#pragma unroll
        for (int i = 0; i < VP / 2; ++i) o[i] *= kept[i / 2 % 2];
      round_weights<FINE>(s, weights, rest);
    }
    await_values();
    settle(o);
    wgmma_fence();
    add_values();
    wgmma_wait<0>();
    settle(o);
    if (!APART) tell(at.v_empty + turn.before().slot * 8);
  }
  const Task again(p, w);  // so that nothing of it is kept meanwhile
  const Head head(p, again.index);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    sum[h] += __shfl_xor_sync(~0u, sum[h], 1);
    sum[h] += __shfl_xor_sync(~0u, sum[h], 2);
    const i32 row = facts.row + h * 8, step = step_of(p, row);
    const RowPlace r = {head.k_head * p.group + row - step * p.group, step};
    const bool dead = sum[h] == 0, real = step < p.q_len;
    const f32 over = 1 / sum[h];
    T* to = (T*)p.o + ::at(p.o_strides, head.batch, r.head, r.step);
#pragma unroll
    for (int j = 0; j < VP / 8; j += 4) {
      u32 words[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const f32* x = o + (j + e) * 4 + h * 2;
        words[e] = dead ? 0 : pack(x[0] * over, x[1] * over);
      }
      const Vec<u32, 4> eight = exchange(words);
      const int col = (j + lane % 4) * 8;
      if (real && col < p.v_dim) store((u32*)(to + col), eight);
    }
    const f32 base = most[h] == -infinity(0.f) ? 0.f : most[h] * (f32)p.scale;
    if (p.lse && lane % 4 == 0 && real)
      ((f32*)p.lse)[row_index(p, head, r)] = dead ? -infinity(0.f) : base + logf(sum[h]);
  }
#if !APART
  // Tiles that only others' rows need.
  for (i32 key = first + (max(last - first, 0) + KEYS - 1) / KEYS * KEYS; key < again.all.last;
       key += KEYS) {
    bring_next(p, w, at, turn, first, key, again.all.last);
    barrier_wait(at.v_full + turn.slot * 8, turn.phase);
    tell(at.v_empty + turn.slot * 8);
    turn.next();
  }
#endif
}
#endif

extern "C" __global__ void __launch_bounds__(kThreads, BLOCKS)
    attention(const Attention p, const __grid_constant__ Work w) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) u8 smem[];
  const Places at(shared_address(smem));
  const Task task(p, w);
  if (threadIdx.x == (APART ? 0 : (GROUPS - 1) * 128)) {
    barrier_init(at.q_full, 1);
    for (u32 i = 0; i < STAGES * 8; i += 8) {
      barrier_init(at.k_full + i, 1), barrier_init(at.v_full + i, 1);
      barrier_init(at.k_empty + i, GROUPS * 4), barrier_init(at.v_empty + i, GROUPS * 4);
    }
    barriers_made();
    if (!APART) bring_first(p, w, at, task);
  }
  __syncthreads();
  const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);
#if APART
  if (group == GROUPS) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kAsking));
    if (threadIdx.x == GROUPS * 128) bring_all(p, w, at, task);
    return;
  }
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kAttending));
#endif
  if (APART && group == GROUPS - 1) end_turn(group);
  const i32 begin = task.r0 + group * 64, end = min(begin + 64, p.q_len * p.group);
  i32 last = task.all.last;
  bool fine = false;
  if (begin < end) {
    const Limits a = limits_of_step(p, w, step_of(p, begin)),
                 b = limits_of_step(p, w, step_of(p, end - 1));
    fine = min(a.last - a.first, b.last - b.first) < FewKeys<T>::kValue;
    if (!APART) last = b.last;
  } else if (!APART) {
    last = task.all.first;
  }
  if (fine)
    attend<true>(p, w, at, task, group, last);
  else
    attend<false>(p, w, at, task, group, last);
#endif
}
