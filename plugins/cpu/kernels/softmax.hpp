// SPDX-License-Identifier: Apache-2.0
// Softmaxes and losses along an axis: what a run hands to the vector code, and how it is cut into
// pieces.
#pragma once

#include <algorithm>
#include <cstdint>

#include "../parallel.hpp"
#include "axis.hpp"
#include "tenon/kernel.hpp"

namespace tenon::cpu {

inline constexpr int64_t kMostLines = 256;

// `count` neighbouring lines of `length` elements: rows one after the other if inner is 1, else
// columns side by side whose elements lie `inner` apart.
struct Lines {
  int64_t length = 0, inner = 1;
  int64_t item = 0;   // which line of the tensor is the first
  int64_t count = 0;  // <= kMostLines

  int64_t start(int64_t i) const {  // element at which line i of these begins
    const int64_t line = item + i;
    return line / inner * length * inner + line % inner;
  }
};

// Calls body(lines) for all lines of a tensor, on all threads. An element has `bytes` and costs
// about `cost` (see grain_for).
template <class Body>
void for_lines(const AxisView& v, int64_t bytes, int64_t cost, Body&& body) {
  const auto pieces = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += kMostLines)
      body(Lines{v.length, v.inner, i, std::min(kMostLines, end - i)});
  };
  const int64_t line_cost = std::max<int64_t>(v.length * cost, 1);
  if (v.inner == 1) return parallel_for(v.outer, grain_for(line_cost), pieces);
  for_columns(v, 64 / bytes, line_cost, [&](int64_t outer, int64_t begin, int64_t end) {
    pieces(outer * v.inner + begin, outer * v.inner + end);
  });
}

// ---- softmax: every address is that of the whole tensor; `nontemporal`: rows of the result go past the
// caches
void softmax_forward(tenon_dtype dtype, const Lines& lines, bool log, bool nontemporal,
                     const void* x, void* y);
void softmax_backward(tenon_dtype dtype, const Lines& lines, bool log, bool nontemporal,
                      const void* dy, const void* y, void* dx);

// ---- cross entropy: weight is per class and in the accumulation type, or null for ones
struct LineStatistics {
  double max;      // NaN if an element is
  double log_sum;  // ln sum e^(x - max); 0 where max is infinite
  double spread;   // sum w_c (max - x_c), if asked for
  double lse() const { return max + log_sum; }
};
void loss_statistics(tenon_dtype dtype, const Lines& lines, const void* logits, const void* weight,
                     bool spread, LineStatistics* out);

// dx_c = scale e^(x_c - shift) - flat w_c, or 0 where `zero` is set: then the others are not read.
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
