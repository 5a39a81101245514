// SPDX-License-Identifier: Apache-2.0
// The rows of each op family of ops.def: cases/<family>.cpp. A family without rows does not link.
#pragma once

#include "kit.hpp"

namespace tenon::conform {

#define TENON_OP(name, version, family, level) void family##_cases(Suite& s);
#include <tenon/each_op.inl>

// Parts of a family that have a file of their own.
void elementwise_activation_rows(Suite& s);
void elementwise_cast_rows(Suite& s);
void matmul_batch_rows(Suite& s);
void matmul_linear_rows(Suite& s);
void quantized_product_rows(Suite& s);
void resample_grid_rows(Suite& s);
void resample_roi_rows(Suite& s);
void shape_complex_rows(Suite& s);
void splat_bin_rows(Suite& s);
void splat_raster_rows(Suite& s);

// The largest magnitude in y: an error scale for sums that cancel across the tensor.
inline Value largest_of(CaseBuilder& b, Value y) { return b.reduce("max", b.abs(y), {}, false); }

}  // namespace tenon::conform
