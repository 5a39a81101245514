// SPDX-License-Identifier: Apache-2.0
// A tile of ROWS by 128 sums by 256 threads on tensor cores, from stages of 64 terms in shared memory.
// Operands lie as wgmma reads them, in rows of 128 bytes whose 16-byte pieces are exchanged by
// row % 8. BY_K: rows are those of the tile, with their 64 terms. Else a row is a term, and the tile
// is cut into parts of 64 columns.
#pragma once
#include "wgmma.cuh"

#if __CUDA_ARCH__ >= 800
constexpr int kDepth = 64, kStages = 3, kColumns = 128;
template <int ROWS>
struct Stage {
  static constexpr u32 kLeft = ROWS * 128, kBytes = kLeft + kColumns * 128;
};

// 16 bytes, or a part of them; zeros when not valid.
template <int BYTES>
__device__ inline void copy_part_async(u32 to, const void* from, bool valid) {
  if constexpr (BYTES == 16)
    copy_async(to, from, valid);
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(BYTES),
                 "r"(valid ? BYTES : 0)
                 : "memory");
}
__device__ inline void copy_half_async(u32 to, const void* from, bool valid) {
  copy_part_async<8>(to, from, valid);
}
template <bool ACROSS>
__device__ __forceinline__ void load_four(u32 (&r)[4], u32 address) {
  if (ACROSS)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}
// Where the piece of 8 elements from column `col` of a row lies.
__device__ __forceinline__ u32 piece_by_k(int row, int col) {
  return row * 128 + ((col / 8 ^ row) & 7) * 16;
}
__device__ __forceinline__ u32 piece_across(int row, int col) {
  return col / 64 * (kDepth * 128) + row * 128 + ((col / 8 ^ row) & 7) * 16;
}
// The blocks that load_left and load_right of tile.cuh give.
template <bool BY_K>
__device__ __forceinline__ void left_block(u32 (&r)[4], u32 tile, int i, int k) {
  const int lane = threadIdx.x % 32;
  if (BY_K)
    load_four<false>(r, tile + piece_by_k(i + lane % 16, k + lane / 16 * 8));
  else
    load_four<true>(r, tile + piece_across(k + lane / 16 * 8 + lane % 8, i + lane / 8 % 2 * 8));
}
template <bool BY_K, class T>
__device__ __forceinline__ void right_block(u32 (&r)[4], u32 tile, int j, int k, T) {
  const int lane = threadIdx.x % 32;
  if (BY_K)
    load_four<false>(r, tile + piece_by_k(j + lane / 16 * 8 + lane % 8, k + lane / 8 % 2 * 8));
  else
    load_four<true>(r, tile + piece_across(k + lane / 8 % 2 * 8 + lane % 8, j + lane / 16 * 8));
}
// Bytes across: a row is a term of 128 columns. The transposing load moves two columns of a term
// together, which are then sorted. A lane gets the terms 2t, 2t + 1, 2t + 8 and 2t + 9 (t = lane % 4) of
// each 16, so the left operand has its terms in that order (across_term). The first block has the even
// columns of the 16, the second one the odd columns.
template <bool BY_K, class L, class R>
__device__ __forceinline__ void right_block(u32 (&r)[4], u32 tile, int j, int k, BytePairs<L, R>) {
  if constexpr (BY_K) {
    right_block<true>(r, tile, j, k, u16());
  } else {
    u32 v[4];
    load_four<true>(v, tile + piece_by_k(k * 2 + threadIdx.x % 32, j / 2));
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      r[half] = __byte_perm(v[half * 2], v[half * 2 + 1], 0x6420);
      r[half + 2] = __byte_perm(v[half * 2], v[half * 2 + 1], 0x7531);
    }
  }
}

#if WARPGROUPS && defined(__CUDA_ARCH_FEAT_SM90_ALL)
// Two warpgroups: each has 64 of 128 rows, or half of the columns of 64 rows.
template <int ROWS, class Sum = f32>
struct TileSums {
  static constexpr int kCount = ROWS == 128 ? 64 : 32;
  static constexpr bool kOverlaps = true;  // with what the threads do between begin and end
  static constexpr int kBlocks = ROWS == 128 ? 2 : 3;  // of a multiprocessor
  Sum d[kCount] = {};
  u32 a[kDepth / 16][4];

  static __device__ int group() { return threadIdx.x / 128; }
  static __device__ int row() { return ROWS == 128 ? group() * 64 : 0; }
  static __device__ int column() { return ROWS == 128 ? 0 : group() * 64; }

  // Begins the products of a stage; end() waits for them.
  template <bool A_BY_K, bool B_BY_K, class T>
  __device__ __forceinline__ void begin(u32 left, u32 right) {
    if constexpr (A_BY_K && B_BY_K) {
      settle(d);
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < kDepth; k += 16)
        wgmma(d, tile_name<ROWS>(left, row(), k), tile_name<kColumns>(right, column(), k), true,
              T{});
    } else {
      static_assert(!B_BY_K, "a from registers goes with b as it is stored");
#pragma unroll
      for (int k = 0; k < kDepth; k += 16)
        left_block<A_BY_K>(a[k / 16], left, row() + threadIdx.x / 32 % 4 * 16, k);
      settle(a), settle(d);
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < kDepth; k += 16)
        wgmma(d, a[k / 16], tile_name<kDepth>(right, k, column()), T{});
    }
    wgmma_commit();
  }
  __device__ __forceinline__ void end() {
    wgmma_wait<0>();
    settle(d);
  }
  // put(row, column, two sums of neighbouring columns)
  template <class Put>
  __device__ __forceinline__ void each(Put put) const {
    const int lane = threadIdx.x % 32, first = row() + threadIdx.x / 32 % 4 * 16 + lane / 4;
#pragma unroll
    for (int i = 0; i < kCount; i += 2)
      put(first + i / 2 % 2 * 8, column() + i / 4 * 8 + lane % 4 * 2, d[i], d[i + 1]);
  }
};
__device__ __forceinline__ void stage_is_there() { shared_to_wgmma(); }
#else
// Warps lie 2 x 4 over the tile.
template <int ROWS, class Sum = f32>
struct TileSums {
  static constexpr int kM = ROWS / 2, kN = kColumns / 4;
  static constexpr bool kOverlaps = false;
  static constexpr int kBlocks = ROWS == 128 ? 2 : 3;
  Sum v[kM / 16][kN / 8][4] = {};

  template <bool A_BY_K, bool B_BY_K, class T>
  __device__ __forceinline__ void begin(u32 left, u32 right) {
    const int warp = threadIdx.x / 32, wm = warp / 4 * kM, wn = warp % 4 * kN;
#pragma unroll
    for (int k = 0; k < kDepth; k += 16) {
      u32 a[kM / 16][4], b[kN / 16][4];
#pragma unroll
      for (int i = 0; i < kM / 16; ++i) left_block<A_BY_K>(a[i], left, wm + i * 16, k);
#pragma unroll
      for (int j = 0; j < kN / 16; ++j) right_block<B_BY_K>(b[j], right, wn + j * 16, k, T());
#pragma unroll
      for (int i = 0; i < kM / 16; ++i)
#pragma unroll
        for (int j = 0; j < kN / 8; ++j)
          multiply_add(v[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1], T{});
    }
  }
  __device__ __forceinline__ void end() {}
  template <class Put>
  __device__ __forceinline__ void each(Put put) const {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kM / 16; ++i)
#pragma unroll
      for (int j = 0; j < kN / 8; ++j)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          put(warp / 4 * kM + i * 16 + half * 8 + lane / 4, warp % 4 * kN + j * 8 + lane % 4 * 2,
              v[i][j][half * 2], v[i][j][half * 2 + 1]);
  }
};
__device__ __forceinline__ void stage_is_there() {}
#endif

// fetch(step, left, right) begins to bring a stage and is called once for each step, in order.
template <int ROWS, bool A_BY_K, bool B_BY_K, class T, class Sums, class Fetch>
__device__ __forceinline__ void sum_stages(Sums& sums, u32 shared, int steps, Fetch fetch) {
  const auto bring = [&](int step) {
    const u32 at = shared + step % kStages * Stage<ROWS>::kBytes;
    if (step < steps) fetch(step, at, at + Stage<ROWS>::kLeft);
    copy_commit();
  };
#pragma unroll
  for (int s = 0; s < kStages - 1; ++s) bring(s);
  for (int step = 0; step < steps; ++step) {
    copy_wait<kStages - 2>();
    stage_is_there();
    __syncthreads();
    // The stage that is brought was read by the products before these, which have ended.
    if (!sums.kOverlaps) bring(step + kStages - 1);
    const u32 at = shared + step % kStages * Stage<ROWS>::kBytes;
    sums.template begin<A_BY_K, B_BY_K, T>(at, at + Stage<ROWS>::kLeft);
    if (sums.kOverlaps) bring(step + kStages - 1);
    sums.end();
  }
  copy_wait<0>();
}
#endif
