//variant: FORMAT=12 ALIGN=16 TYPE=f16 SPLIT=2 SPANS=8 STAGES=4 BIAS=f32 GROUPS=0
//variant: FORMAT=14 ALIGN=16 TYPE=bf16 SPLIT=8 SPANS=8 STAGES=2 BIAS=bf16 GROUPS=0
//variant: FORMAT=8 ALIGN=16 TYPE=bf16 SPLIT=1 SPANS=2 STAGES=3 BIAS=f32 GROUPS=0
//variant: FORMAT=12 ALIGN=16 TYPE=f16 SPLIT=8 SPANS=8 STAGES=4 BIAS=f32 GROUPS=2 IDS=i64 FACTOR=f32
//variant: FORMAT=128 ALIGN=16 TYPE=bf16 SPLIT=4 SPANS=4 STAGES=3 BIAS=f32 GROUPS=0
//variant: FORMAT=12 ALIGN=16 TYPE=f16 SPLIT=2 SPANS=8 STAGES=4 BIAS=f32 GROUPS=0 NORM=128 CHUNKS=4 GAMMA=f16 RESIDUAL=1 GATE=silu
//variant: FORMAT=14 ALIGN=16 TYPE=bf16 SPLIT=1 SPANS=2 STAGES=3 BIAS=f32 GROUPS=0 NORM=32 CHUNKS=2 GAMMA=f32 RESIDUAL=0
//variant: FORMAT=8 ALIGN=16 TYPE=f16 SPLIT=1 SPANS=2 STAGES=3 BIAS=f16 GROUPS=0 NORM=256 CHUNKS=3 GAMMA=f16 RESIDUAL=1
// SPDX-License-Identifier: Apache-2.0
// dequant_matmul of one row of x in f16 or bf16, with the bits that dequant_tiles.cu gives to a row
// among others, and the grouped product of rows that have an expert each: blockIdx.y is the row. x lies
// in shared memory. The blocks of threads that run at once share all of w and go from tile to tile, of
// 16 rows of w. A warp brings SPANS spans of 256 terms of each row to a stage of shared memory; eight
// others each multiply one span of one tile. The first warp also adds the sums of the spans of a tile,
// in the order of SPLIT parts.
// NORM: lanes that have the row, CHUNKS vectors each, as in norm.cu: rms_norm of x, or of x + residual
// (RESIDUAL), with the bits of that kernel. GAMMA: dtype of its factors. GATE: a tile has 8 rows of the
// first half of w and those of the second; act(gate) * up is stored.
// frozen: w, if no kernel of the program writes it, else null. Its first stages are copied while the
// kernel before is still at work.
//entry: dequant_row = multiply_row(BlockProduct, In)
#include "barrier.cuh"
#include "dequant_groups.cuh"
#include "dequant_tiles.cuh"
#include "math.cuh"
#include "rows.cuh"

#if __CUDA_ARCH__ >= 900
constexpr int kWorkers = 8, kThreads = 32 * (kWorkers + 1), kBlocks = 2;  // of a multiprocessor
constexpr int kRows = 16, kTiles = kWorkers / SPANS;                      // of a stage
constexpr int kSpan = 256, kSpanBlocks = kSpan / kElements, kSpanBytes = kSpanBlocks * kBytes;
// Rows begin eight banks apart.
constexpr int kStride = (SPANS * kSpanBytes + 127) / 128 * 128 + 32;
constexpr int kStageBytes = kTiles * kRows * kStride;
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
              kAtOnce = 2;  // units of a thread that are loaded together
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

// ---- Scales

// Of the groups of a quad, and what is added.
struct Scales {
  f32 scale[kGroups], add[kGroups];
};
__device__ inline Scales scales_of(const u8* block, int quad) {
  const Unit v = decode(block, quad * 4);
  Scales s;
#pragma unroll
  for (int g = 0; g < kGroups; ++g) s.scale[g] = v.scale[g * kGroup], s.add[g] = v.add[g * kGroup];
  return s;
}
// Scales that take some work are decoded once: each lane of a line has a quad.
constexpr bool kShares = kOwnScales || FORMAT == kQ4_K || FORMAT == kQ5_K;
static_assert(!kShares || kQuads == 4, "a quad for each lane");
constexpr int kScaleNumbers = kGroups * (kAdds ? 2 : 1);
constexpr int kScaleRow = 4 * kScaleNumbers + 4;  // rows are four banks apart
__shared__ __align__(16) f32 shared_scales[kShares ? kWorkers * kRows * kScaleRow : 4];
__device__ inline void put_scales(f32* to, const Scales& s) {
  f32 v[kScaleNumbers];
#pragma unroll
  for (int i = 0; i < kScaleNumbers; ++i) v[i] = i < kGroups ? s.scale[i] : s.add[i - kGroups];
#pragma unroll
  for (int i = 0; i < kScaleNumbers; i += 4)
    store(to + i, Vec<f32, 4>{v[i], v[i + 1], v[i + 2], v[i + 3]});
}
__device__ inline Scales scales_at(const f32* from) {
  Scales s = {};
#pragma unroll
  for (int i = 0; i < kScaleNumbers; i += 4) {
    const Vec<f32, 4> v = load<f32, 4>(from + i);
#pragma unroll
    for (int e = i; e < i + 4; ++e)
      if (e < kGroups)
        s.scale[e] = v.v[e - i];
      else
        s.add[e - kGroups] = v.v[e - i];
  }
  return s;
}

// ---- A span

// Sums of a span of `quads` quads, of two rows of w that begin at `row`, 8 · kStride apart; in the
// first lane of a line.
__device__ inline void multiply_span(f32 (&sum)[2], const u8* row, f32* scales, const u32* x,
                                     const f32* sums_of_x, int quads) {
  const int lane = threadIdx.x % 4;
  if constexpr (kShares) {
#pragma unroll
    for (int i = 0; i < 2; ++i)
      put_scales(scales + i * 8 * kScaleRow + lane * kScaleNumbers,
                 scales_of(row + i * 8 * kStride, lane));
    __syncwarp();
  }
  sum[0] = sum[1] = 0;
  const auto add_quad = [&](int q) {
    u32 left[kRuns][4];
    Scales own[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const u8* const block = row + i * 8 * kStride + q / kQuads * kBytes;
      const Left v = left_of(block, q % kQuads * 4 + lane);
#pragma unroll
      for (int r = 0; r < kRuns; ++r) left[r][i] = v.run[r].low, left[r][2 + i] = v.run[r].high;
      if constexpr (kShares)
        own[i] = scales_at(scales + i * 8 * kScaleRow + q * kScaleNumbers);
      else
        own[i] = scales_of(block, q % kQuads);
    }
    const Right right = right_at(x + q * (4 * kLaneWords));
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      f32 dot[4];
      sum_runs(dot, left + g * kGroup, 1, right, g * kGroup);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        sum[i] = fma(own[i].scale[g], dot[2 * i], sum[i]);
        if constexpr (kAdds) sum[i] = fma(own[i].add[g], sums_of_x[q * kGroups + g], sum[i]);
      }
    }
  };
  constexpr int kSpanQuads = kSpanBlocks * kQuads;
  if (quads == kSpanQuads) {
#pragma unroll
    for (int q = 0; q < kSpanQuads; ++q) add_quad(q);
  } else {
#pragma unroll 1
    for (int q = 0; q < quads; ++q) add_quad(q);
  }
  if constexpr (kShares) __syncwarp();  // all have read the scales
}

// ---- The pipeline

// The order of stages: each of `pieces` of the rows of a turn, which is kTiles tiles.
struct Stage {
  i64 row;        // the first one of the turn
  u32 piece = 0;  // SPANS spans of each row
  u32 turn = 0, slot = 0, phase = 0;

  __device__ void next(u32 pieces, i64 step) {
    if (++piece == pieces) piece = 0, row += step, ++turn;
    if (++slot == STAGES) slot = 0, phase ^= 1;
  }
};

extern "C" __global__ void __launch_bounds__(kThreads, kBlocks)
    multiply_row(const BlockProduct p, const void* frozen) {
  extern __shared__ __align__(128) u8 shared[];
  __shared__ __align__(8) u64 barriers[2 * STAGES];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const i64 row_bytes = p.k / kElements * kBytes;
  const u32 blocks = (u32)(p.k / kElements), spans = (blocks + kSpanBlocks - 1) / kSpanBlocks,
            pieces = (spans + SPANS - 1) / SPANS;
  const i64 step = (i64)gridDim.x * kTiles * kRows;
  Stage at{(i64)blockIdx.x * kTiles * kRows};
  u8* const stages = shared;
#ifdef NORM
  X* const row_of_x = reinterpret_cast<X*>(shared + STAGES * kStageBytes);
  u32* const x = reinterpret_cast<u32*>(row_of_x + p.k);
#else
  u32* const x = reinterpret_cast<u32*>(shared + STAGES * kStageBytes);
#endif
  f32* const sums_of_x = reinterpret_cast<f32*>(x + blocks * kQuads * 4 * kLaneWords);
  // Of the spans of the turns under way: [turn % sets][tile][span][row].
  f32* const sums = sums_of_x + blocks * (kAdds ? kQuads * kGroups : 0);
  const u32 sets = (STAGES + pieces - 1) / pieces + 1, set_size = kTiles * spans * kRows;
  const u32 full = shared_address(barriers), empty = full + 8 * STAGES;
  if (threadIdx.x == 0) {
#pragma unroll
    for (int s = 0; s < STAGES; ++s)
      barrier_init(full + 8 * s, 1), barrier_init(empty + 8 * s, kWorkers);
    barriers_made();
  }
  __syncthreads();

  // Copies a piece of the rows of a turn, each lane some rows.
  const auto copy = [&](const Stage& to, const u8* from_w) {
    const u32 from = to.piece * (SPANS * kSpanBytes);
    const u32 bytes = min((u32)row_bytes - from, (u32)(SPANS * kSpanBytes));
    const int rows = (int)min((i64)kTiles * kRows, p.n - to.row);
    if (lane == 0) barrier_expect(full + 8 * to.slot, rows * bytes);
    __syncwarp();
    for (int r = lane; r < rows; r += 32)
      copy_bytes(shared_address(stages + to.slot * kStageBytes + r * kStride),
                 from_w + row_of_w(p, to.row + r) * row_bytes + from, bytes, full + 8 * to.slot);
  };
  Stage copied = at;
  const auto begin_copies = [&](const u8* from_w) {
    for (int s = 0; s < STAGES && copied.row < p.n; ++s)
      copy(copied, from_w), copied.next(pieces, step);
  };
  if (frozen && warp == 0) begin_copies(static_cast<const u8*>(frozen));
  begin_early();
  const TileOfX of_x = tile_of_x<1>(p.groups, p.m, blockIdx.y, blockIdx.x + threadIdx.x == 0);
  const u8* const w = of_x.matrix(p, row_bytes);
  if (GROUPS && !of_x.own) {  // no block of w is read
    for (; at.row < p.n; at.row += step)
      for (i64 r = threadIdx.x; r < min((i64)kTiles * kRows, p.n - at.row); r += kThreads)
        static_cast<X*>(p.y)[of_x.row(0) * p.n + at.row + r] = narrow<X>(0.0f);
    return;
  }

  if (warp == 0) {
    if (!frozen) begin_copies(w);
    for (; at.row < p.n; at.next(pieces, step)) {
      barrier_wait(empty + 8 * at.slot, at.phase);
      if (copied.row < p.n) copy(copied, w), copied.next(pieces, step);
      if (at.piece + 1 < pieces) continue;
      // The sums of spans, by parts: SPLIT apart, and then the parts, in order.
      for (int r = lane; r < kTiles * kRows; r += 32) {
        const i64 row = at.row + r;
        if (row >= p.n) break;
        const f32* const own =
            sums + at.turn % sets * set_size + r / kRows * spans * kRows + r % kRows;
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
    }
    return;
  }

#ifdef NORM
  normalize(row_of_x, p, blockIdx.x == 0 ? static_cast<X*>(p.sum) : nullptr, threadIdx.x - 32);
  prepare(x, sums_of_x, row_of_x, blocks, threadIdx.x - 32);
#else
  prepare(x, sums_of_x, static_cast<const X*>(p.x) + of_x.row(0) * p.k, blocks, threadIdx.x - 32);
#endif
  const int worker = warp - 1, tile = worker / SPANS, line = lane / 4;
  f32* const scales = shared_scales + (kShares ? (worker * kRows + line) * kScaleRow : 0);
  for (; at.row < p.n; at.next(pieces, step)) {
    barrier_wait(full + 8 * at.slot, at.phase);
    const u32 span = at.piece * SPANS + worker % SPANS;
    if (span < spans) {
      const u8* const row = stages + at.slot * kStageBytes + (tile * kRows + line) * kStride +
                            worker % SPANS * kSpanBytes;
      const int quads = (int)min(blocks - span * kSpanBlocks, (u32)kSpanBlocks) * kQuads;
      const u32 quad = span * (kSpanBlocks * kQuads);
      f32 sum[2];
      multiply_span(sum, row, scales, x + quad * (4 * kLaneWords), sums_of_x + quad * kGroups,
                    quads);
      f32* const to = sums + at.turn % sets * set_size + (tile * spans + span) * kRows + line;
      if (lane % 4 == 0) to[0] = sum[0], to[8] = sum[1];
    }
    __syncwarp();
    if (lane == 0) barrier_arrive(empty + 8 * at.slot);
  }
}
#else
extern "C" __global__ void multiply_row(const BlockProduct, const void*) {}
#endif
