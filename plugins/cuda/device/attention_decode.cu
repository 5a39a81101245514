// SPDX-License-Identifier: Apache-2.0
// Attention forward of at most 16 query rows per key head (decoding), bound by the copies of keys
// and values. A block takes tiles of 64 keys, every one or one in `splits`: wherever a sequence ends, all
// blocks have about as much to do. Each of its four warps takes 16 keys of a tile, with a pipeline of
// copies of its own. The block joins its warps' sums in order (attention_warps.cuh). The sums of blocks
// are joined by the blocks of a cluster, or by attention_merge.cu; with the same bits.
// Defines: as attention.cuh; DP and VP (dim and v_dim, padded to 16), STAGES (of the pipeline), CLUSTER
// (blocks that join their sums: all splits, or 1).
//variant: TT=bf16 TS=f32 MASK=0 DP=128 VP=128 SPLIT=2 STAGES=3 CLUSTER=1
//variant: TT=bf16 TS=f32 MASK=0 DP=128 VP=128 SPLIT=2 STAGES=3 CLUSTER=8
//variant: TT=f16 TS=f32 MASK=2 DP=64 VP=80 SPLIT=0 SOFTCAP=1 KV_LEN=i32 PAST_LEN=i64 STAGES=2 CLUSTER=1
//variant: TT=bf16 TS=f32 MASK=0 DP=128 VP=128 SPLIT=2 KV_LEN=i64 PAST_LEN=i64 STAGES=3 BLOCK_TABLE=i64 CLUSTER=4
//variant: TT=f16 TS=f32 MASK=1 DP=96 VP=64 SPLIT=0 KV_LEN=i32 STAGES=2 BLOCK_TABLE=i32 CLUSTER=1
#include "attention_merge.cuh"
#include "attention_warps.cuh"
#include "cluster.cuh"

#if __CUDA_ARCH__ >= 800
constexpr int kQStride = DP + 8, kVStride = VP + 8;
constexpr int kStage = kKeys * (kQStride + kVStride);  // elements

// As copy_async, for long runs that are read once: L2 fetches 128 bytes.
__device__ inline void copy_run(void* to, const void* from, bool valid) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
               "l"(from), "r"(valid ? 16 : 0)
               : "memory");
}
// A warp copies kKeys rows of COLS elements; zeros for rows that do not exist and from column `cols`
// on. anywhere: a valid address, named by copies that read nothing.
template <int COLS, class PlaceOf>
__device__ __forceinline__ void load_by_warp(T* to, const void* anywhere, PlaceOf place_of,
                                             int cols) {
  constexpr int kPieces = COLS / 8;
#pragma unroll
  for (int c = threadIdx.x % 32; c < kKeys * kPieces; c += 32) {
    const int row = c / kPieces, col = c % kPieces * 8;
    const Row<T> from = place_of(row);
    const bool real = from.real && col < cols;
    copy_run(to + row * (COLS + 8) + col, real ? from.from + col : anywhere, real);
  }
}

// Tiles from the first one that is attended to, to the block's first.
__device__ inline i32 tiles_ahead(const Attention& p, const QueryTile& tile) {
  const i32 first = tile.keys.first / kSplitStep % p.splits;
  return tile.split >= first ? tile.split - first : tile.split + p.splits - first;
}

extern "C" IN_CLUSTER __global__ void __launch_bounds__(kWarps * 32) attention(const Attention p) {
  extern __shared__ __align__(16) u8 smem[];
  begin_early();
  const QueryTile tile(p, kRows);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const Head& head = tile.head;
  T* stages = (T*)smem + warp * STAGES * kStage;
  static_assert(kWarps * kKeys == kSplitStep, "a tile has 16 keys for each warp");
  const i32 apart = SPLIT ? kSplitStep * p.splits : kSplitStep, last = tile.keys.last;
  const i32 begin =
      tile.keys.first + (SPLIT ? tiles_ahead(p, tile) * kSplitStep : 0) + warp * kKeys;
  const i32 steps = max(last - begin + apart - 1, 0) / apart;
  WarpKeys keys(p, head, begin, last, apart);
  const auto load = [&](i32 step) {
    if (step < steps) {
      T* to = stages + step % STAGES * kStage;
      keys.find(p, head, begin + step * apart, last);
      load_by_warp<DP>(to, p.k, keys.places<T>(p, head, p.k, p.k_strides), p.dim);
      load_by_warp<VP>(to + kKeys * kQStride, p.v, keys.places<T>(p, head, p.v, p.v_strides),
                       p.v_dim);
    }
    copy_commit();
  };
#pragma unroll
  for (int i = 0; i < STAGES - 1; ++i) load(i);

  const QuadRows rows(p, head, 0, tile.end);
  const QueryPlaces places{p, head, p.q, p.q_strides, 0, tile.end};
  const T* const query[2] = {places(rows.row[0]), places(rows.row[1])};
  u32 queries[DP / 16][4];  // as a left operand: both rows, then the same 8 columns further
#pragma unroll
  for (int d = 0; d < DP / 16; ++d)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int col = d * 16 + e / 2 * 8 + lane % 4 * 2;
      queries[d][e] = query[e % 2] && col < p.dim ? *(const u32*)(query[e % 2] + col) : 0;
    }
  f32 o[VP / 2] = {}, row_max[2] = {-infinity(0.f), -infinity(0.f)}, row_sum[2] = {}, rescale[2];
  for (i32 step = 0; step < steps; ++step) {
    copy_wait<STAGES - 2>();
    __syncwarp();
    load(step + STAGES - 1);
    const i32 key = begin + step * apart;
    T *const ks = stages + step % STAGES * kStage, *const vs = ks + kKeys * kQStride;
    f32 s[kKeys / 2] = {};
#pragma unroll
    for (int d = 0; d < DP / 16; ++d) {
      u32 b[4];
      load_right<true>(b, ks, kQStride, 0, d * 16);
      multiply_add(s, queries[d], b[0], b[1], T{});
      multiply_add(s + 4, queries[d], b[2], b[3], T{});
    }
    mask_scores(p, rows, key, s);
    softmax_step<false>(s, kLog2E, row_max, row_sum, rescale);
#pragma unroll
    for (int i = 0; i < VP / 2; ++i) o[i] *= rescale[i / 2 % 2];
    u32 weights[4], rest[4];  // the second product costs no time here
    round_sixteen<true>(s, weights, rest);
#pragma unroll
    for (int d = 0; d < VP; d += 16) {
      u32 b[4];
      load_right<false>(b, vs, kVStride, d, 0);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        multiply_add(o + d / 2 + i * 4, weights, b[i * 2], b[i * 2 + 1], T{});
        multiply_add(o + d / 2 + i * 4, rest, b[i * 2], b[i * 2 + 1], T{});
      }
    }
    __syncwarp();
  }
  copy_wait<0>();
  join_warps<VP>(p, tile, smem, rows, o, row_max, row_sum, quad_column);
#if CLUSTER > 1
  static_assert(kWarps * 32 == kMergeThreads, "a block merges rows");
  __shared__ S maxima[CLUSTER], sums[CLUSTER];
  cluster_arrive();
  cluster_wait();
  const i32 count = p.q_len * p.group;
  for (i32 r = tile.split; r < count; r += CLUSTER) {
    merge_row(p, tile.index, r, maxima, sums);
    __syncthreads();
  }
#endif
}
#endif
