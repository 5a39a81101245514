//variant: FORMAT=12 ALIGN=16
//variant: FORMAT=39 ALIGN=1
//variant: FORMAT=128 ALIGN=16
// SPDX-License-Identifier: Apache-2.0
// Blocks of quantized weights: FORMAT is the dtype less 0x100, in GGUF files the number of the format,
// and blocks begin on multiples of ALIGN bytes where their size allows it. A thread decodes a unit: the
// elements that share some bytes, in runs of four. An element is scale · level + add. Levels are whole
// numbers of at most 8 bits, but those of f8e4m3_128 are f8e4m3.
#pragma once
#include "common.cuh"
#include "f8_bits.cuh"

constexpr int kQ4_0 = 2, kQ4_1 = 3, kQ5_0 = 6, kQ5_1 = 7, kQ8_0 = 8, kQ8_1 = 9, kQ2_K = 10,
              kQ3_K = 11, kQ4_K = 12, kQ5_K = 13, kQ6_K = 14, kQ8_K = 15, kIQ4_NL = 20,
              kIQ4_XS = 23, kTQ1_0 = 34, kTQ2_0 = 35, kMXFP4 = 39, kNVFP4 = 40, kQ1_0 = 41,
              kQ2_0 = 42, kF8E4M3_128 = 128;

struct Format {
  int elements, bytes;
  int runs;        // of a unit
  int bias;        // of the levels, which are kept as bytes from 0 on
  int scale;       // where the scale of the block is
  int levels;      // where the levels begin
  int least = -1;  // where the scale of minimums is
};
constexpr Format format_of(int format) {
  switch (format) {
    case kQ4_0:
      return {32, 18, 2, 8, 0, 2};
    case kQ4_1:
      return {32, 20, 2, 0, 0, 4, 2};
    case kQ5_0:
      return {32, 22, 2, 16, 0, 6};
    case kQ5_1:
      return {32, 24, 2, 0, 0, 8, 2};
    case kQ8_0:
      return {32, 34, 2, 128, 0, 2};
    case kQ8_1:
      return {32, 36, 2, 128, 0, 4};
    case kQ2_K:
      return {256, 84, 4, 0, 80, 16, 82};
    case kQ3_K:
      return {256, 110, 4, 4, 108, 32};
    case kQ4_K:
      return {256, 144, 4, 0, 0, 16, 2};
    case kQ5_K:
      return {256, 176, 4, 0, 0, 48, 2};
    case kQ6_K:
      return {256, 210, 4, 32, 208, 0};
    case kQ8_K:
      return {256, 292, 2, 128, 0, 4};
    case kIQ4_NL:
      return {32, 18, 2, 128, 0, 2};
    case kIQ4_XS:
      return {256, 136, 2, 128, 0, 8};
    case kTQ1_0:
      return {256, 54, 2, 1, 52, 0};
    case kTQ2_0:
      return {256, 66, 4, 1, 64, 0};
    case kMXFP4:
      return {32, 17, 2, 12, 0, 1};
    case kNVFP4:
      return {64, 36, 2, 12, 0, 4};
    case kQ1_0:
      return {128, 18, 4, 1, 0, 2};
    case kQ2_0:
      return {64, 18, 4, 1, 0, 2};
    case kF8E4M3_128:
      return {128, 132, 4, 0, 0, 4};
    default:
      return {0, 0, 0, 0, 0, 0};
  }
}
constexpr Format kFormat = format_of(FORMAT);
static_assert(kFormat.elements > 0, "a format that is decoded");
constexpr int kElements = kFormat.elements, kBytes = kFormat.bytes, kRuns = kFormat.runs;
constexpr int kUnit = 4 * kRuns, kUnits = kElements / kUnit;
constexpr bool kAdds = kFormat.least >= 0;
constexpr int kQuads = kUnits / 4;  // of a block: four units each, which share scales
// Each run of a unit has its own scale.
constexpr bool kOwnScales = FORMAT == kQ2_K || FORMAT == kQ3_K || FORMAT == kQ6_K;

// The alignment of a field of a block, whose position is a multiple of `at`'s alignment.
constexpr int low_bit(int n) { return n == 0 ? 16 : n & -n; }
constexpr int alignment_of(int at) {
  const int block = low_bit(kBytes) < ALIGN ? low_bit(kBytes) : ALIGN;
  return low_bit(at) < block ? low_bit(at) : block;
}

// Four bytes from `p`, which is as aligned as the field at AT.
template <int AT>
__device__ inline u32 word(const u8* p) {
  if constexpr (alignment_of(AT) >= 4) {
    return *reinterpret_cast<const u32*>(p);
  } else if constexpr (alignment_of(AT) == 2) {
    const u16* const half = reinterpret_cast<const u16*>(p);
    return half[0] | (u32)half[1] << 16;
  } else {
    return p[0] | (u32)p[1] << 8 | (u32)p[2] << 16 | (u32)p[3] << 24;
  }
}
template <int AT>
__device__ inline Vec<u32, 2> two_words(const u8* p) {
  if constexpr (alignment_of(AT) >= 8)
    return load<u32, 2>(reinterpret_cast<const u32*>(p));
  else
    return {word<AT>(p), word<AT>(p + 4)};
}
template <int AT>
__device__ inline u32 half_word(const u8* p) {
  if constexpr (alignment_of(AT) >= 2)
    return *reinterpret_cast<const u16*>(p);
  else
    return p[0] | (u32)p[1] << 8;
}

// Bits 0 to 3, each to the lowest bit of a byte.
__device__ inline u32 spread(u32 bits) { return (bits & 15) * 0x00204081u & 0x01010101u; }

// The bytes of a table of 16 that the nibbles of four bytes choose: low ones, high ones.
struct Chosen {
  u32 low, high;
};
__device__ inline Chosen choose(u32 nibbles, u32 t0, u32 t1, u32 t2, u32 t3) {
  const u32 at = nibbles & 0x77777777u;
  const u32 first = __byte_perm(t0, t1, at), next = __byte_perm(t0, t1, at >> 16);
  const u32 first_upper = __byte_perm(t2, t3, at), next_upper = __byte_perm(t2, t3, at >> 16);
  const u32 low_mask = (nibbles >> 3 & 0x01010101u) * 255,
            high_mask = (nibbles >> 7 & 0x01010101u) * 255;
  Chosen c;
  c.low = (__byte_perm(first, next, 0x6420) & ~low_mask) |
          (__byte_perm(first_upper, next_upper, 0x6420) & low_mask);
  c.high = (__byte_perm(first, next, 0x7531) & ~high_mask) |
           (__byte_perm(first_upper, next_upper, 0x7531) & high_mask);
  return c;
}

// A unit: four levels in the bytes of a word, for each run.
struct Unit {
  u32 levels[kRuns];
  f32 scale[kRuns], add[kRuns];
};

// Where a run of a unit begins in its block.
__device__ inline int run_at(int unit, int run) {
  switch (FORMAT) {
    case kQ2_K:
    case kQ3_K:
    case kQ6_K:
    case kTQ2_0:
      return unit / 8 * 128 + run * 32 + unit % 8 * 4;
    case kQ4_K:
    case kQ5_K:
      return unit / 4 * 64 + run / 2 * 32 + unit % 4 * 8 + run % 2 * 4;
    case kQ8_0:
    case kQ8_1:
    case kQ8_K:
    case kTQ1_0:
    case kQ1_0:
    case kQ2_0:
      return unit * kUnit + run * 4;
    case kNVFP4:
      return unit / 2 * 16 + unit % 2 * 4 + run * 8;
    case kF8E4M3_128:  // four units share 64 elements: so do their lanes, without bank conflicts
      return unit / 4 * 64 + run * 16 + unit % 4 * 4;
    default:
      return unit / 4 * 32 + unit % 4 * 4 + run * 16;
  }
}

__device__ inline f32 half_at(const u8* block, int at) {
  return f16_to_f32((u16)half_word<2>(block + at));
}
// The scale of nvfp4: 0x7f is 0, and of all others bit 7 is not read.
__device__ inline f32 ue4m3(u32 code) {
  if (code == 0x7f) return 0;
  const u32 exponent = code >> 3 & 15, mantissa = code & 7;
  return exponent == 0 ? (f32)mantissa * 0.001953125f
                       : __uint_as_float((exponent + 120) << 23 | mantissa << 20);
}

// What the blocks of q4_k and q5_k begin with.
struct BlockHead {
  f32 scale, least;
  u32 six[3];  // numbers of six bits
};
__device__ inline BlockHead head_of(const u8* block) {
  Vec<u32, 4> head;
  if constexpr (alignment_of(0) >= 16) {
    head = load<u32, 4>(reinterpret_cast<const u32*>(block));
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) head.v[i] = word<4>(block + 4 * i);
  }
  return {f16_to_f32((u16)head.v[0]),
          f16_to_f32((u16)(head.v[0] >> 16)),
          {head.v[1], head.v[2], head.v[3]}};
}
// Bytes of scales and minimums from the bytes of the same groups of the three words of a head, or, if
// not `first`, of the four groups before.
struct SixBits {
  u32 scales, mins;
};
__device__ inline SixBits six_bits(u32 a, u32 b, u32 c, bool first) {
  constexpr u32 kSix = 0x3F3F3F3Fu, kFour = 0x0F0F0F0Fu, kTwo = 0x30303030u;
  return {first ? a & kSix : (c & kFour) | (a >> 2 & kTwo),
          first ? b & kSix : (c >> 4 & kFour) | (b >> 2 & kTwo)};
}
// The scale, of six bits, of the 16 elements `group` of q3_k.
__device__ inline int q3_k_scale(const u8* scales, int group) {
  const int low = group < 8 ? scales[group] & 15 : scales[group - 8] >> 4;
  return (low | (scales[8 + group % 4] >> 2 * (group / 4) & 3) << 4) - 32;
}
// Four elements of tq1_0 from element i on. A byte holds five as a number of base 3, in 256ths.
__device__ inline u32 tq1_0_levels(const u8* block, int i) {
  const int at = i < 160 ? i % 32 : i < 240 ? 32 + (i - 160) % 16 : 48;
  const int digit = i < 160 ? i / 32 : i < 240 ? (i - 160) / 16 : (i - 240) / 4;
  const u32 power = digit == 0 ? 1 : digit == 1 ? 3 : digit == 2 ? 9 : digit == 3 ? 27 : 81;
  const u32 bytes = word<4>(block + at), mask = 0x00FF00FFu;
  const u32 even = (bytes & mask) * power & mask, odd = (bytes >> 8 & mask) * power & mask;
  return (even * 3 >> 8 & mask) | (odd * 3 >> 8 & mask) << 8;
}

// Products are rounded once: scale · level + add then has the bits of every reader of the format.
__device__ inline Unit decode(const u8* block, int unit) {
  constexpr u32 kNibbles = 0x0F0F0F0Fu, kPairs = 0x03030303u, kOnes = 0x01010101u,
                kSigns = 0x80808080u;
  constexpr int kLevels = kFormat.levels, kScale = kFormat.scale;
  Unit v;
  const auto all = [&](f32 scale, f32 add) {
#pragma unroll
    for (int r = 0; r < kRuns; ++r) v.scale[r] = scale, v.add[r] = add;
  };
  if constexpr (FORMAT == kQ4_0 || FORMAT == kQ4_1 || FORMAT == kQ5_0 || FORMAT == kQ5_1) {
    const u32 w = word<kLevels>(block + kLevels + 4 * unit);
    v.levels[0] = w & kNibbles, v.levels[1] = w >> 4 & kNibbles;
    if constexpr (FORMAT == kQ5_0 || FORMAT == kQ5_1) {
      const u32 high = word<kLevels - 4>(block + kLevels - 4) >> 4 * unit;
      v.levels[0] |= spread(high) << 4, v.levels[1] |= spread(high >> 16) << 4;
    }
    all(half_at(block, kScale), kAdds ? half_at(block, kFormat.least) : 0.0f);
  } else if constexpr (FORMAT == kQ8_0 || FORMAT == kQ8_1 || FORMAT == kQ8_K) {
#pragma unroll
    for (int r = 0; r < 2; ++r)
      v.levels[r] = word<kLevels>(block + kLevels + 8 * unit + 4 * r) ^ kSigns;
    all(FORMAT == kQ8_K ? __uint_as_float(word<0>(block)) : half_at(block, 0), 0);
  } else if constexpr (FORMAT == kF8E4M3_128) {
#pragma unroll
    for (int r = 0; r < kRuns; ++r) v.levels[r] = word<kLevels>(block + kLevels + run_at(unit, r));
    all(__uint_as_float(word<0>(block)), 0);
  } else if constexpr (FORMAT == kIQ4_NL || FORMAT == kIQ4_XS) {
    // The levels of both and 128: 1 24 45 63 79 93 106 118 129 141 153 166 181 197 217 241.
    const Chosen c = choose(word<kLevels>(block + kLevels + 4 * unit), 0x3F2D1801u, 0x766A5D4Fu,
                            0xA6998D81u, 0xF1D9C5B5u);
    v.levels[0] = c.low, v.levels[1] = c.high;
    f32 scale = half_at(block, 0);
    if constexpr (FORMAT == kIQ4_XS) {
      const int group = unit / 4;
      const int own = (block[4 + group / 2] >> group % 2 * 4 & 15) |
                      (half_word<2>(block + 2) >> 2 * group & 3) << 4;
      scale = __fmul_rn(scale, (f32)(own - 32));
    }
    all(scale, 0);
  } else if constexpr (FORMAT == kMXFP4 || FORMAT == kNVFP4) {
    // Twice a float of 4 bits, and 12: 12 13 14 15 16 18 20 24, 12 11 10 9 8 6 4 0.
    const Chosen c = choose(word<kLevels>(block + kLevels + 4 * unit), 0x0F0E0D0Cu, 0x18141210u,
                            0x090A0B0Cu, 0x00040608u);
    v.levels[0] = c.low, v.levels[1] = c.high;
    const u32 code = block[FORMAT == kNVFP4 ? unit / 2 : 0];
    // 2^(code - 128), subnormal for codes 0 and 1.
    all(FORMAT == kNVFP4 ? ue4m3(code) * 0.5f
                         : __uint_as_float(code < 2 ? 0x200000u << code : (code - 1) << 23),
        0);
  } else if constexpr (FORMAT == kQ1_0) {
    const u32 bits = half_word<kLevels>(block + kLevels + 2 * unit);
#pragma unroll
    for (int r = 0; r < 4; ++r) v.levels[r] = spread(bits >> 4 * r) << 1;
    all(half_at(block, 0), 0);
  } else if constexpr (FORMAT == kQ2_0) {
    const u32 w = word<kLevels>(block + kLevels + 4 * unit);
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const u32 pairs = w >> 8 * r & 255;
      v.levels[r] = (pairs | pairs << 6 | pairs << 12 | pairs << 18) & kPairs;
    }
    all(half_at(block, 0), 0);
  } else if constexpr (FORMAT == kTQ1_0) {
#pragma unroll
    for (int r = 0; r < 2; ++r) v.levels[r] = tq1_0_levels(block, 8 * unit + 4 * r);
    all(half_at(block, kScale), 0);
  } else if constexpr (FORMAT == kQ2_K || FORMAT == kQ3_K || FORMAT == kTQ2_0) {
    const int n = unit / 8, l = unit % 8 * 4;
    const u32 w = word<kLevels>(block + kLevels + 32 * n + l);
    const f32 scale = half_at(block, kScale), least = kAdds ? half_at(block, kFormat.least) : 0.0f;
    all(scale, 0);
    const u32 high = FORMAT == kQ3_K ? word<4>(block + l) >> 4 * n : 0;
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      v.levels[r] = w >> 2 * r & kPairs;
      [[maybe_unused]] const int group = 8 * n + 2 * r + l / 16;
      if constexpr (FORMAT == kQ2_K) {
        const int own = block[group];
        v.scale[r] = __fmul_rn(scale, (f32)(own & 15));
        v.add[r] = -__fmul_rn(least, (f32)(own >> 4));
      }
      if constexpr (FORMAT == kQ3_K) {
        v.levels[r] |= (high >> r & kOnes) << 2;
        v.scale[r] = __fmul_rn(scale, (f32)q3_k_scale(block + 96, group));
      }
    }
  } else if constexpr (FORMAT == kQ4_K || FORMAT == kQ5_K) {
    const int part = unit / 4, l = unit % 4 * 8;
    const BlockHead head = head_of(block);
    const int shift = part % 2 * 16;  // of the 64 elements at 64 · part
    const SixBits numbers =
        six_bits(head.six[0] >> shift, head.six[1] >> shift, head.six[2] >> shift, part < 2);
    const Vec<u32, 2> words = two_words<kLevels>(block + kLevels + 32 * part + l);
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const int upper = r / 2;
      v.levels[r] = words.v[r % 2] >> 4 * upper & kNibbles;
      if constexpr (FORMAT == kQ5_K)
        v.levels[r] |= (word<16>(block + 16 + l + r % 2 * 4) >> (2 * part + upper) & kOnes) << 4;
      v.scale[r] = __fmul_rn(head.scale, (f32)(numbers.scales >> 8 * upper & 255));
      v.add[r] = -__fmul_rn(head.least, (f32)(numbers.mins >> 8 * upper & 255));
    }
  } else if constexpr (FORMAT == kQ6_K) {
    const int n = unit / 8, l = unit % 8 * 4;
    const u32 high = word<4>(block + 128 + 32 * n + l);
    const f32 scale = half_at(block, kScale);
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const u32 low = word<4>(block + 64 * n + r % 2 * 32 + l) >> r / 2 * 4;
      v.levels[r] = (low & kNibbles) | (high >> 2 * r & kPairs) << 4;
      v.scale[r] = __fmul_rn(scale, (f32)(i8)block[192 + 8 * n + 2 * r + l / 16]);
      v.add[r] = 0;
    }
  }
  return v;
}

// Two numbers of f16 from the f8e4m3 in the two lowest bytes of a word. All are exact, NaN stays NaN.
__device__ inline u32 f8_pair(u32 codes) {
#if __CUDA_ARCH__ >= 900
  u32 y;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(y) : "h"((u16)codes));
  return y;
#else
  constexpr u32 kTwoToThe8th = 0x5C005C00u;
  u32 y;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(y) : "r"(f8_small(codes)), "r"(kTwoToThe8th));
  return y | f8_nan_bits(codes);
#endif
}

// The level of byte i of a run. Whole numbers: 2^23 and the byte, less both biases.
__device__ inline f32 level(u32 levels, int i) {
  if constexpr (FORMAT == kF8E4M3_128)
    return f16_to_f32((u16)(f8_pair(levels >> i / 2 * 16) >> i % 2 * 16));
  constexpr f32 kBias = 8388608.0f + kFormat.bias;
  return __uint_as_float(__byte_perm(levels, 0x4B000000u, 0x7440 | i)) - kBias;
}
