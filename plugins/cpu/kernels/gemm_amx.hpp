// SPDX-License-Identifier: Apache-2.0
// Products of floats on AMX, the processor's tile unit: it multiplies bf16 and accumulates in f32.
// On processors with AVX512-BF16 only, bf16 products use its dot products with the same panels
// (gemm_dot.hpp).
//
// Other numbers are split into bf16 parts with 8 bits of significand each: f16 into two and f32
// into three parts, exactly. The product of two f32 numbers is the sum of the six part products
// that exceed 2^-24 of it. Such sums are as exact as f32 multiply-adds. This holds for numbers of
// ordinary magnitude: infinities, NaN, numbers that round to infinity in bf16, and operands with
// only tiny numbers must be computed elsewhere. Like all AMX products, it treats subnormals as
// zero.
#pragma once

#include <cstdint>

#include "tenon/types.h"

namespace tenon::cpu {

// Elements per panel of a and of b, and the multiple to which steps are padded.
inline constexpr int64_t kAmxPanel = 32, kAmxSteps = 32;

// How the operands are split into parts. none: AMX is not used; the functions below do not accept
// it. tf32: f32 in two parts, without the product of the two small parts; 16 bits of significand,
// more than the eleven that tf32 promises.
enum class AmxNumber : uint8_t { none, bf16, f16, tf32, f32 };
int amx_parts(AmxNumber number);

// Selects the parts for a dtype. Call it before any other function here. Returns none if AMX must
// not be used: the processor or the system does not offer it, or TENON_CPU_AMX=0 (bf16 may then use
// dot products). Full-precision f32 uses AMX only with TENON_CPU_AMX=f32, because six products per
// step gain too little on shared processors, which throttle AMX to a third. Measured: 60 to 190
// GFLOP/s per core; multiply-adds reach 90 to 117.
AmxNumber amx_number(tenon_dtype dtype, bool tf32);

// Approximate speed relative to f32 multiply-adds.
int amx_gain(AmxNumber number);

struct AmxSource {
  tenon_dtype dtype;
  const void* data;  // element (w, s) is data[w * width_stride + s * step_stride]
  int64_t width_stride, step_stride;
  int64_t width, steps;
};

// The side of the product. Panels of a hold rows; panels of b hold pairs of steps.
enum class AmxSide : uint8_t { a, b };

// Packs panels, one after the other, padded with zeros. Each takes kAmxPanel * (steps, padded) * 2
// * parts bytes. Raises bits[panel] to the largest |element| of the panel, as the bits of a float;
// bf16 is never split and raises nothing.
void amx_pack(const AmxSource& from, AmxNumber number, AmxSide side, void* packed, uint32_t* bits);

// True if AMX may compute a panel with these bits.
bool amx_ordinary(uint32_t bits);

// c[m x n] = (add: +=) a·b from packed panels.
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
