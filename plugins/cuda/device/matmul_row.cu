//variant: TYPE=f16 TY=f16 STAGES=6
//variant: TYPE=bf16 TY=f32 STAGES=4 BIAS=f32 ALPHA=1 PRE_ACT=1 ACT(x)=unary_gelu(x,0.f,0.f)
//variant: TYPE=bf16 TY=bf16 STAGES=2 BIAS=bf16 RESIDUAL=bf16
// SPDX-License-Identifier: Apache-2.0
// y = act(alpha * a bᵀ + bias) + residual of one row a in halves and a large b, whose rows lie one
// behind the other, bound by the copies of b, with sums in f32. The blocks of threads that run at once
// go from tile to tile, of eight rows of b. One warp brings pieces of these rows to STAGES stages of
// shared memory; eight others each multiply one row by a, which lies in shared memory, too. A lane adds its terms in
// order, then lanes are added. This order does not depend on the device.
// frozen: no kernel of the program writes b. Its first stages are copied while the kernel before is
// still at work.
// Defines: dtypes TYPE (of a and b) and TY; BIAS, RESIDUAL (dtypes), ALPHA, PRE_ACT, ACT(x), or none of
// them.
//entry: matmul_row = multiply_one_row(Product, bool)
#include "barrier.cuh"
#include "ends.cuh"
#include "rows.cuh"

typedef TYPE T;
typedef TY Y;

#if __CUDA_ARCH__ >= 900
constexpr int kRows = 8, kThreads = 32 * (kRows + 1), kVec = 8;
constexpr int kPiece = 1024, kStage = kRows * kPiece;  // elements
constexpr int kVectors = kPiece / (32 * kVec);         // of a piece, for a lane

// The order of pieces: all of a tile, then those of the block's next one.
struct Place {
  u32 tile, piece = 0, slot = 0, phase = 0;

  __device__ void next(u32 pieces) {
    if (++piece == pieces) piece = 0, tile += gridDim.x;
    if (++slot == STAGES) slot = 0, phase ^= 1;
  }
};

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    multiply_one_row(const Product p, const bool frozen) {
  extern __shared__ __align__(128) u8 shared[];
  __shared__ __align__(8) u64 barriers[2 * STAGES];
  T* const stages = reinterpret_cast<T*>(shared);
  T* const a = stages + STAGES * kStage;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const u32 k = (u32)p.k, n = (u32)p.n, pieces = (k + kPiece - 1) / kPiece,
            tiles = (n + kRows - 1) / kRows;
  const u32 full = shared_address(barriers), empty = full + 8 * STAGES;  // copied, read
  if (threadIdx.x == 0) {
#pragma unroll
    for (int s = 0; s < STAGES; ++s)
      barrier_init(full + 8 * s, 1), barrier_init(empty + 8 * s, kRows);
    barriers_made();
  }
  __syncthreads();

  // By the copying warp: a lane brings a row.
  const auto copy = [&](const Place& to) {
    const u32 rows = min(n - to.tile * kRows, (u32)kRows),
              bytes = min(k - to.piece * kPiece, (u32)kPiece) * sizeof(T);
    if (lane == 0) barrier_expect(full + 8 * to.slot, rows * bytes);
    __syncwarp();
    if (lane < rows)
      copy_bytes(shared_address(stages + to.slot * kStage + lane * kPiece),
                 static_cast<const T*>(p.b) + (i64)(to.tile * kRows + lane) * k + to.piece * kPiece,
                 bytes, full + 8 * to.slot);
  };
  Place at{blockIdx.x}, copied = at;
  const auto begin_copies = [&] {
    for (int s = 0; s < STAGES && copied.tile < tiles; ++s) copy(copied), copied.next(pieces);
  };
  let_next_begin();
  if (frozen && warp == kRows) begin_copies();
  await_earlier();

  if (warp == kRows) {
    if (!frozen) begin_copies();
    for (; copied.tile < tiles; at.next(pieces)) {
      barrier_wait(empty + 8 * at.slot, at.phase);
      copy(copied), copied.next(pieces);
    }
    return;
  }
  for (u32 i = threadIdx.x * kVec; i < k; i += 32 * kRows * kVec)
    store(a + i, load<T, kVec>(static_cast<const T*>(p.a) + i));
  asm volatile("bar.sync 1, %0;" ::"n"(32 * kRows) : "memory");  // all but the copying warp

  f32 sum[kVectors] = {}, bias = 0, residual = 0;
  for (; at.tile < tiles; at.next(pieces)) {
    const u32 row = at.tile * kRows + warp;
    if (at.piece == 0 && row < n) {
#ifdef BIAS
      bias = widen(static_cast<const BIAS*>(p.bias)[row]);
#endif
#ifdef RESIDUAL
      residual = widen(static_cast<const RESIDUAL*>(p.residual)[row]);
#endif
    }
    barrier_wait(full + 8 * at.slot, at.phase);
    const T* const own = stages + at.slot * kStage + warp * kPiece;
    const u32 first = at.piece * kPiece;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const u32 term = (i * 32 + lane) * kVec;
      if (row >= n || first + term >= k) continue;
      const Vec<T, kVec> x = load<T, kVec>(own + term), y = load<T, kVec>(a + first + term);
#pragma unroll
      for (int e = 0; e < kVec; ++e) sum[i] = fma(widen_at(x, e), widen_at(y, e), sum[i]);
    }
    __syncwarp();
    if (lane == 0) barrier_arrive(empty + 8 * at.slot);
    if (at.piece + 1 < pieces) continue;
    f32 all = 0;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) all += sum[i], sum[i] = 0;
    all = sum_warp<32>(all);
    if (lane > 0 || row >= n) continue;
    const Ends<f32> end = ends(all, (f32)p.alpha, bias, residual);
#ifdef PRE_ACT
    static_cast<Y*>(p.pre_act)[row] = narrow<Y>(end.z);
#endif
    static_cast<Y*>(p.y)[row] = narrow<Y>(end.y);
  }
}
#else
extern "C" __global__ void multiply_one_row(const Product, const bool) {}
#endif
