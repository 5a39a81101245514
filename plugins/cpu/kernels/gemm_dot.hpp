// SPDX-License-Identifier: Apache-2.0
// Products of bf16 by dot products (AVX512-BF16), with the panels of AMX. Twice the rate of f32
// multiply-adds. Subnormals count as zero, as on AMX.
#pragma once

#include "gemm_amx.hpp"

namespace tenon::cpu {

// True if the processor supports them. Call it before dot_product.
bool processor_has_dots();

// amx_product for AmxNumber::bf16.
void dot_product(const AmxProduct& product);

}  // namespace tenon::cpu
