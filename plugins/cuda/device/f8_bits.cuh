// SPDX-License-Identifier: Apache-2.0
// Numbers of f8e4m3 as f16, for processors without an instruction for it. Plain arithmetic of
// integers: unit.cuda.f8_bits compiles this file for the host.
//variant:
#pragma once
#ifdef __CUDACC__
#include "common.cuh"
#endif

// The two lowest bytes of `codes` as two f16, times 2^-8: subnormals too are the same bits elsewhere.
__device__ inline u32 f8_small(u32 codes) {
  const u32 v = (codes & 0xFFu) << 8 | (codes & 0xFF00u) << 16;
  return (v & 0x7F007F00u) >> 1 | (v & 0x80008000u);
}
// What makes NaN of those f16, times 2^8, that were NaN: their bits then are those of 480.
__device__ inline u32 f8_nan_bits(u32 codes) {
  const u32 magnitude = (codes & 0x7Fu) << 8 | (codes & 0x7F00u) << 16;
  return ((magnitude + 0x01000100u) >> 15 & 0x00010001u) * 0x7C00u;
}
