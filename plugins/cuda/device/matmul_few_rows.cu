//variant: TYPE=f16 TY=f16 ROWS=8 TILES=3 PIECE=512 STAGES=4
//variant: TYPE=f16 TY=f16 ROWS=16 TILES=3 PIECE=512 STAGES=3 RESIDUAL=f16
//variant: TYPE=bf16 TY=f32 ROWS=16 TILES=3 PIECE=384 STAGES=3 BIAS=f32 ALPHA=1 PRE_ACT=1 ACT(x)=unary_gelu(x,0.f,0.f)
//variant: TYPE=bf16 TY=bf16 ROWS=8 TILES=3 PIECE=128 STAGES=5 BIAS=bf16 RESIDUAL=bf16
// SPDX-License-Identifier: Apache-2.0
// y = act(alpha * a bᵀ + bias) + residual of 1 to 16 rows a in halves and a large b, whose rows lie one behind
// the other, with sums in f32. Copies of b bound its time.
// The blocks that run at once share the tiles, of 16 rows of b each. A block has TILES tiles at a time. A
// producer warp for each tile brings pieces of PIECE terms of its rows, in the order of wgmma.cuh, and of rows of a,
// to STAGES stages of shared memory. (Rows that are no multiples of 128 bytes apart there come slower.) One or two
// consumer warps for each tile multiply a by its rows on tensor cores. They add 16 terms at a time, in order, to one
// sum from the first term to the last. This order does not depend on m, and tile.cuh has the same one.
// frozen: no kernel of the program writes b. Its first stages are copied while the kernel before is
// still at work.
// Defines: dtypes TYPE (of a and b) and TY; ROWS: most rows of a, 8 or 16; TILES, PIECE, STAGES; BIAS, RESIDUAL
// (dtypes), ALPHA, PRE_ACT, ACT(x), or none of them.
//entry: matmul_few_rows = multiply_few_rows(Product, TensorMap, bool)
#include "bulk.cuh"
#include "ends.cuh"
#include "tile.cuh"

typedef TYPE T;
typedef TY Y;

#if __CUDA_ARCH__ >= 900
constexpr int kTiles = TILES, kTileRows = 16, kRows = kTiles * kTileRows;  // of b, of a stage
// A product on tensor cores takes 16 rows of one operand and eight of the other. kEach: the rows of b of a
// consumer warp.
constexpr bool kEightOfA = ROWS <= 8;
constexpr int kEach = kEightOfA ? 16 : 8, kWorkers = kRows / kEach;
constexpr int kThreads = 32 * (kWorkers + kTiles);
constexpr int kRowsOfA = (ROWS + kTiles - 1) / kTiles;  // of a producer warp
constexpr int kPart = 64, kParts = PIECE / kPart,
              kPartSize = kTileRows * kPart;  // of a tile; elements
constexpr int kStrideOfA = PIECE + 8;  // elements; it sets neighbouring rows four banks apart
constexpr int kStep = 32;              // terms that a warp loads at a time, for two products
static_assert(PIECE % kPart == 0 && kParts <= 32, "each lane of a producer brings a part, or none");

// The order of stages: all pieces of TILES tiles, then those of the block's next ones.
struct Place {
  u32 round = 0, piece = 0, slot = 0, phase = 0;

  __device__ void next(u32 pieces) {
    if (++piece == pieces) piece = 0, ++round;
    if (++slot == STAGES) slot = 0, phase ^= 1;
  }
  __device__ u32 terms(u32 k) const { return min(k - piece * PIECE, (u32)PIECE); }
  // The first row of b of a tile. It is n or more where the block has no such tile.
  __device__ u32 first_row(u32 tile) const {
    return ((round * kTiles + tile) * gridDim.x + blockIdx.x) * kTileRows;
  }
};

// Operands of two products, of 16 rows and of eight.
struct Terms {
  u32 sixteen[2][4], eight[4];
};
__device__ inline void add_first(f32* sum, const Terms& t) {
  multiply_add(sum, t.sixteen[0], t.eight[0], t.eight[1], T{});
}
__device__ inline void add_second(f32* sum, const Terms& t) {
  multiply_add(sum, t.sixteen[1], t.eight[2], t.eight[3], T{});
}
// The same of the first `terms`: 8, 16 or 24. Behind them is anything.
__device__ inline void add_some(f32* sum, Terms& t, u32 terms) {
  if (terms == 8) t.sixteen[0][2] = t.sixteen[0][3] = t.eight[1] = 0;
  add_first(sum, t);
  if (terms <= 16) return;
  t.sixteen[1][2] = t.sixteen[1][3] = t.eight[3] = 0;
  add_second(sum, t);
}

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    multiply_few_rows(const Product p, const __grid_constant__ Map b, const bool frozen) {
  extern __shared__ __align__(1024) u8 shared[];
  __shared__ __align__(8) u64 barriers[2 * STAGES];
  T* const stages = reinterpret_cast<T*>(shared);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const u32 k = (u32)p.k, n = (u32)p.n, m = (u32)p.m, pieces = (k + PIECE - 1) / PIECE;
  constexpr u32 kOfA = kRows * PIECE, kAligned = 512;  // elements
  const u32 stage_size = (kOfA + m * kStrideOfA + kAligned - 1) / kAligned * kAligned;
  const u32 full = shared_address(barriers), empty = full + 8 * STAGES;  // copied, read
  if (threadIdx.x == 0) {
#pragma unroll
    for (int s = 0; s < STAGES; ++s)
      barrier_init(full + 8 * s, kTiles), barrier_init(empty + 8 * s, kWorkers);
    barriers_made();
  }
  __syncthreads();

  // By the producer warps: each brings one tile and some rows of a. A lane brings a part, or a row. The
  // barrier counts the bytes of both, and also those of zeros behind the ends of b.
  const int tile = warp - kWorkers, first_of_a = tile * kRowsOfA;
  const auto copy_b = [&](const Place& to) {
    const u32 first = to.first_row(tile), terms = to.terms(k), barrier = full + 8 * to.slot;
    const int parts = first < n ? (terms + kPart - 1) / kPart : 0,
              rows_of_a = max(min((int)m - first_of_a, kRowsOfA), 0);
    if (lane == 0)
      barrier_expect(barrier, (parts * kPartSize + rows_of_a * terms) * (u32)sizeof(T));
    __syncwarp();
    if (lane < parts)
      copy_tile(shared_address(stages + to.slot * stage_size + (tile * kParts + lane) * kPartSize),
                &b, to.piece * PIECE + lane * kPart, first, barrier);
  };
  const auto copy_a = [&](const Place& to) {
    const int row = first_of_a + lane;
    if (lane < kRowsOfA && row < m)
      copy_bytes(shared_address(stages + to.slot * stage_size + kOfA + row * kStrideOfA),
                 static_cast<const T*>(p.a) + row * p.lda + to.piece * PIECE,
                 to.terms(k) * sizeof(T), full + 8 * to.slot);
  };
  // Calls copy(place) for the stages that are empty at first.
  const auto for_first = [&](Place& to, const auto& copy) {
    for (int s = 0; s < STAGES && to.first_row(0) < n; ++s) copy(to), to.next(pieces);
  };
  Place at, copied_b, copied;
  let_next_begin();
  if (frozen && warp >= kWorkers) for_first(copied_b, copy_b);
  await_earlier();

  if (warp >= kWorkers) {
    if (!frozen) for_first(copied_b, copy_b);
    for_first(copied, copy_a);
    for (; copied.first_row(0) < n; at.next(pieces)) {
      barrier_wait(empty + 8 * at.slot, at.phase);
      copy_b(copied), copy_a(copied), copied.next(pieces);
    }
    return;
  }

  // Where the lane reads of both operands, for load_matrices. Rows that a does not have repeat its last one,
  // and their results are dropped.
  constexpr int kRowsOfProduct = 24 - kEach;  // of a: 16 or eight, as b has eight or 16
  const int row_of_b = warp * kEach % kTileRows + lane % kEach, eights = lane / kEach;
  const u32 of_a = kOfA + min(lane % kRowsOfProduct, (int)m - 1) * kStrideOfA +
                   lane / kRowsOfProduct * 8,
            of_b = warp * kEach / kTileRows * (kParts * kPartSize) + row_of_b * kPart;
  f32 sum[4] = {};
  for (; at.first_row(0) < n; at.next(pieces)) {
    barrier_wait(full + 8 * at.slot, at.phase);
    const T* const stage = stages + at.slot * stage_size;
    const auto load_a = [&](u32(&to)[4], u32 t) { load_matrices<false>(to, stage + of_a + t); };
    const auto load_b = [&](u32(&to)[4], u32 t) {
      const u32 piece = (t % kPart / 8 + eights) ^ (row_of_b % 8);
      load_matrices<false>(to, stage + of_b + t / kPart * kPartSize + piece * 8);
    };
    const auto terms_at = [&](u32 t) {
      Terms terms;
      if constexpr (kEightOfA)
        load_b(terms.sixteen[0], t), load_a(terms.eight, t),
            load_b(terms.sixteen[1], t + kStep / 2);
      else
        load_a(terms.sixteen[0], t), load_b(terms.eight, t),
            load_a(terms.sixteen[1], t + kStep / 2);
      return terms;
    };
    const u32 terms = at.terms(k);
    Terms now = terms_at(0);
    u32 t = 0;
#pragma unroll 4
    for (; t + kStep <= terms; t += kStep) {
      const Terms next = terms_at(min(t + kStep, (u32)(PIECE - kStep)));  // the last one in vain
      add_first(sum, now), add_second(sum, now);
      now = next;
    }
    if (t < terms) add_some(sum, now, terms - t);
    __syncwarp();
    if (lane == 0) barrier_arrive(empty + 8 * at.slot);
    if (at.piece + 1 < pieces) continue;

    const u32 first = at.first_row(warp * kEach / kTileRows) + warp * kEach % kTileRows;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const u32 of_sixteen = i / 2 * 8 + lane / 4, of_eight = lane % 4 * 2 + i % 2;
      const u32 row = kEightOfA ? of_eight : of_sixteen,
                column = first + (kEightOfA ? of_sixteen : of_eight);
      const i64 to = (i64)row * p.n + column;
      if (row < m && column < n) static_cast<Y*>(p.y)[to] = finished<Y>(p, sum[i], to, column);
      sum[i] = 0;
    }
  }
}
#else
extern "C" __global__ void multiply_few_rows(const Product, const Map, const bool) {}
#endif
