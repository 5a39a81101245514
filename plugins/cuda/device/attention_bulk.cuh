// SPDX-License-Identifier: Apache-2.0
// The work of a block of attention_bulk.cu, and how the copy engine brings its tiles to shared
// memory. Each tile of the pipeline has a "full" barrier (the tile has arrived) and an "empty" one
// (its readers are done).
//variant: TT=bf16 TS=f32 MASK=0 DP=128 VP=128 GROUPS=2 KEYS=128 STAGES=2 BLOCKS=1 PRODUCER=1 PLAIN=1 UNSEEN=0
//variant: TT=f16 TS=f32 MASK=0 DP=64 VP=64 GROUPS=2 KEYS=64 STAGES=4 BLOCKS=2 PRODUCER=0 PLAIN=1 UNSEEN=1 KV_LEN=i64 BLOCK_TABLE=i32 PIECE=16
#pragma once
#include "attention_quads.cuh"
#include "bulk.cuh"
#include "wgmma.cuh"

typedef AttentionWork Work;
constexpr int kRows = GROUPS * 64, kThreads = (GROUPS + PRODUCER) * 128;

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// Registers of a thread: the producer warpgroup leaves its own to the consumers.
constexpr int kOfProducer = 24, kEqual = 65536 / (kThreads * BLOCKS) / 8 * 8,
              kMost = (kEqual * (GROUPS + 1) - kOfProducer) / GROUPS / 8 * 8,
              kOfConsumer = kMost < 240 ? kMost : 240;
constexpr u32 kQBytes = kRows * DP * 2, kKBytes = KEYS * DP * 2, kVBytes = KEYS * VP * 2;
static_assert(PRODUCER || STAGES > 2, "a consumer refills the stage two tiles back");

// Addresses in shared memory.
struct Layout {
  u32 q, k, v, q_full, k_full, v_full, k_empty, v_empty, head;
  __device__ explicit Layout(u32 base)
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
// By one thread.
__device__ __forceinline__ void make_barriers(const Layout& at) {
  barrier_init(at.q_full, 1);
  for (u32 i = 0; i < STAGES * 8; i += 8) {
    barrier_init(at.k_full + i, 1), barrier_init(at.v_full + i, 1);
    barrier_init(at.k_empty + i, GROUPS * 4), barrier_init(at.v_empty + i, GROUPS * 4);
  }
  barriers_made();
}
// Room for the barriers of a kernel with something behind them.
constexpr u32 kBarrierBytes = 256;
// A tile's stage in the pipeline, and the parity of its barriers' phase.
struct Stage {
  u32 slot = 0, phase = 0;
  __device__ __forceinline__ void next() {
    if (++slot == STAGES) slot = 0, phase ^= 1;
  }
  __device__ __forceinline__ Stage before() const {
    return slot == 0 ? Stage{STAGES - 1, phase ^ 1} : Stage{slot - 1, phase};
  }
};

__device__ __forceinline__ i32 step_of(const Attention& p, i32 row) {
  return p.group == 1 ? row : row / p.group;
}
// Which keys of a batch a step may attend to: from step + first to step + last, below `keys`.
struct Reach {
  i32 first, last, keys;
  __device__ __forceinline__ Reach(const Attention& p, const Work& w, i32 batch)
      : first(w.first), last(w.last), keys(p.k_len) {
#ifdef KV_LEN
    const i64 length = ((const KV_LEN*)p.kv_len)[batch];
    keys = (i32)(length < 0 ? 0 : length < p.k_len ? length : p.k_len);
#endif
#ifdef PAST_LEN
    // Clamped sums: far offsets and windows may cancel each other.
    constexpr i64 kNone = (i64)1 << 30;
    i64 offset = ((const PAST_LEN*)p.past_len)[batch];
    offset = offset < -kFar ? -kFar : offset > kFar ? kFar : offset;
    i64 low = -kNone, high = kNone;
    if (p.left >= 0) low = offset - p.left;
    if (p.causal)
      high = offset + 1;
    else if (p.right >= 0)
      high = offset + p.right + 1;
    first = (i32)(low < -kNone ? -kNone : low > kNone ? kNone : low);
    last = (i32)(high < -kNone ? -kNone : high > kNone ? kNone : high);
#endif
  }
  __device__ __forceinline__ Limits of_step(i32 step) const {
    return {min(max(step + first, 0), keys), min(max(step + last, 0), keys)};
  }
};

// A block's rows of one head, from r0 on, and the keys that any of them may attend to.
struct Task {
  i32 index, r0, end;  // index: which key head, of all batches
  Reach reach;
  Limits all;
  __device__ __forceinline__ Task(const Attention& p, const Work& w)
      : index(index_of(p, w)), r0(0), end(0), reach(p, w, index / p.k_heads), all{} {
    const i32 rows = p.q_len * p.group, blocks = (rows + w.rows - 1) / w.rows;
    const i32 many = w.heads_at_once * blocks, first = blockIdx.x / many * w.heads_at_once,
              heads = min(w.heads_at_once, p.batch * p.k_heads - first);
    // Blocks of late rows start first: with a causal mask these have the most keys.
    r0 = (blocks - 1 - (i32)blockIdx.x % many / heads) * w.rows;
    end = min(r0 + w.rows, rows);
    all.first = reach.of_step(step_of(p, r0)).first;
    all.last = reach.of_step(step_of(p, end - 1)).last;
#ifdef TILE_STEP  // tiles begin at multiples of it
    all.first -= all.first % TILE_STEP;
#elif defined(BLOCK_TABLE)
    all.first -= all.first % PIECE;
#endif
  }
  static __device__ __forceinline__ i32 index_of(const Attention& p, const Work& w) {
    const i32 blocks = (p.q_len * p.group + w.rows - 1) / w.rows, many = w.heads_at_once * blocks,
              first = blockIdx.x / many * w.heads_at_once,
              heads = min(w.heads_at_once, p.batch * p.k_heads - first);
    return first + (i32)blockIdx.x % many % heads;
  }
  // A row that does not exist takes any limits, so it makes no tile a special one.
  __device__ __forceinline__ Limits limits_of_row(const Attention& p, i32 row) const {
    if (row >= end) return {0, p.k_len + KEYS};
    const Limits l = reach.of_step(step_of(p, row));
    return l.first < l.last ? l : Limits{0, 0};
  }
};

__device__ __forceinline__ void copy_queries(const Attention& p, const Work& w, const Layout& at,
                                             const Head& head, i32 r0) {
  barrier_expect(at.q_full, w.rows * DP * 2);
#pragma unroll
  for (int col = 0; col < DP; col += 64)
    copy_tile(at.q + col / 64 * (kRows * 128), &w.q,
              {col, 0, step_of(p, r0), head.k_head, head.batch}, at.q_full);
}
// Where the keys of a tile are. With BLOCK_TABLE, pieces of PIECE keys may be in different blocks; numbers that are
// not in the pool are outside of the map, so zeros come.
struct TilePlaces {
#ifdef BLOCK_TABLE
  static constexpr int kKeys = PIECE;
#else
  static constexpr int kKeys = KEYS;
#endif
  i32 first[KEYS / kKeys], outer[KEYS / kKeys];  // outer: batch, or number of a block
  __device__ __forceinline__ TilePlaces(const Attention& p, const Head& head, i32 key) {
#ifdef BLOCK_TABLE
#pragma unroll
    for (int i = 0; i < KEYS / kKeys; ++i) {
      const i32 at = key + i * kKeys, block = (i32)p.by_block.quotient((u32)at);
      const i64 number =
          block < p.blocks ? block_number(p, (i64)head.batch * p.blocks + block) : (i64)-1;
      first[i] = at - block * (i32)p.by_block.value;
      outer[i] = (u64)number < (u64)p.pool ? (i32)number : p.pool;
    }
#else
    first[0] = key, outer[0] = head.batch;
#endif
  }
  // The tile at `to`.
  template <int COLS>
  __device__ __forceinline__ void copy(u32 to, const Map* map, i32 k_head, u32 barrier) const {
    barrier_expect(barrier, KEYS * COLS * 2);
#pragma unroll
    for (int i = 0; i < KEYS / kKeys; ++i)
#pragma unroll
      for (int col = 0; col < COLS; col += 64)
        copy_tile(to + col / 64 * (KEYS * 128) + i * kKeys * 128, map,
                  {col, first[i], k_head, outer[i]}, barrier);
  }
};
__device__ __forceinline__ void copy_keys(const Work& w, const Layout& at, const Head& head,
                                          const TilePlaces& places, u32 slot) {
  places.copy<DP>(at.k + slot * kKBytes, &w.k, head.k_head, at.k_full + slot * 8);
}
__device__ __forceinline__ void copy_values(const Work& w, const Layout& at, const Head& head,
                                            const TilePlaces& places, u32 slot) {
  places.copy<VP>(at.v + slot * kVBytes, &w.v, head.k_head, at.v_full + slot * 8);
}
// The producer: one thread that starts all copies of a task.
__device__ __forceinline__ void produce(const Attention& p, const Work& w, const Layout& at,
                                        const Task& task) {
  const Head head(p, task.index);
  Stage k_stage, v_stage;
  copy_queries(p, w, at, head, task.r0);
  for (i32 key = task.all.first; key - KEYS < task.all.last; key += KEYS) {
    if (key < task.all.last) {
      barrier_wait(at.k_empty + k_stage.slot * 8, k_stage.phase ^ 1);
      copy_keys(w, at, head, TilePlaces(p, head, key), k_stage.slot);
      k_stage.next();
    }
    if (key > task.all.first) {
      barrier_wait(at.v_empty + v_stage.slot * 8, v_stage.phase ^ 1);
      copy_values(w, at, head, TilePlaces(p, head, key - KEYS), v_stage.slot);
      v_stage.next();
    }
  }
}
// Without a producer one consumer thread starts the copies: all stages at first, then refill()
// while the tile at `key` is in use. The stage that it refills was read two tiles ago, so it hardly
// ever waits.
__device__ __forceinline__ bool copies() { return threadIdx.x == (GROUPS - 1) * 128; }
__device__ __forceinline__ void fill(const Attention& p, const Work& w, const Layout& at,
                                     const Task& task) {
  const Head head(p, task.index);
  asm volatile("st.shared.v2.s32 [%0], {%1, %2};" ::"r"(at.head), "r"(head.batch), "r"(head.k_head)
               : "memory");
  copy_queries(p, w, at, head, task.r0);
#pragma unroll
  for (int i = 0; i < STAGES; ++i)
    if (task.all.first + i * KEYS < task.all.last) {
      const TilePlaces places(p, head, task.all.first + i * KEYS);
      copy_keys(w, at, head, places, i);
      copy_values(w, at, head, places, i);
    }
}
__device__ __forceinline__ void refill(const Attention& p, const Work& w, const Layout& at,
                                       const Stage& stage, i32 first, i32 key, i32 last) {
#if !PRODUCER
  const i32 next = key + (STAGES - 2) * KEYS;
  if (copies() && key >= first + 2 * KEYS && next < last) {
    const Stage old = stage.before().before();
    barrier_wait(at.v_empty + old.slot * 8, old.phase);
    Head head(p, 0);
    asm volatile("ld.shared.v2.s32 {%0, %1}, [%2];"
                 : "=r"(head.batch), "=r"(head.k_head)
                 : "r"(at.head)
                 : "memory");
    const TilePlaces places(p, head, next);
    copy_keys(w, at, head, places, old.slot);
    copy_values(w, at, head, places, old.slot);
  }
  __syncwarp();
#endif
}
// Zeros for the rows of a tile of values from `first` to `last`. A warpgroup writes them for itself.
__device__ __forceinline__ void clear_values(u32 tile, int first, int last, int group) {
  for (int i = threadIdx.x % 128; i < (last - first) * 8; i += 128)
#pragma unroll
    for (int col = 0; col < VP; col += 64)
      asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(
                       tile + col / 64 * (KEYS * 128) + first * 128 + i * 16),
                   "r"(0)
                   : "memory");
  shared_to_wgmma();
  asm volatile("bar.sync %0, 128;" ::"r"(2 + GROUPS + group) : "memory");
}
// The two query rows of a quad, 8 apart.
struct BulkRows {
  i32 row, ends[2];  // where the keys of each row end, relative to the thread's first column
  i32 first, last;   // keys that all rows of the warp may attend to
#if !PLAIN
  i32 begins[2];
  const T* mask[2];  // with COLUMNS, the first is that of all rows
#endif
  __device__ BulkRows(const Attention& p, const Task& task)
      : row(task.r0 + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4) {
    const Limits l = task.limits_of_row(p, row), m = task.limits_of_row(p, row + 8);
    ends[0] = l.last - quad_column(0), ends[1] = m.last - quad_column(0);
    first = __reduce_max_sync(~0u, max(l.first, m.first));
    last = __reduce_min_sync(~0u, min(l.last, m.last));
#if !PLAIN
    begins[0] = l.first - quad_column(0), begins[1] = m.first - quad_column(0);
    const Head head(p, task.index);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const i32 r = row + h * 8;
      mask[h] = r < task.end ? mask_row_of(p, head, head.row(p, r)) : (const T*)nullptr;
      if (r >= task.end) begins[h] = ends[h] = 0;  // there is no mask to read
    }
#ifdef COLUMNS
    mask[0] = (const T*)p.mask + head.batch * p.mask_strides[0];
#endif
#endif
  }
};
// What a consumer multiplies: its queries, and the tiles of the stages.
struct Operands {
  u64 q, k, v;
  __device__ __forceinline__ Operands(const Layout& at, int group)
      : q(tile_name<kRows>(at.q, group * 64, 0)),
        k(tile_name<KEYS>(at.k, 0, 0)),
        v(tile_name<KEYS>(at.v, 0, 0)) {}
  // Starts the products of queries and the keys of a stage.
  __device__ __forceinline__ void multiply_keys(f32 (&s)[KEYS / 2], const Stage& stage) const {
    const u64 keys = k + stage.slot * (kKBytes >> 4);
#pragma unroll
    for (int d = 0; d < DP; d += 16)
      wgmma(s, q + ((d / 64 * (kRows * 128) + d % 64 * 2) >> 4),
            keys + ((d / 64 * (KEYS * 128) + d % 64 * 2) >> 4), d > 0, T{});
    wgmma_commit();
  }
  // The values that go with the keys before those of a stage.
  __device__ __forceinline__ u64 values(const Stage& stage) const {
    return v + stage.before().slot * (kVBytes >> 4);
  }
};
// Until the keys of a stage have come; the values that go with the keys before them.
__device__ __forceinline__ void await_keys(const Layout& at, const Stage& stage) {
  barrier_wait(at.k_full + stage.slot * 8, stage.phase);
}
__device__ __forceinline__ void await_values(const Layout& at, const Stage& stage) {
  barrier_wait(at.v_full + stage.before().slot * 8, stage.before().phase);
}
// A warp has read a tile, whose "empty" barrier this is.
__device__ __forceinline__ void release(int lane, u32 barrier) {
  if (lane == 0) barrier_arrive(barrier);
}
// A consumer's turn at the tensor cores.
__device__ __forceinline__ void await_turn(int group) {
  if (PRODUCER) asm volatile("bar.sync %0, 256;" ::"r"(2 + group) : "memory");
}
__device__ __forceinline__ void end_turn(int group) {
  if (PRODUCER) asm volatile("bar.arrive %0, 256;" ::"r"(2 + (group + 1) % GROUPS) : "memory");
}

// The lanes of a quad hold two columns of each of four times 8. They exchange them, so that each
// has 8 adjacent columns.
__device__ __forceinline__ Vec<u32, 4> exchange(const u32 (&w)[4]) {
  const bool upper = threadIdx.x & 2, odd = threadIdx.x & 1;
  const u32 a = __shfl_xor_sync(~0u, upper ? w[0] : w[2], 2),
            b = __shfl_xor_sync(~0u, upper ? w[1] : w[3], 2);
  const u32 x0 = upper ? a : w[0], x1 = upper ? w[2] : a, y0 = upper ? b : w[1],
            y1 = upper ? w[3] : b;
  const u32 c = __shfl_xor_sync(~0u, odd ? x0 : y0, 1), d = __shfl_xor_sync(~0u, odd ? x1 : y1, 1);
  return {odd ? c : x0, odd ? y0 : c, odd ? d : x1, odd ? y1 : d};
}
// Stores a row of the quad, if it is real; pair_of(i): its two elements of the i-th eight that the lane has.
template <class PairOf>
__device__ __forceinline__ void store_row(const Attention& p, const Head& head, const RowPlace& r,
                                          bool real, PairOf pair_of) {
  T* const to = result_of(p, head, r);
#pragma unroll
  for (int j = 0; j < VP / 8; j += 4) {
    u32 words[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) words[e] = pair_of(j + e);
    const Vec<u32, 4> eight = exchange(words);
    const int column = (j + (int)(threadIdx.x % 4)) * 8;
    if (real && column < p.v_dim) store((u32*)(to + column), eight);
  }
}

#endif
