// SPDX-License-Identifier: Apache-2.0
// Windows of convolutions and pools, as their attributes say.
#pragma once

#include "import/onnx/scope.hpp"

namespace tenon::core::onnx {

// One entry per spatial axis.
struct Window {
  Ints kernel, stride, before, after, dilation;
  bool ceil_mode = false;

  size_t axes() const { return kernel.size(); }
  // All begins, then all ends.
  Ints pads() const {
    Ints out = before;
    out.insert(out.end(), after.begin(), after.end());
    return out;
  }
};

// The window over spatial dims. kernel: that of the weights, or the attribute kernel_shape.
// auto_pad becomes numbers.
Window window_of(const Call& c, const Ints& spatial, Ints kernel);
inline Ints spatial_dims(const Shape& s) {
  Ints out;
  for (int k = 2; k < s.rank(); ++k) out.push_back(s[k]);
  return out;
}

}  // namespace tenon::core::onnx
