//variant: TYPE=f16 TY=f16 TILES=4 PIECE=512 STAGES=3
//variant: TYPE=bf16 TY=f32 TILES=4 PIECE=384 STAGES=3 BIAS=f32 ALPHA=1 PRE_ACT=1 ACT(x)=unary_gelu(x,0.f,0.f)
//variant: TYPE=bf16 TY=bf16 TILES=2 PIECE=256 STAGES=5 BIAS=bf16 RESIDUAL=bf16
//variant: TYPE=f16 TY=f16 TILES=2 PIECE=128 STAGES=4 RESIDUAL=f16
// SPDX-License-Identifier: Apache-2.0
// y = act(alpha * a bᵀ + bias) + residual of 1 to 16 rows a in halves and a large b, whose rows lie one behind
// the other, with sums in f32. Copies of b bound its time.
// The blocks that run at once share the tiles, of 16 rows of b each. A block has TILES tiles at a time. A
// producer warp for each copies pieces of PIECE terms of its rows, and of all rows of a, to STAGES stages of
// shared memory. Each of two consumer warps for a tile multiplies a by eight rows of b on tensor cores. It adds
// 16 terms at a time, in order, to one sum from the first term to the last. This order does not depend on m,
// and tile.cuh has the same one.
// frozen: no kernel of the program writes b. Its first stages are copied while the kernel before is
// still at work.
// Defines: dtypes TYPE (of a and b) and TY; TILES, PIECE, STAGES; BIAS, RESIDUAL (dtypes), ALPHA, PRE_ACT,
// ACT(x), or none of them.
//entry: matmul_few_rows = multiply_few_rows(Product, bool)
#include "barrier.cuh"
#include "ends.cuh"
#include "tile.cuh"

typedef TYPE T;
typedef TY Y;

#if __CUDA_ARCH__ >= 900
constexpr int kTiles = TILES, kTileRows = 16, kRows = kTiles * kTileRows;  // of b, of a stage
constexpr int kEach = 8, kWorkers = kRows / kEach;  // rows of b of a consumer warp
constexpr int kThreads = 32 * (kWorkers + kTiles);
constexpr int kRowsOfA = 16 / kTiles;  // of a producer warp
constexpr int kStride = PIECE + 8;     // elements; it sets neighbouring rows four banks apart
constexpr int kStep = 32;              // terms that a warp loads at a time, for two products
static_assert(PIECE % kStep == 0, "steps do not leave a row");

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

// Operands of two products.
struct Terms {
  u32 a[2][4], b[4];
};
__device__ inline void add_first(f32* sum, const Terms& t) {
  multiply_add(sum, t.a[0], t.b[0], t.b[1], T{});
}
__device__ inline void add_second(f32* sum, const Terms& t) {
  multiply_add(sum, t.a[1], t.b[2], t.b[3], T{});
}
// The same of the first `terms`: 8, 16 or 24. Behind them is anything.
__device__ inline void add_some(f32* sum, Terms& t, u32 terms) {
  if (terms == 8) t.a[0][2] = t.a[0][3] = t.b[1] = 0;
  add_first(sum, t);
  if (terms <= 16) return;
  t.a[1][2] = t.a[1][3] = t.b[3] = 0;
  add_second(sum, t);
}

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    multiply_few_rows(const Product p, const bool frozen) {
  extern __shared__ __align__(128) u8 shared[];
  __shared__ __align__(8) u64 barriers[2 * STAGES];
  T* const stages = reinterpret_cast<T*>(shared);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const u32 k = (u32)p.k, n = (u32)p.n, m = (u32)p.m, pieces = (k + PIECE - 1) / PIECE;
  const u32 stage_size = (kRows + m) * kStride;                          // elements
  const u32 full = shared_address(barriers), empty = full + 8 * STAGES;  // copied, read
  if (threadIdx.x == 0) {
#pragma unroll
    for (int s = 0; s < STAGES; ++s)
      barrier_init(full + 8 * s, kTiles), barrier_init(empty + 8 * s, kWorkers);
    barriers_made();
  }
  __syncthreads();

  // By the producer warps: each copies the rows of b of one tile, and some rows of a. A lane copies a row.
  // The barrier counts the bytes of both.
  const int tile = warp - kWorkers, first_of_a = tile * kRowsOfA;
  const auto copy_b = [&](const Place& to) {
    const u32 first = to.first_row(tile), bytes = to.terms(k) * sizeof(T),
              barrier = full + 8 * to.slot;
    const int rows = first < n ? min(n - first, (u32)kTileRows) : 0,
              rows_of_a = max(min((int)m - first_of_a, kRowsOfA), 0);
    if (lane == 0) barrier_expect(barrier, (rows + rows_of_a) * bytes);
    __syncwarp();
    if (lane < rows)
      copy_bytes(
          shared_address(stages + to.slot * stage_size + (tile * kTileRows + lane) * kStride),
          static_cast<const T*>(p.b) + (i64)(first + lane) * k + to.piece * PIECE, bytes, barrier);
  };
  const auto copy_a = [&](const Place& to) {
    const int row = first_of_a + lane;
    if (lane < kRowsOfA && row < m)
      copy_bytes(shared_address(stages + to.slot * stage_size + (kRows + row) * kStride),
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

  // Places of the lane's rows of a and b in a stage, for load_matrices. Rows that a does not have repeat its
  // last one, and their results are dropped.
  const u32 left = (kRows + min(lane % 16, (int)m - 1)) * kStride + lane / 16 * 8,
            right = (warp * kEach + lane % 8) * kStride + lane / 8 * 8;
  f32 sum[4] = {};
  for (; at.first_row(0) < n; at.next(pieces)) {
    barrier_wait(full + 8 * at.slot, at.phase);
    const T* const stage = stages + at.slot * stage_size;
    const auto terms_at = [&](u32 t) {
      Terms terms;
      load_matrices<false>(terms.a[0], stage + left + t);
      load_matrices<false>(terms.b, stage + right + t);
      load_matrices<false>(terms.a[1], stage + left + t + kStep / 2);
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

    const u32 first =
        at.first_row(warp * kEach / kTileRows) + warp * kEach % kTileRows + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const u32 row = i / 2 * 8 + lane / 4, column = first + i % 2;
      const i64 to = (i64)row * p.n + column;
      if (row < m && column < n) static_cast<Y*>(p.y)[to] = finished<Y>(p, sum[i], to, column);
      sum[i] = 0;
    }
  }
}
#else
extern "C" __global__ void multiply_few_rows(const Product, const bool) {}
#endif
