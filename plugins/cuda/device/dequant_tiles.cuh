//variant: FORMAT=12 ALIGN=16 TYPE=f16
//variant: FORMAT=8 ALIGN=16 TYPE=bf16
// SPDX-License-Identifier: Apache-2.0
// Blocks of quantized weights as left operands of mma, and rows of x as right ones. A lane decodes a
// unit: with its three neighbours, which share its scales, it makes the 16 terms of an mma from each
// run. Which term stands where is the same for both operands, and the sum does not mind.
#pragma once
#include "blocks.cuh"

typedef TYPE X;

#if __CUDA_ARCH__ >= 800
constexpr int kQuads = kUnits / 4;  // of a block: four units each
// Runs of a unit that share a scale, and those that are neighbours in memory.
constexpr bool kOwnScales = FORMAT == kQ2_K || FORMAT == kQ3_K || FORMAT == kQ6_K;
constexpr int kGroup = kOwnScales ? 1 : FORMAT == kQ4_K || FORMAT == kQ5_K ? 2 : kRuns;
constexpr bool kNeighbours = FORMAT == kQ4_K || FORMAT == kQ5_K || FORMAT == kQ8_0 ||
                             FORMAT == kQ8_1 || FORMAT == kQ8_K || FORMAT == kTQ1_0 ||
                             FORMAT == kQ1_0 || FORMAT == kQ2_0;
static_assert(FORMAT != kNVFP4 && kUnits % 4 == 0, "four units next to each other share scales");

// The levels of a run without their bias. Both dtypes hold whole numbers of 8 bits exactly.
struct Pairs {
  u32 low, high;
};
__device__ inline Pairs pairs(u32 levels, f16) {  // 1024 and a byte, less 1024 and the bias
  const u32 bias = (0x6400u + kFormat.bias) * 0x10001u;
  Pairs p;
  asm("sub.f16x2 %0, %1, %2;"
      : "=r"(p.low)
      : "r"(__byte_perm(levels, 0x64646464u, 0x4140)), "r"(bias));
  asm("sub.f16x2 %0, %1, %2;"
      : "=r"(p.high)
      : "r"(__byte_perm(levels, 0x64646464u, 0x4342)), "r"(bias));
  return p;
}
__device__ inline Pairs pairs(u32 levels, bf16) {
  if constexpr (kFormat.bias == 128) {  // levels of 8 bits
    return {narrow_pair(level(levels, 0), level(levels, 1), bf16{}),
            narrow_pair(level(levels, 2), level(levels, 3), bf16{})};
  } else {  // 128 and a byte, less 128 and the bias
    const u32 one = 0x3F803F80u, bias = (0xC300u + kFormat.bias) * 0x10001u;
    Pairs p;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;"
        : "=r"(p.low)
        : "r"(__byte_perm(levels, 0x43434343u, 0x4140)), "r"(one), "r"(bias));
    asm("fma.rn.bf16x2 %0, %1, %2, %3;"
        : "=r"(p.high)
        : "r"(__byte_perm(levels, 0x43434343u, 0x4342)), "r"(one), "r"(bias));
    return p;
  }
}

// What a lane gives to the right operands of its unit's runs: words 2r and 2r + 1 for run r.
constexpr int kPieces = kRuns / 2;  // of 16 bytes
struct Right {
  Vec<u32, 4> piece[kPieces];
};
__device__ inline Right right_of(const X* block, int unit) {
  Right to;
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
    const u32* const from = reinterpret_cast<const u32*>(block + run_at(unit, 2 * i));
    if constexpr (kNeighbours) {
      to.piece[i] = load<u32, 4>(from);
    } else {
      const u32* const next = reinterpret_cast<const u32*>(block + run_at(unit, 2 * i + 1));
      const Vec<u32, 2> a = load<u32, 2>(from), b = load<u32, 2>(next);
      to.piece[i] = {a.v[0], a.v[1], b.v[0], b.v[1]};
    }
  }
  return to;
}
#endif
