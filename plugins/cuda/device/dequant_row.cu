//variant: FORMAT=12 ALIGN=16 TYPE=f16 SPLIT=2 SPANS=8 BOXES=1 STAGES=4 BIAS=f32 GROUPS=0
//variant: FORMAT=14 ALIGN=16 TYPE=bf16 SPLIT=8 SPANS=8 BOXES=1 STAGES=2 BIAS=bf16 GROUPS=0
//variant: FORMAT=8 ALIGN=16 TYPE=bf16 SPLIT=1 SPANS=2 BOXES=1 STAGES=3 BIAS=f32 GROUPS=0
//variant: FORMAT=12 ALIGN=16 TYPE=f16 SPLIT=8 SPANS=8 BOXES=1 STAGES=4 BIAS=f32 GROUPS=2 IDS=i64 FACTOR=f32
//variant: FORMAT=128 ALIGN=16 TYPE=bf16 SPLIT=4 SPANS=4 BOXES=1 STAGES=3 BIAS=f32 GROUPS=0
//variant: FORMAT=12 ALIGN=16 TYPE=f16 SPLIT=2 SPANS=8 BOXES=1 STAGES=4 BIAS=f32 GROUPS=0 NORM=128 CHUNKS=4 GAMMA=f16 RESIDUAL=1 GATE=silu
//variant: FORMAT=14 ALIGN=16 TYPE=bf16 SPLIT=1 SPANS=2 BOXES=1 STAGES=3 BIAS=f32 GROUPS=0 NORM=32 CHUNKS=2 GAMMA=f32 RESIDUAL=0
//variant: FORMAT=8 ALIGN=16 TYPE=f16 SPLIT=1 SPANS=2 BOXES=1 STAGES=3 BIAS=f16 GROUPS=0 NORM=256 CHUNKS=3 GAMMA=f16 RESIDUAL=1
// SPDX-License-Identifier: Apache-2.0
// dequant_matmul of one row of x in f16 or bf16, with the bits that dequant_tiles.cu gives to a row
// among others, and the grouped product of rows that have an expert each: blockIdx.y is the row. x lies
// in shared memory. The blocks of threads that run at once share all of w and go from tile to tile, of
// 16 rows of w. The first warp brings SPANS spans of 256 terms of each row to a stage of shared memory;
// eight others each multiply one span of one tile. The second warp adds the sums of the spans of a tile,
// in the order of SPLIT parts.
// NORM: lanes that have the row, CHUNKS vectors each, as in norm.cu: rms_norm of x, or of x + residual
// (RESIDUAL), with the bits of that kernel. GAMMA: dtype of its factors. GATE: a tile has 8 rows of the
// first half of w and those of the second; act(gate) * up is stored.
// frozen: no kernel of the program writes w. Its first stages are copied while the kernel before is
// still at work.
//entry: dequant_row = multiply_row(BlockProduct, TensorMap, bool)
#include "bulk.cuh"
#include "dequant_groups.cuh"
#include "dequant_tiles.cuh"
#include "math.cuh"
#include "rows.cuh"

#if __CUDA_ARCH__ >= 900
constexpr int kWorkers = 8, kThreads = 32 * (kWorkers + 2), kBlocks = 2;  // of a multiprocessor
constexpr int kRows = 16, kTiles = kWorkers / SPANS;                      // of a stage
constexpr int kSpan = 256, kSpanBlocks = kSpan / kElements, kSpanBytes = kSpanBlocks * kBytes;
// A stage comes in BOXES of the copy engine, each with spans of all rows. It takes some bytes more than
// them, so that rows begin eight banks apart.
constexpr int kBoxSpans = SPANS / BOXES;
constexpr int kStride = (kBoxSpans * kSpanBytes + 31) / 64 * 64 + 32;
constexpr int kBoxBytes = kTiles * kRows * kStride, kStageBytes = BOXES * kBoxBytes;
constexpr int kColumn = 8;             // bytes of an element of w, for the copy engine
constexpr int kLaneWords = 2 * kRuns;  // of x, that a lane reads for a quad

// ---- x in shared memory: for each quad the words of four lanes, and the sums of its groups

__device__ inline Right right_at(const u32* words) {
  Right v;
#pragma unroll
  for (int k = 0; k < kPieces; ++k) v.piece[k] = load<u32, 4>(words + k * 16 + threadIdx.x % 4 * 4);
  return v;
}
// By the workers; `thread`: which of them. A warp has eight quads at a time: they are eight columns of
// a right operand, and ones times it are the sums of their groups.
constexpr int kWorkerThreads = 32 * kWorkers,
              kAtOnce = 4;  // units of a thread that are loaded together
__device__ inline void prepare(u32* words, f32* sums, const X* from, u32 blocks, u32 thread) {
  const u32 units = blocks * kUnits;
  for (u32 first = 0; first < units; first += kAtOnce * kWorkerThreads) {
    Right v[kAtOnce] = {};
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      const u32 i = first + n * kWorkerThreads + thread;
      if (i < units) v[n] = right_of(from + (i64)(i / kUnits) * kElements, i % kUnits);
    }
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      const u32 i = first + n * kWorkerThreads + thread;
      u32* const to = words + i / 4 * (4 * kLaneWords) + i % 4 * 4;
#pragma unroll
      for (int k = 0; k < kPieces; ++k)
        if (i < units) store(to + k * 16, v[n].piece[k]);
      if constexpr (kAdds) {
        // The lane's columns: two quads, behind that of the warp's first thread.
        const u32 quad = (i - thread % 32) / 4 + 2 * (thread % 4);
#pragma unroll
        for (int g = 0; g < kGroups; ++g) {
          const Vec<f32, 2> sum = sums_of_x(v[n], g);
#pragma unroll
          for (int c = 0; c < 2; ++c)
            if (thread % 32 < 4 && quad + c < blocks * kQuads)
              sums[(quad + c) * kGroups + g] = sum.v[c];
        }
      }
    }
  }
  asm volatile("bar.sync 1, %0;" ::"n"(kWorkerThreads) : "memory");  // all workers
}

#ifdef NORM
// The norm of the row, by the workers; `sum`: where x + residual goes, or null.
__device__ inline void normalize(X* to, const BlockProduct& p, X* sum, u32 thread) {
  constexpr int kVec = 8, kNormWarps = NORM / 32;
  static_assert(NORM <= kWorkerThreads, "each lane is a worker");
  __shared__ f32 parts[kNormWarps];
  const u32 n = (u32)p.k;
  const auto place = [=](int c) { return (c * NORM + thread) * kVec; };
  const auto has = [=](int c) { return thread < NORM && place(c) < n; };
  f32 v[CHUNKS][kVec];
#pragma unroll
  for (int c = 0; c < CHUNKS; ++c) {
    if (!has(c)) continue;
    const Vec<X, kVec> own = load<X, kVec>(static_cast<const X*>(p.x) + place(c));
#pragma unroll
    for (int k = 0; k < kVec; ++k) v[c][k] = widen_at(own, k);
#if RESIDUAL
    const Vec<X, kVec> more = load<X, kVec>(static_cast<const X*>(p.residual) + place(c));
#pragma unroll
    for (int k = 0; k < kVec; ++k) v[c][k] += widen_at(more, k);
#endif
  }
  Vec<GAMMA, kVec> scales[CHUNKS];
#pragma unroll
  for (int c = 0; c < CHUNKS; ++c)
    if (has(c)) scales[c] = load<GAMMA, kVec>(static_cast<const GAMMA*>(p.gamma) + place(c));
  f32 squares = sum_chunks<CHUNKS, kVec, f32>(has, [&](int c, int k) { return v[c][k] * v[c][k]; });
  if (thread < NORM) {
    squares = sum_warp<32>(squares);
    if (thread % 32 == 0) parts[thread / 32] = squares;
    if constexpr (kNormWarps > 1) {
      asm volatile("bar.sync 2, %0;" ::"n"(NORM) : "memory");
      squares = sum_warp<kNormWarps>(parts[thread % kNormWarps]);
    }
    const f32 share = 1 / (f32)n, inverse = 1 / sqrt(squares * share + (f32)p.eps);
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) {
      if (!has(c)) continue;
      f32 mine[kVec];
      if (RESIDUAL && sum) store(sum + place(c), narrow_all<X>(v[c]));
#pragma unroll
      for (int k = 0; k < kVec; ++k)
        mine[k] = v[c][k] * inverse * (f32)widen_at(scales[c], k) + 0.0f;
      store(to + place(c), narrow_all<X>(mine));
    }
  }
  asm volatile("bar.sync 1, %0;" ::"n"(kWorkerThreads) : "memory");  // all workers
}
#endif

// The row of w of row r of all tiles.
__device__ inline i64 row_of_w(const BlockProduct& p, i64 r) {
#ifdef GATE
  return r / kRows * 8 + r % 8 + (r % kRows < 8 ? 0 : p.n / 2);
#else
  return r;
#endif
}

#define CONCAT_(a, b) a##b
#define CONCAT(a, b) CONCAT_(a, b)
// Stores what becomes of the sum of row r of all tiles. The lanes of a tile come together.
__device__ inline void store_sum(const BlockProduct& p, const TileOfX& of_x, i64 r, f32 sum) {
  const f32 bias = p.bias ? widen(static_cast<const BIAS*>(p.bias)[row_of_w(p, r)]) : 0.0f;
  const X result = narrow<X>(of_x.result(sum + bias, 0));
  X* const y = static_cast<X*>(p.y);
#ifdef GATE
  const f32 gate = widen(result), up = __shfl_down_sync(__activemask(), gate, 8);
  if (r % kRows < 8)
    y[r / kRows * 8 + r % 8] = narrow<X>(CONCAT(unary_, GATE)(gate, 1.0f, 0.0f) * up);
#else
  y[of_x.row(0) * p.n + r] = result;
#endif
}

// ---- A span

// Scales of the groups of a quad, and what is added.
struct Scales {
  f32 scale[kGroups], add[kGroups];
};
// Of quad `quad` of the blocks of two rows.
__device__ inline void scales_of(Scales (&to)[2], const u8* const (&blocks)[2], int quad) {
  if constexpr (FORMAT == kQ4_K || FORMAT == kQ5_K) {  // both rows at a time
    const BlockHead first = head_of(blocks[0]), second = head_of(blocks[1]);
    const u32 pick = quad % 2 == 0 ? 0x5410 : 0x7632;
    const auto both = [&](int i) { return __byte_perm(first.six[i], second.six[i], pick); };
    const SixBits numbers = six_bits(both(0), both(1), both(2), quad < 2);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const BlockHead& own = i == 0 ? first : second;
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        to[i].scale[g] = __fmul_rn(own.scale, level(numbers.scales, 2 * i + g));
        to[i].add[g] = -__fmul_rn(own.least, level(numbers.mins, 2 * i + g));
      }
    }
  } else {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const Unit v = decode(blocks[i], quad * 4);
#pragma unroll
      for (int g = 0; g < kGroups; ++g)
        to[i].scale[g] = v.scale[g * kGroup], to[i].add[g] = v.add[g * kGroup];
    }
  }
}

// The lanes of a line, which all get the sums of its rows, share the quads of a span: a lane needs the
// scales of its own only.
constexpr int kSpanQuads = kSpanBlocks * kQuads, kLaneQuads = kSpanQuads / 4;
static_assert(kSpanQuads % 4 == 0, "each lane of a line has quads");

// Sums of a span of `quads` quads, all of them if ALL, of two rows of w that begin at `row`,
// 8 · kStride apart.
template <bool ALL>
__device__ inline void multiply_span(f32 (&sum)[2], const u8* row, const u32* x,
                                     const f32* sums_of_x, int quads) {
  const int lane = threadIdx.x % 4;
  f32 dots[kLaneQuads][kGroups][2] = {};  // of the lane's quads
#pragma unroll
  for (int q = 0; q < kSpanQuads; ++q) {
    if (!ALL && q >= quads) break;
    u32 left[kRuns][4];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const u8* const block = row + i * 8 * kStride + q / kQuads * kBytes;
      const Left v = left_of(block, q % kQuads * 4 + lane);
#pragma unroll
      for (int r = 0; r < kRuns; ++r) left[r][i] = v.run[r].low, left[r][2 + i] = v.run[r].high;
    }
    const Right right = right_at(x + q * (4 * kLaneWords));
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      f32 dot[4];
      sum_runs(dot, left + g * kGroup, 1, right, g * kGroup);
      f32(&own)[2] = dots[q % kLaneQuads][g];
      if (q / kLaneQuads == lane) own[0] = dot[0], own[1] = dot[2];
    }
  }
  // The lane's quads; then they are added in order.
  f32 of_quad[kLaneQuads][2];
#pragma unroll
  for (int k = 0; k < kLaneQuads; ++k) {
    const int q = lane * kLaneQuads + k;
    const u8* const block = row + q / kQuads * kBytes;
    Scales scales[2];
    scales_of(scales, {block, block + 8 * kStride}, q % kQuads);
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
#pragma unroll
      for (int i = 0; i < 2; ++i)
        add_group(of_quad[k][i], g, scales[i].scale[g], dots[k][g][i], scales[i].add[g],
                  kAdds ? sums_of_x[q * kGroups + g] : 0.0f);
    }
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    sum[i] = 0;
#pragma unroll
    for (int q = 0; q < kSpanQuads; ++q)
      if (ALL || q < quads)
        sum[i] += __shfl_sync(~0u, of_quad[q % kLaneQuads][i], q / kLaneQuads, 4);
  }
}

// ---- The pipeline

// The first row of all tiles of a turn of the block.
__device__ inline i64 first_row(u32 turn) {
  return ((i64)turn * gridDim.x + blockIdx.x) * (kTiles * kRows);
}
// The order of stages: each of `pieces` of the rows of a turn, which is kTiles tiles.
struct Stage {
  u32 piece = 0;  // SPANS spans of each row
  u32 turn = 0, slot = 0, phase = 0;

  // Sums of turns lie in two sets; one is used again in the other phase.
  __device__ u32 set() const { return turn % 2; }
  __device__ u32 set_phase() const { return turn / 2 % 2; }

  __device__ void next(u32 pieces) {
    if (++piece == pieces) piece = 0, ++turn;
    if (++slot == STAGES) slot = 0, phase ^= 1;
  }
};

extern "C" __global__ void __launch_bounds__(kThreads, kBlocks)
    multiply_row(const BlockProduct p, const __grid_constant__ Map w, const bool frozen) {
  extern __shared__ __align__(128) u8 shared[];
  __shared__ __align__(8) u64 barriers[2 * STAGES + 4];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const u32 blocks = (u32)(p.k / kElements), spans = (blocks + kSpanBlocks - 1) / kSpanBlocks,
            pieces = (spans + SPANS - 1) / SPANS;
  const u32 all_turns = (u32)((p.n + kTiles * kRows - 1) / (kTiles * kRows)),
            turns = (all_turns - blockIdx.x + gridDim.x - 1) / gridDim.x;
  Stage at;
  u8* const stages = shared;
#ifdef NORM
  X* const row_of_x = reinterpret_cast<X*>(shared + STAGES * kStageBytes);
  u32* const x = reinterpret_cast<u32*>(row_of_x + p.k);
#else
  u32* const x = reinterpret_cast<u32*>(shared + STAGES * kStageBytes);
#endif
  f32* const sums_of_x = reinterpret_cast<f32*>(x + blocks * kQuads * 4 * kLaneWords);
  // Of the spans of two turns: [set][tile][span][row].
  f32* const sums = sums_of_x + blocks * (kAdds ? kQuads * kGroups : 0);
  const u32 set_size = kTiles * spans * kRows;
  // Of stages: copied, read; of sets of sums: all there, all added.
  const u32 full = shared_address(barriers), empty = full + 8 * STAGES, there = empty + 8 * STAGES,
            added = there + 8 * 2;
  if (threadIdx.x == 0) {
#pragma unroll
    for (int s = 0; s < STAGES; ++s)
      barrier_init(full + 8 * s, 1), barrier_init(empty + 8 * s, kWorkers);
#pragma unroll
    for (int s = 0; s < 2; ++s)
      barrier_init(there + 8 * s, kWorkers), barrier_init(added + 8 * s, 1);
    barriers_made();
  }
  __syncthreads();

  // Copies a piece of the rows of a turn; `matrix`: the first row of all.
  const auto copy = [&](const Stage& to, i64 matrix) {
    const u32 barrier = full + 8 * to.slot;
    barrier_expect(barrier, kStageBytes);
#pragma unroll
    for (int b = 0; b < BOXES; ++b) {
      const u32 at = shared_address(stages) + to.slot * kStageBytes + b * kBoxBytes;
      const i32 column = (i32)(to.piece * SPANS + b * kBoxSpans) * kSpanBytes / kColumn;
#ifdef GATE
#pragma unroll
      for (int half = 0; half < 2 * kTiles; ++half)
        copy_tile(at + half * 8 * kStride, &w, column,
                  (i32)(matrix + row_of_w(p, first_row(to.turn) + half * 8)), barrier);
#else
      copy_tile(at, &w, column, (i32)(matrix + first_row(to.turn)), barrier);
#endif
    }
  };
  Stage copied = at;
  const auto begin_copies = [&](i64 matrix) {
    for (int s = 0; s < STAGES && copied.turn < turns; ++s)
      copy(copied, matrix), copied.next(pieces);
  };
  let_next_begin();
  if (frozen && threadIdx.x == 0) begin_copies(0);
  await_earlier();
  const TileOfX of_x = tile_of_x<1>(p.groups, p.m, blockIdx.y, blockIdx.x + threadIdx.x == 0);
  const i64 matrix = of_x.expert * p.n;
  if (GROUPS && !of_x.own) {  // no block of w is read
    for (u32 turn = 0; turn < turns; ++turn) {
      const i64 first = first_row(turn);
      for (i64 r = threadIdx.x; r < min((i64)kTiles * kRows, p.n - first); r += kThreads)
        static_cast<X*>(p.y)[of_x.row(0) * p.n + first + r] = narrow<X>(0.0f);
    }
    return;
  }

  if (warp == 0) {
    if (lane > 0) return;
    if (!frozen) begin_copies(matrix);
    for (; copied.turn < turns; at.next(pieces)) {
      barrier_wait(empty + 8 * at.slot, at.phase);
      copy(copied, matrix), copied.next(pieces);
    }
    return;
  }
  if (warp == 1) {
    for (; at.turn < turns; ++at.turn) {
      barrier_wait(there + 8 * at.set(), at.set_phase());
      // The sums of spans, by parts: SPLIT apart, and then the parts, in order.
      for (int r = lane; r < kTiles * kRows; r += 32) {
        const i64 row = first_row(at.turn) + r;
        if (row >= p.n) break;
        const f32* const own = sums + at.set() * set_size + r / kRows * spans * kRows + r % kRows;
        f32 part[SPLIT] = {};
        u32 span = 0;
#pragma unroll 4
        for (; span + SPLIT <= spans; span += SPLIT)
#pragma unroll
          for (int i = 0; i < SPLIT; ++i) part[i] += own[(span + i) * kRows];
#pragma unroll
        for (int i = 0; i < SPLIT; ++i)
          if (span + i < spans) part[i] += own[(span + i) * kRows];
        f32 all = part[0];
#pragma unroll
        for (int i = 1; i < SPLIT; ++i) all += part[i];
        store_sum(p, of_x, row, all);
      }
      __syncwarp();
      if (lane == 0) barrier_arrive(added + 8 * at.set());
    }
    return;
  }

#ifdef NORM
  normalize(row_of_x, p, blockIdx.x == 0 ? static_cast<X*>(p.sum) : nullptr, threadIdx.x - 64);
  prepare(x, sums_of_x, row_of_x, blocks, threadIdx.x - 64);
#else
  prepare(x, sums_of_x, static_cast<const X*>(p.x) + of_x.row(0) * p.k, blocks, threadIdx.x - 64);
#endif
  const int worker = warp - 2, tile = worker / SPANS, line = lane / 4;
  for (; at.turn < turns; at.next(pieces)) {
    barrier_wait(full + 8 * at.slot, at.phase);
    if (at.piece == 0) barrier_wait(added + 8 * at.set(), at.set_phase() ^ 1);
    const u32 span = at.piece * SPANS + worker % SPANS;
    if (span < spans) {
      const int own = worker % SPANS;
      const u8* const row = stages + at.slot * kStageBytes + own / kBoxSpans * kBoxBytes +
                            (tile * kRows + line) * kStride + own % kBoxSpans * kSpanBytes;
      const int quads = (int)min(blocks - span * kSpanBlocks, (u32)kSpanBlocks) * kQuads;
      const u32 quad = span * kSpanQuads;
      const u32* const of_x = x + quad * (4 * kLaneWords);
      f32 sum[2];
      if (quads == kSpanQuads)
        multiply_span<true>(sum, row, of_x, sums_of_x + quad * kGroups, quads);
      else
        multiply_span<false>(sum, row, of_x, sums_of_x + quad * kGroups, quads);
      f32* const to = sums + at.set() * set_size + (tile * spans + span) * kRows + line;
      if (lane % 4 == 0) to[0] = sum[0], to[8] = sum[1];
    }
    __syncwarp();
    if (lane == 0) {
      barrier_arrive(empty + 8 * at.slot);
      if (at.piece + 1 == pieces) barrier_arrive(there + 8 * at.set());
    }
  }
}
#else
extern "C" __global__ void multiply_row(const BlockProduct, const Map, const bool) {}
#endif
