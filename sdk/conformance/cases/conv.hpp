// SPDX-License-Identifier: Apache-2.0
// Forms of convolutions, and the parts of the conv family's cases.
#pragma once

#include <vector>

#include "cases/families.hpp"

namespace tenon::conform {

struct ConvForm {
  const char* id;
  const char* sentence;
  Dims x;
  int64_t out;  // channels of the result
  Dims kernel, stride{}, pads{}, dilation{};
  int64_t groups = 1;

  template <class Op>
  Op windows() const {
    Op n{};
    n.stride = stride, n.pads = pads, n.dilation = dilation;
    if constexpr (requires { n.groups; }) n.groups = groups;
    return n;
  }
  Dims windows_along() const {
    Dims counts;
    const size_t axes = kernel.size();
    for (size_t k = 0; k < axes; ++k) {
      const int64_t d = dilation.empty() ? 1 : dilation[k], s = stride.empty() ? 1 : stride[k];
      const int64_t pad = pads.empty() ? 0 : pads[k] + pads[k + axes];
      counts.push_back((x[k + 2] + pad - d * (kernel[k] - 1) - 1) / s + 1);
    }
    return counts;
  }
  Dims w() const {
    Dims dims{out, x[1] / groups};
    dims.insert(dims.end(), kernel.begin(), kernel.end());
    return dims;
  }
  Dims y() const {
    Dims dims{x[0], out};
    const Dims counts = windows_along();
    dims.insert(dims.end(), counts.begin(), counts.end());
    return dims;
  }
  // Products that a result sums up.
  int64_t terms() const {
    int64_t n = x[1] / groups;
    for (const int64_t k : kernel) n *= k;
    return n;
  }
};

const std::vector<ConvForm>& conv_forms();
inline constexpr int64_t kFewProducts = 40000;  // so many allow finite differences
void conv_column_rows(Suite& s);                // im2col, col2im
void conv_transpose_rows(Suite& s);

}  // namespace tenon::conform
