//variant: FORMAT=12 ALIGN=16 TYPE=f16
//variant: FORMAT=8 ALIGN=16 TYPE=bf16
//variant: FORMAT=128 ALIGN=16 TYPE=f16
//variant: FORMAT=128 ALIGN=16 TYPE=bf16
// SPDX-License-Identifier: Apache-2.0
// Blocks of quantized weights as left operands of mma, and rows of x as right ones. A lane decodes a
// unit: with its three neighbours, which share its scales, it makes the 16 terms of an mma from each
// run. Which term stands where is the same for both operands, and the sum does not mind.
#pragma once
#include "blocks.cuh"

typedef TYPE X;

#if __CUDA_ARCH__ >= 800
// Runs of a unit that share a scale, and those that are neighbours in memory.
constexpr int kGroup = kOwnScales ? 1 : FORMAT == kQ4_K || FORMAT == kQ5_K ? 2 : kRuns;
constexpr int kGroups = kRuns / kGroup;
constexpr bool kNeighbours = FORMAT == kQ4_K || FORMAT == kQ5_K || FORMAT == kQ8_0 ||
                             FORMAT == kQ8_1 || FORMAT == kQ8_K || FORMAT == kTQ1_0 ||
                             FORMAT == kQ1_0 || FORMAT == kQ2_0;
static_assert(FORMAT != kNVFP4 && kUnits % 4 == 0, "four units next to each other share scales");

// The left operand of a run: its elements 0 and 2, and 1 and 3, without the bias of levels. Both dtypes
// hold whole numbers of 8 bits, and those of f8e4m3, exactly.
struct Pairs {
  u32 low, high;
};
__device__ inline u32 less(u32 a, u32 b, f16) {
  u32 y;
  asm("sub.f16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
  return y;
}
__device__ inline u32 less(u32 a, u32 b, bf16) {
  const u32 one = 0x3F803F80u, minus = 0x80008000u;
  u32 y;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(a), "r"(one), "r"(b ^ minus));
  return y;
}
// 2^10 and 2^7: added to them, whole numbers are the lowest bits of a float.
__device__ constexpr u32 whole_numbers(f16) { return 0x64006400u; }
__device__ constexpr u32 whole_numbers(bf16) { return 0x43004300u; }

__device__ inline Pairs pairs(u32 levels, f16) {
  if constexpr (FORMAT == kF8E4M3_128) {
    const u32 codes = __byte_perm(levels, 0, 0x3120);
    return {f8_pair(codes), f8_pair(codes >> 16)};
  }
  const u32 base = whole_numbers(f16{}), bias = base + kFormat.bias * 0x10001u;
  return {less(__byte_perm(levels, base, 0x5250), bias, f16{}),
          less(__byte_perm(levels, base, 0x5351), bias, f16{})};
}
__device__ inline Pairs pairs(u32 levels, bf16) {
  if constexpr (kFormat.bias == 128 || FORMAT == kF8E4M3_128) {  // levels of 8 bits
    return {narrow_pair(level(levels, 0), level(levels, 2), bf16{}),
            narrow_pair(level(levels, 1), level(levels, 3), bf16{})};
  } else {
    const u32 base = whole_numbers(bf16{}), bias = base + kFormat.bias * 0x10001u;
    return {less(__byte_perm(levels, base, 0x5250), bias, bf16{}),
            less(__byte_perm(levels, base, 0x5351), bias, bf16{})};
  }
}

// The same of nibbles, which need no bytes of their own: of the runs of the low and the high ones.
struct TwoPairs {
  Pairs low, high;
};
__device__ inline u32 masked(u32 word, u32 mask, u32 base) {  // (word & mask) | base
  u32 y;
  asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(y) : "r"(word), "r"(mask), "r"(base));
  return y;
}
__device__ inline TwoPairs nibble_pairs(u32 word, f16) {
  const u32 base = whole_numbers(f16{}), low = 0x000F000Fu, high = 0x00F000F0u, next = word >> 8;
  // High nibbles are 16 times as much: 64 and the level, less 64.
  const auto sixteenth = [](u32 x) {
    u32 y;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(x), "r"(0x2C002C00u), "r"(0xD400D400u));
    return y;
  };
  return {{less(masked(word, low, base), base, f16{}), less(masked(next, low, base), base, f16{})},
          {sixteenth(masked(word, high, base)), sixteenth(masked(next, high, base))}};
}
__device__ inline TwoPairs nibble_pairs(u32 word, bf16) {
  const u32 base = whole_numbers(bf16{}), mask = 0x000F000Fu;
  const auto pair = [&](int shift) {
    return less(masked(word >> shift, mask, base), base, bf16{});
  };
  return {{pair(0), pair(8)}, {pair(4), pair(12)}};
}

// The left operands of a unit's runs.
struct Left {
  Pairs run[kRuns];
};
__device__ inline Left left_of(const u8* block, int unit) {
  Left to;
  if constexpr (FORMAT == kQ4_K) {
    const Vec<u32, 2> words =
        two_words<kFormat.levels>(block + kFormat.levels + unit / 4 * 32 + unit % 4 * 8);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const TwoPairs p = nibble_pairs(words.v[i], X{});
      to.run[i] = p.low, to.run[2 + i] = p.high;
    }
  } else {
    const Unit v = decode(block, unit);
#pragma unroll
    for (int r = 0; r < kRuns; ++r) to.run[r] = pairs(v.levels[r], X{});
  }
  return to;
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
    Vec<u32, 4> v;
    if constexpr (kNeighbours) {
      v = load<u32, 4>(from);
    } else {
      const u32* const next = reinterpret_cast<const u32*>(block + run_at(unit, 2 * i + 1));
      const Vec<u32, 2> a = load<u32, 2>(from), b = load<u32, 2>(next);
      v = {a.v[0], a.v[1], b.v[0], b.v[1]};
    }
#pragma unroll
    for (int r = 0; r < 4; r += 2) {
      to.piece[i].v[r] = __byte_perm(v.v[r], v.v[r + 1], 0x5410);
      to.piece[i].v[r + 1] = __byte_perm(v.v[r], v.v[r + 1], 0x7632);
    }
  }
  return to;
}

// c = a · b, or c += a · b. Unlike those of tile.cuh, compilers may move them: only results count.
#define MULTIPLY(T, NAME)                                                               \
  __device__ inline void multiply(f32(&c)[4], const u32(&a)[4], u32 b0, u32 b1, T) {    \
    asm("mma.sync.aligned.m16n8k16.row.col.f32." NAME "." NAME                          \
        ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"      \
        : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])                                \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.0f));     \
  }                                                                                     \
  __device__ inline void add_product(f32(&c)[4], const u32(&a)[4], u32 b0, u32 b1, T) { \
    asm("mma.sync.aligned.m16n8k16.row.col.f32." NAME "." NAME                          \
        ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"          \
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));                \
  }
MULTIPLY(f16, "f16")
MULTIPLY(bf16, "bf16")

__device__ inline u32 one_and_one(f16) { return 0x3C003C00u; }
__device__ inline u32 one_and_one(bf16) { return 0x3F803F80u; }
// A left operand with which products are sums of x.
struct Ones {
  u32 of[1][4];
};
__device__ inline Ones ones() {
  const u32 one = one_and_one(X{});
  return {{{one, one, one, one}}};
}

// The products of the runs of a group, whose left operands are `step` apart and whose first is
// run `first`.
__device__ inline void sum_runs(f32 (&to)[4], const u32 (*a)[4], int step, const Right& right,
                                int first) {
#pragma unroll
  for (int g = 0; g < kGroup; ++g) {
    const u32* const v = right.piece[(first + g) / 2].v + (first + g) % 2 * 2;
    if (g == 0)
      multiply(to, a[0], v[0], v[1], X{});
    else
      add_product(to, a[g * step], v[0], v[1], X{});
  }
}

// Sums of a group of a quad of eight rows of x: of the lane's two columns of a result.
__device__ inline Vec<f32, 2> sums_of_x(const Right& right, int group) {
  f32 sum[4];
  sum_runs(sum, ones().of, 0, right, group * kGroup);
  return {sum[0], sum[1]};
}
constexpr int kSumsOfQuad = kGroups * 8;

// Adds group g to the sum of a quad, which the first one begins. `dot`: of levels and x; `of_x`: the sum
// of x, if the format has minimums.
__device__ inline void add_group(f32& sum, int g, f32 scale, f32 dot, f32 least, f32 of_x) {
  sum = g == 0 ? __fmul_rn(scale, dot) : fma(scale, dot, sum);
  if constexpr (kAdds) sum = fma(least, of_x, sum);
}

// What a lane has of a quad of eight rows of x.
struct Columns {
  Right right;
  Vec<f32, 2> sums[kGroups];  // of its groups, if they are needed
};

// Results of 16 · M rows of w by 8 · N rows of x, as the lanes of a warp hold them.
template <int M, int N>
struct Sums {
  f32 of[M][N][4] = {};

  __device__ void add(const Sums& other) {
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
      for (int i = 0; i < N * 4; ++i) of[m][i / 4][i % 4] += other.of[m][i / 4][i % 4];
  }
  // Adds the products of the four units of the lanes of a line. blocks: of the lane's rows of w.
  // columns(j): of eight rows of x.
  template <class ColumnsOf>
  __device__ void add(const u8* const (&blocks)[M][2], int unit, ColumnsOf columns) {
    u32 left[M][kRuns][4];
    f32 scale[M][2][kGroups], least[M][2][kGroups];
#pragma unroll
    for (int i = 0; i < 2 * M; ++i) {
      const u8* const block = blocks[i / 2][i % 2];
      const Unit v = decode(block, unit);
      const Left own = left_of(block, unit);
#pragma unroll
      for (int r = 0; r < kRuns; ++r)
        left[i / 2][r][i % 2] = own.run[r].low, left[i / 2][r][2 + i % 2] = own.run[r].high;
#pragma unroll
      for (int g = 0; g < kGroups; ++g)
        scale[i / 2][i % 2][g] = v.scale[g * kGroup], least[i / 2][i % 2][g] = v.add[g * kGroup];
    }
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const Columns x = columns(j);
#pragma unroll
      for (int m = 0; m < M; ++m) {
        f32 of_quad[4];
#pragma unroll
        for (int g = 0; g < kGroups; ++g) {
          f32 dot[4];
          sum_runs(dot, left[m] + g * kGroup, 1, x.right, g * kGroup);
#pragma unroll
          for (int e = 0; e < 4; ++e)
            add_group(of_quad[e], g, scale[m][e / 2][g], dot[e], least[m][e / 2][g],
                      kAdds ? x.sums[g].v[e % 2] : 0.0f);
        }
#pragma unroll
        for (int e = 0; e < 4; ++e) of[m][j][e] += of_quad[e];
      }
    }
  }
};
#endif
