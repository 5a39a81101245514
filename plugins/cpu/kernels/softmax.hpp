// SPDX-License-Identifier: Apache-2.0
// Softmax and losses along an axis: the arguments of the vector code, and the partition into
// pieces.
#pragma once

#include <algorithm>
#include <cstdint>

#include "../parallel.hpp"
#include "axis.hpp"
#include "tenon/kernel.hpp"

namespace tenon::cpu {

inline constexpr int64_t kMaxLines = 256;

// `count` neighbouring lines of `length` elements: consecutive rows if inner is 1, else adjacent
// columns whose elements are `inner` apart.
struct Lines {
  int64_t length = 0, inner = 1;
  int64_t item = 0;   // index of the first line within the tensor
  int64_t count = 0;  // <= kMaxLines

  int64_t start(int64_t i) const {  // the first element of line i
    const int64_t line = item + i;
    return line / inner * length * inner + line % inner;
  }
};

// Calls body(lines) for all lines of a tensor, in parallel. An element has `bytes` bytes and costs
// about `cost` (see grain_for).
template <class Body>
void for_lines(const AxisView& v, int64_t bytes, int64_t cost, Body&& body) {
  const auto pieces = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += kMaxLines)
      body(Lines{v.length, v.inner, i, std::min(kMaxLines, end - i)});
  };
  const int64_t line_cost = std::max<int64_t>(v.length * cost, 1);
  if (v.inner == 1) return parallel_for(v.outer, grain_for(line_cost), pieces);
  for_columns(v, 64 / bytes, line_cost, [&](int64_t outer, int64_t begin, int64_t end) {
    pieces(outer * v.inner + begin, outer * v.inner + end);
  });
}

// ---- softmax: addresses refer to the whole tensor; `nontemporal` applies to rows of the result
void softmax_forward(tenon_dtype dtype, const Lines& lines, bool log, bool nontemporal,
                     const void* x, void* y);
void softmax_backward(tenon_dtype dtype, const Lines& lines, bool log, bool nontemporal,
                      const void* dy, const void* y, void* dx);

// ---- cross entropy: weights are per class, in the accumulation type; null means 1
struct LineStatistics {
  double max;      // NaN if an element is NaN
  double log_sum;  // ln sum e^(x - max); 0 if max is infinite
  double spread;   // sum w_c (max - x_c), if requested
  double lse() const { return max + log_sum; }
};
void loss_statistics(tenon_dtype dtype, const Lines& lines, const void* logits, const void* weight,
                     bool spread, LineStatistics* out);

// dx_c = scale e^(x_c - shift) - flat w_c; if `zero` is set, 0 without reading x.
struct LineSlope {
  double shift, scale, flat;
  bool zero;
};
void loss_slopes(tenon_dtype dtype, const Lines& lines, const void* logits, const void* weight,
                 const LineSlope* slopes, bool nontemporal, void* dx);

sdk::Kernel make_cross_entropy(const sdk::op::cross_entropy& n, const sdk::Node& node);
sdk::Kernel make_cross_entropy_backward(const sdk::op::cross_entropy_backward& n,
                                        const sdk::Node& node);

}  // namespace tenon::cpu
