//variant: FORMAT=12 ALIGN=16 WHOLE=1
//variant: FORMAT=14 ALIGN=16 WHOLE=0
// SPDX-License-Identifier: Apache-2.0
// Copies blocks of 16 rows of w to shared memory, 256 terms at a time.
#pragma once
#include "async.cuh"
#include "blocks.cuh"

#if __CUDA_ARCH__ >= 800
// A span: 256 terms of a row. It may begin anywhere in its first 16 bytes, unless WHOLE: all spans
// then are whole vectors.
constexpr int kSpan = 256, kSpanBlocks = kSpan / kElements, kSpanBytes = kSpanBlocks * kBytes;
constexpr int kRows = 16;  // of w
constexpr int kVectors = WHOLE ? kSpanBytes / 16 : (kSpanBytes + 30) / 16;
// Rows begin four banks apart.
constexpr int kStride = ((kVectors * 16 - 16 + 127) / 128 * 8 + 1) * 16;
constexpr int kStageBytes = kRows * kStride;

// The two rows of w of a lane: those of its line.
struct RowsOfW {
  const u8* of[2];

  // Bytes before a span in its first vector.
  __device__ static u32 ahead(const u8* span) { return WHOLE ? 0 : (u32)(u64)span & 15; }
  // Copies a span to shared memory, where the lane's first row begins at `to`; `end`: behind w.
  __device__ void copy(u32 to, u32 span, const u8* end) const {
    const int part = threadIdx.x % 4;  // the lanes of a line share its vectors
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const u8* const from = of[i] + (i64)span * kSpanBytes;
      const u8* const vectors = from - ahead(from) + part * 16;
#pragma unroll
      for (int k = 0; k < kVectors; k += 4) {
        if (k + part >= kVectors) break;
        const u32 at = to + i * 8 * kStride + k * 16;
        if constexpr (WHOLE) {
          copy_async(at, vectors + k * 16, true);
        } else {
          const u8* const v = vectors + k * 16;
          // Nothing of it may be needed, or to be had.
          const i64 left = v < from + kSpanBytes ? end - v : 0;
          const int bytes = left <= 0 ? 0 : left < 16 ? (int)left : 16;
          asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at),
                       "l"(bytes ? v : of[0] - ahead(of[0])), "r"(bytes)
                       : "memory");
        }
      }
    }
  }
};
#endif
