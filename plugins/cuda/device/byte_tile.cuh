// SPDX-License-Identifier: Apache-2.0
// Products of 8-bit integers by the tiles of conv_tile.cuh (from sm_80 on). Two neighbouring terms
// count as one element of 16 bits there: the tensor cores want the same bytes in the same places.
#pragma once
#include "conv_tile.cuh"

#if __CUDA_ARCH__ >= 800
// By mma.sync. ACROSS: the right operand is stored by terms (right_block). COLUMN_SUMS: with the
// sums of its columns, which are its product with ones.
template <int ROWS, bool ACROSS, bool COLUMN_SUMS>
struct ByteSums : TileSums<ROWS, u32> {
  typedef TileSums<ROWS, u32> Base;
  static constexpr int kBlocks = COLUMN_SUMS ? 2 : Base::kBlocks;
  u32 columns[COLUMN_SUMS ? Base::kN / 8 : 1][4] = {};

  template <bool A_BY_K, bool B_BY_K, class T>
  __device__ __forceinline__ void begin(u32 left, u32 right) {
    Base::template begin<A_BY_K, B_BY_K, T>(left, right);
    if constexpr (COLUMN_SUMS) {
      const u32 ones[4] = {0x01010101, 0x01010101, 0x01010101, 0x01010101};
#pragma unroll
      for (int k = 0; k < kDepth; k += 16)
#pragma unroll
        for (int j = 0; j < Base::kN; j += 16) {
          u32 b[4];
          right_block<B_BY_K>(b, right, threadIdx.x / 32 % 4 * Base::kN + j, k, T());
          multiply_add(columns[j / 8], ones, b[0], b[1], T());
          multiply_add(columns[j / 8 + 1], ones, b[2], b[3], T());
        }
    }
  }
  // put(column, sums of this column and the next) for a row of two blocks side by side.
  template <class Put>
  static __device__ __forceinline__ void each_of(int column, const u32* first, const u32* second,
                                                 Put put) {
    const int t = threadIdx.x % 4;
    if constexpr (ACROSS) {
      put(column + t * 4, first[0], second[0]);
      put(column + t * 4 + 2, first[1], second[1]);
    } else {
      put(column + t * 2, first[0], first[1]);
      put(column + t * 2 + 8, second[0], second[1]);
    }
  }
  // As in TileSums.
  template <class Put>
  __device__ __forceinline__ void each(Put put) const {
    const int warp = threadIdx.x / 32, row = warp / 4 * Base::kM + threadIdx.x % 32 / 4;
#pragma unroll
    for (int i = 0; i < Base::kM / 16; ++i)
#pragma unroll
      for (int j = 0; j < Base::kN / 8; j += 2)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          each_of(warp % 4 * Base::kN + j * 8, this->v[i][j] + half * 2,
                  this->v[i][j + 1] + half * 2, [&](int column, u32 first, u32 second) {
                    put(row + i * 16 + half * 8, column, first, second);
                  });
  }
  // put(column, sums of this column and the next)
  template <class Put>
  __device__ __forceinline__ void each_column(Put put) const {
    if (threadIdx.x >= 128 || threadIdx.x % 32 >= 4) return;
#pragma unroll
    for (int j = 0; j < Base::kN / 8; j += 2)
      each_of(threadIdx.x / 32 * Base::kN + j * 8, columns[j], columns[j + 1], put);
  }
};

// 16 channels of a pixel outside of x: its zero point, zeros behind the last of `channels`.
__device__ __forceinline__ void store_padding(u32 to, u32 zero, i32 channels) {
  u32 words[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const i32 left = channels - 4 * k;
    const u32 all = (zero & 255) * 0x01010101;
    words[k] = left >= 4 ? all : left <= 0 ? 0 : all & ((1u << left * 8) - 1);
  }
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(words[0]), "r"(words[1]),
               "r"(words[2]), "r"(words[3])
               : "memory");
}
#endif
