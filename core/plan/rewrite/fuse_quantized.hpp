// SPDX-License-Identifier: Apache-2.0
// Joins a product or convolution of dequantized operands, whose result is quantized again, into one of
// integers.
#pragma once

#include "plan/rewrite/claims.hpp"

namespace tenon::core {

// quantize(act(conv(dequantize(x), dequantize(w), dequantize(bias)))) becomes qconv, with matmul or
// linear in the place of conv it becomes qmatmul. A conv_transpose whose windows do not overlap
// becomes a qconv that makes the pixels of a window as channels; a transpose then moves them to their
// places. act is relu or nothing. The scales must be constants of f32, that of x and that of the
// result one number each, and the bias must have the scale of the sums, as tools that quantize models
// write it. The float result must have no other reader. Asks the device about each joined form once.
//
// Integers are summed exactly, where the parts round floats: a result may be one unit away from that
// of the parts.
Graph join_quantized(const Graph& graph, const Query& query);

}  // namespace tenon::core
