// SPDX-License-Identifier: Apache-2.0
// Products of bf16 by the dot products of the processor's vectors (AVX512-BF16), from panels packed
// as for the tile unit: twice the rate of f32 multiply-adds. Subnormals count as zero, as there.
#pragma once

#include "gemm_amx.hpp"

namespace tenon::cpu {

// What the processor can do. Nothing else here may be called without it.
bool processor_has_dots();

// amx_product for AmxNumber::bf16.
void dot_product(const AmxProduct& product);

}  // namespace tenon::cpu
