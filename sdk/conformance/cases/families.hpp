// SPDX-License-Identifier: Apache-2.0
// Each family's rows; the stems are those of core/ops.
#pragma once

#include "kit.hpp"

namespace tenon::conform {

void activation_cases(Suite& s);
void attention_cases(Suite& s);
void channel_norm_cases(Suite& s);
void elementwise_cases(Suite& s);
void grouped_matmul_cases(Suite& s);
void index_cases(Suite& s);
void index_elements_cases(Suite& s);
void matmul_cases(Suite& s);
void matmul_batch_rows(Suite& s);  // a part of them
void norm_cases(Suite& s);
void optimizer_cases(Suite& s);
void order_cases(Suite& s);
void pool_cases(Suite& s);
void random_cases(Suite& s);
void reduce_cases(Suite& s);
void region_cases(Suite& s);
void rope_cases(Suite& s);
void scan_cases(Suite& s);
void shape_cases(Suite& s);
void softmax_cases(Suite& s);

// The largest magnitude in y: an error scale for sums that cancel across the tensor.
inline Value largest_of(CaseBuilder& b, Value y) { return b.reduce("max", b.abs(y), {}, false); }

}  // namespace tenon::conform
