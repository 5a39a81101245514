// SPDX-License-Identifier: Apache-2.0
// What a block of attention_bulk.cu has to do, and how its tiles come to shared memory.
//variant: TT=bf16 TS=f32 MASK=0 DP=128 VP=128 GROUPS=2 KEYS=128 STAGES=2 BLOCKS=1 APART=1
#pragma once
#include "attention.cuh"
#include "bulk.cuh"

typedef AttentionWork Work;
constexpr int kRows = GROUPS * 64, kThreads = (GROUPS + APART) * 128;

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
constexpr u32 kQBytes = kRows * DP * 2, kKBytes = KEYS * DP * 2, kVBytes = KEYS * VP * 2;
static_assert(APART || STAGES > 2, "the tile before the last is another than the next");

// Places in shared memory; the barriers say that a tile is there, and that it was read.
struct Places {
  u32 q, k, v, q_full, k_full, v_full, k_empty, v_empty, head;
  __device__ explicit Places(u32 base)
      : q(base),
        k(q + kQBytes),
        v(k + STAGES * kKBytes),
        q_full(v + STAGES * kVBytes),
        k_full(q_full + 8),
        v_full(k_full + STAGES * 8),
        k_empty(v_full + STAGES * 8),
        v_empty(k_empty + STAGES * 8),
        head(v_empty + STAGES * 8) {}
};
// Where one of the tiles that follow each other lies, and the parity of its barriers' phase.
struct Turn {
  u32 slot = 0, phase = 0;
  __device__ __forceinline__ void next() {
    if (++slot == STAGES) slot = 0, phase ^= 1;
  }
  __device__ __forceinline__ Turn before() const {
    return slot == 0 ? Turn{STAGES - 1, phase ^ 1} : Turn{slot - 1, phase};
  }
};

__device__ __forceinline__ i32 step_of(const Attention& p, i32 row) {
  return p.group == 1 ? row : row / p.group;
}
__device__ __forceinline__ Limits limits_of_step(const Attention& p, const Work& w, i32 step) {
  return {min(max(step + w.first, 0), p.k_len), min(max(step + w.last, 0), p.k_len)};
}
// A row that is none takes what it finds, so that it makes no tile a special one.
__device__ __forceinline__ Limits limits_of_row(const Attention& p, const Work& w, i32 row) {
  if (row >= p.q_len * p.group) return {0, p.k_len + KEYS};
  const Limits l = limits_of_step(p, w, step_of(p, row));
  return l.first < l.last ? l : Limits{0, 0};
}

// What a block does: rows from r0 on, and the keys that one of them attends to.
struct Task {
  i32 index, r0;  // index: which head of keys, of all batches
  Limits all;
  __device__ Task(const Attention& p, const Work& w) {
    const i32 rows = p.q_len * p.group, blocks = (rows + kRows - 1) / kRows;
    const i32 many = w.heads_at_once * blocks, first = blockIdx.x / many * w.heads_at_once,
              heads = min(w.heads_at_once, p.batch * p.k_heads - first), i = blockIdx.x % many;
    index = first + i % heads;
    // With a causal mask the last rows have most to do.
    r0 = (blocks - 1 - i / heads) * kRows;
    all.first = limits_of_step(p, w, step_of(p, r0)).first;
    all.last = limits_of_step(p, w, step_of(p, min(r0 + kRows, rows) - 1)).last;
  }
};

__device__ __forceinline__ void bring_queries(const Attention& p, const Work& w, const Places& at,
                                              const Head& head, i32 r0) {
  barrier_expect(at.q_full, kQBytes);
#pragma unroll
  for (int col = 0; col < DP; col += 64)
    copy_tile(at.q + col / 64 * (kRows * 128), &w.q,
              {col, 0, step_of(p, r0), head.k_head, head.batch}, at.q_full);
}
__device__ __forceinline__ void bring_keys(const Work& w, const Places& at, const Head& head,
                                           i32 key, u32 slot) {
  const u32 barrier = at.k_full + slot * 8;
  barrier_expect(barrier, kKBytes);
#pragma unroll
  for (int col = 0; col < DP; col += 64)
    copy_tile(at.k + slot * kKBytes + col / 64 * (KEYS * 128), &w.k,
              {col, key, head.k_head, head.batch}, barrier);
}
__device__ __forceinline__ void bring_values(const Work& w, const Places& at, const Head& head,
                                             i32 key, u32 slot) {
  const u32 barrier = at.v_full + slot * 8;
  barrier_expect(barrier, kVBytes);
#pragma unroll
  for (int col = 0; col < VP; col += 64)
    copy_tile(at.v + slot * kVBytes + col / 64 * (KEYS * 128), &w.v,
              {col, key, head.k_head, head.batch}, barrier);
}
// All tiles of a task, by the thread that does nothing else.
__device__ __forceinline__ void bring_all(const Attention& p, const Work& w, const Places& at,
                                          const Task& task) {
  const Head head(p, task.index);
  Turn turn, before;
  bring_queries(p, w, at, head, task.r0);
  for (i32 key = task.all.first; key - KEYS < task.all.last; key += KEYS) {
    if (key < task.all.last) {
      barrier_wait(at.k_empty + turn.slot * 8, turn.phase ^ 1);
      bring_keys(w, at, head, key, turn.slot);
      turn.next();
    }
    if (key > task.all.first) {
      barrier_wait(at.v_empty + before.slot * 8, before.phase ^ 1);
      bring_values(w, at, head, key - KEYS, before.slot);
      before.next();
    }
  }
}
// The first tiles, by a thread of those that use them. bring_next asks for those that follow, when
// the tile at `key` is used: what was there before the last was read, mostly.
__device__ __forceinline__ bool asks() { return threadIdx.x == (GROUPS - 1) * 128; }
__device__ __forceinline__ void bring_first(const Attention& p, const Work& w, const Places& at,
                                            const Task& task) {
  const Head head(p, task.index);
  asm volatile("st.shared.v2.s32 [%0], {%1, %2};" ::"r"(at.head), "r"(head.batch), "r"(head.k_head)
               : "memory");
  bring_queries(p, w, at, head, task.r0);
#pragma unroll
  for (int i = 0; i < STAGES; ++i)
    if (task.all.first + i * KEYS < task.all.last) {
      bring_keys(w, at, head, task.all.first + i * KEYS, i);
      bring_values(w, at, head, task.all.first + i * KEYS, i);
    }
}
__device__ __forceinline__ void bring_next(const Attention& p, const Work& w, const Places& at,
                                           const Turn& turn, i32 first, i32 key, i32 last) {
#if !APART
  const i32 next = key + (STAGES - 2) * KEYS;
  if (asks() && key >= first + 2 * KEYS && next < last) {
    const Turn old = turn.before().before();
    barrier_wait(at.v_empty + old.slot * 8, old.phase);
    Head head(p, 0);
    asm volatile("ld.shared.v2.s32 {%0, %1}, [%2];"
                 : "=r"(head.batch), "=r"(head.k_head)
                 : "r"(at.head)
                 : "memory");
    bring_keys(w, at, head, next, old.slot);
    bring_values(w, at, head, next, old.slot);
  }
  __syncwarp();
#endif
}
#endif
