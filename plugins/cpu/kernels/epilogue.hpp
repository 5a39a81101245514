// SPDX-License-Identifier: Apache-2.0
// What follows a product while its block is still in cache: y = act(alpha·sums + bias) + residual,
// rounded once.
#pragma once

#include <cstdint>

#include "tenon/types.h"

namespace tenon::cpu {

// n sums become z = alpha·sums + bias; bias (f32, f16, bf16 or the sums' own dtype) may be nullptr.
void epilogue_scale(tenon_dtype sum, void* sums, double alpha, const void* bias,
                    tenon_dtype bias_dtype, int64_t n);
// sums += x, of dtype f32, f16, bf16 or the sums' own.
void epilogue_add(tenon_dtype sum, void* sums, const void* x, tenon_dtype dtype, int64_t n);
// y = sums, rounded to dtype; y may be sums.
void epilogue_store(tenon_dtype sum, const void* sums, void* y, tenon_dtype dtype, int64_t n);

}  // namespace tenon::cpu
