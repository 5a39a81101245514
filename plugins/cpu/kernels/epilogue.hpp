// SPDX-License-Identifier: Apache-2.0
// Applied to the block of a product while it is in cache: y = act(alpha·sums + bias) + residual,
// rounded once.
#pragma once

#include <cstdint>

#include "tenon/types.h"

namespace tenon::cpu {

// n sums become z = alpha·sums + bias. bias may be null; its dtype is f32, f16, bf16 or that of the
// sums.
void epilogue_scale(tenon_dtype sum, void* sums, double alpha, const void* bias,
                    tenon_dtype bias_dtype, int64_t n);
// sums += x; the dtype of x is f32, f16, bf16 or that of the sums.
void epilogue_add(tenon_dtype sum, void* sums, const void* x, tenon_dtype dtype, int64_t n);
// y = sums, rounded to dtype. y may be sums.
void epilogue_store(tenon_dtype sum, const void* sums, void* y, tenon_dtype dtype, int64_t n);

// y = sums + bias + residual (null: none), and then relu or nothing, in one pass. y may be sums.
void epilogue_finish(const float* sums, float bias, const float* residual, bool relu, float* y,
                     int64_t n);

}  // namespace tenon::cpu
