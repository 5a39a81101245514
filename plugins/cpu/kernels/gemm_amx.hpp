// SPDX-License-Identifier: Apache-2.0
// Products of floats on the processor's tile unit (AMX), which multiplies bf16 and adds in f32; of
// bf16 also where the vectors have dot products (gemm_dot.hpp), from the same panels.
//
// Other numbers are sums of bf16 parts (8 bits of significand each): f16 of two and f32 of three,
// without loss; the product of two f32 is the sum of the six products of parts that reach 2^-24 of
// it, so such sums are as exact as those of f32 multiply-adds. That holds for numbers in the middle
// of the range: infinities, NaN, numbers that round to them in bf16, and operands of nothing but
// tiny numbers must be computed elsewhere. As everywhere in the unit subnormals count as zero.
#pragma once

#include <cstdint>

#include "tenon/types.h"

namespace tenon::cpu {

// Elements side by side in a panel, of a and of b, and the multiple to which steps are padded.
inline constexpr int64_t kAmxPanel = 32, kAmxSteps = 32;

// What is multiplied; none has no parts, and nothing below takes it. tf32 is f32 in two parts, of
// which the product of the small ones is left out: 16 bits, more than the eleven promised.
enum class AmxNumber : uint8_t { none, bf16, f16, tf32, f32 };
int amx_parts(AmxNumber number);

// The number for operands of the dtype, which is asked for before anything else; none where the
// unit is not to be used: the processor or the system has none for us, or TENON_CPU_AMX=0 (bf16
// then takes the dot products, where there are such). f32 at full precision is asked for by
// TENON_CPU_AMX=f32 only: six products each leave too little where many share a processor, which
// then throttles the unit to a third. Measured: 60 to 190 GFLOP/s a core, multiply-adds 90 to 117.
AmxNumber amx_number(tenon_dtype dtype, bool tf32);

// About how many times as fast as multiply-adds of f32.
int amx_gain(AmxNumber number);

struct AmxSource {
  tenon_dtype dtype;
  const void* data;  // element (w, s) is data[w * width_stride + s * step_stride]
  int64_t width_stride, step_stride;
  int64_t width, steps;
};

// Side of the product that a packed operand is for: a's panels hold rows, b's pairs of steps.
enum class AmxSide : uint8_t { a, b };

// Panels, one after the other, padded with zeros; each takes kAmxPanel * (steps, padded) * 2 *
// parts bytes. bits[panel] is raised to the largest |element| of the panel, as the bits of a float;
// bf16, which is never cut, raises nothing.
void amx_pack(const AmxSource& from, AmxNumber number, AmxSide side, void* packed, uint32_t* bits);

// Whether a panel of these bits may be computed here.
bool amx_ordinary(uint32_t bits);

// c[m x n] = (add: +=) a·b of packed panels.
struct AmxProduct {
  AmxNumber number;
  bool add;
  int64_t m, n, steps;
  const void* a;
  const void* b;
  float* c;
  int64_t ldc;
};
void amx_product(const AmxProduct& product);

}  // namespace tenon::cpu
