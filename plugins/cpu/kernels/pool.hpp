// SPDX-License-Identifier: Apache-2.0
// Shared by the files of the pool family.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "convert.hpp"
#include "pool_vector.hpp"
#include "slots.hpp"
#include "tenon/axis.hpp"

namespace tenon::cpu {

// The windows of a node: x has shape [N, C, height, width].
template <class Op>
PoolWindows pool_windows(const Op& n, const sdk::Type& y, int64_t height, int64_t width) {
  const auto line = [&](size_t k, int64_t size) {
    const PoolLine w{.kernel = n.kernel[k],
                     .stride = sdk::entry_of(n.stride, k, n.kernel[k]),
                     .before = sdk::entry_of(n.pads, k, 0),
                     .after = sdk::entry_of(n.pads, k + 2, 0),
                     .dilation = sdk::entry_of(n.dilation, k, 1),
                     .size = size,
                     .count = y.dims[k + 2]};
    constexpr int64_t kMax = 1 << 24;
    if (w.kernel > kMax / w.dilation || w.before > kMax)
      throw sdk::Refusal::shape("a window wider than 2^24 pixels");
    return w;
  };
  return {y.dims[0] * y.dims[1], line(0, height), line(1, width)};
}

// A forward pool: reduces each row of windows down the image, then across.
class PoolRows {
 public:
  // divide_rows and divide_columns are the divisors on each axis, for averages.
  PoolRows(const PoolWindows& windows, tenon_dtype dtype, PoolKind kind,
           std::vector<double> divide_rows, std::vector<double> divide_columns);
  uint64_t scratch() const { return slots_.scratch(); }
  void run(const void* x, void* y, void* scratch) const;

 private:
  PoolWindows windows_;
  tenon_dtype dtype_;
  PoolKind kind_;
  std::vector<double> divide_rows_, divide_columns_;
  std::vector<int64_t> offsets_;
  Slots slots_;
};

template <class T>
using PoolAcc = std::conditional_t<std::is_same_v<T, double>, double, float>;
template <class T>
PoolAcc<T> pool_wide(T v) {
  if constexpr (std::is_same_v<T, double>) {
    return v;
  } else {
    return to_float(v);
  }
}

template <class A>
struct Maximum {
  A value;
  int64_t row, column;  // -1 if the window has no taps
};
// The largest tap of a window: the first of equal ones, the last NaN.
template <class T>
Maximum<PoolAcc<T>> search_window(const PoolWindows& p, const T* plane, int64_t i, int64_t j) {
  using A = PoolAcc<T>;
  const PoolLine::Range rows = p.h.taps(i), columns = p.w.taps(j);
  Maximum<A> best{-std::numeric_limits<A>::infinity(), -1, -1};
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    const int64_t row = p.h.first(i) + r * p.h.dilation;
    for (int64_t k = columns.begin; k < columns.end; ++k) {
      const int64_t column = p.w.first(j) + k * p.w.dilation;
      const A v = pool_wide(plane[row * p.w.size + column]);
      if (v > best.value || std::isnan(v) || best.row < 0) best = {v, row, column};
    }
  }
  return best;
}

sdk::Kernel make_maxpool2d_backward(const sdk::op::maxpool2d_backward& n, const sdk::Node& node);
sdk::Kernel make_avgpool2d(const sdk::op::avgpool2d& n, const sdk::Node& node);
sdk::Kernel make_avgpool2d_backward(const sdk::op::avgpool2d_backward& n, const sdk::Node& node);

}  // namespace tenon::cpu
