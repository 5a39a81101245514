// SPDX-License-Identifier: Apache-2.0
// Keys and values in blocks of q8_0 as halves, for kernels of many query rows: those that any query of a batch entry
// may attend to, in order, [batch, k_len, k_heads, dim]. What they leave between is not written. A warp takes a key
// of all heads. Each element is rounded once.
// Defines: as attention.cuh; DIM and V_DIM, multiples of 32. Strides of keys and values count bytes.
//variant: TT=bf16 TS=f32 MASK=0 DIM=128 V_DIM=128
//variant: TT=f16 TS=f32 MASK=0 DIM=64 V_DIM=96 KV_LEN=i64 PAST_LEN=i64 BLOCK_TABLE=i32
#include "attention.cuh"

constexpr int kThreads = 256, kElements = 32, kBytes = 34;

// Eight elements of a row from column `col` on.
__device__ __forceinline__ void dequantize_eight(const u8* row, int col, T* to) {
  const u16* const block = (const u16*)(row + col / kElements * kBytes);  // blocks lie on 2 bytes
  const u16* const levels = block + 1 + col % kElements / 2;
  const f32 scale = f16_to_f32(block[0]);
  Vec<T, 8> y;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const u32 two = levels[i];
    y.v[i * 2] = narrow<T>(scale * (f32)(i8)two), y.v[i * 2 + 1] = narrow<T>(scale * (f32)(i8)(two >> 8));
  }
  store(to, y);
}

// blocks_each: blocks of threads for a batch entry.
extern "C" __global__ void __launch_bounds__(kThreads)
    dequantize(const Attention p, T* keys, T* values, const u32 blocks_each) {
  begin_early();
  const i32 batch = blockIdx.x / blocks_each, part = blockIdx.x % blocks_each;
  const int lane = threadIdx.x % 32;
#ifdef BLOCK_TABLE
  if (part == 0) check_blocks(p, batch);
#endif
  // Tiles of the kernels begin at multiples of kSplitStep.
  const i32 first = wide_limits(p, batch, 0).first / kSplitStep * kSplitStep,
            last = wide_limits(p, batch, p.q_len - 1).last;
  constexpr int kOfKey = DIM / 8, kOfValue = V_DIM / 8, kWarps = kThreads / 32;
  for (i32 key = first + part * kWarps + (i32)threadIdx.x / 32; key < last; key += blocks_each * kWarps) {
    i32 line = key, outer = batch;
#ifdef BLOCK_TABLE
    line = line_of(p, batch, key), outer = 0;
#endif
    const i64 row = ((i64)batch * p.k_len + key) * p.k_heads;
    const auto write = [&](const void* from, const Strides& strides, int of_row, int dim, T* to) {
      for (i32 u = lane; u < p.k_heads * of_row; u += 32) {
        const i32 head = u / of_row, col = u % of_row * 8;
        T* const place = to + (row + head) * dim + col;
        if (line < 0)
          store(place, Vec<T, 8>{});
        else
          dequantize_eight((const u8*)from + at(strides, outer, head, line), col, place);
      }
    };
    write(p.k, p.k_strides, kOfKey, DIM, keys);
    write(p.v, p.v_strides, kOfValue, V_DIM, values);
  }
}
