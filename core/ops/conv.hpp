// SPDX-License-Identifier: Apache-2.0
// Windows of convolutions: along each spatial axis, window o has its taps at o·stride - before +
// k·dilation. Shared by conv.cpp and conv_columns.cpp.
#pragma once

#include <limits>
#include <vector>

#include "ops/check.hpp"

namespace tenon::core {

// The windows along one spatial axis of x.
struct ConvAxis {
  int64_t size = 0;  // of x
  int64_t kernel = 1, stride = 1, before = 0, after = 0, dilation = 1;
  int64_t extent() const { return dilation * (kernel - 1) + 1; }
  int64_t room() const { return size + before + after - extent(); }
  int64_t count() const { return room() < 0 ? 0 : room() / stride + 1; }
};
using ConvAxes = std::vector<ConvAxis>;

inline constexpr int kConvFirst = 2;  // the first spatial axis

inline Ints spatial(const Shape& shape) {
  Ints dims;
  for (int i = kConvFirst; i < shape.rank(); ++i) dims.push_back(shape[i]);
  return dims;
}
// {n, c, dims..}
inline Shape image_shape(Dim n, Dim c, const Ints& dims) {
  Shape shape{n, c};
  for (const int64_t d : dims) shape.push(d);
  return shape;
}

// After the checks of want_axes. kernel, size: the spatial dims of w and of x.
template <class Op>
ConvAxes axes_of(const Op& n, const Ints& kernel, const Ints& size) {
  ConvAxes axes(size.size());
  for (size_t k = 0; k < axes.size(); ++k) {
    ConvAxis& a = axes[k];
    a.size = size[k], a.kernel = kernel[k];
    if (!n.stride.empty()) a.stride = n.stride[k];
    if (!n.dilation.empty()) a.dilation = n.dilation[k];
    if (!n.pads.empty()) a.before = n.pads[k], a.after = n.pads[k + size.size()];
  }
  return axes;
}

inline Ints counts_of(const ConvAxes& axes) {
  Ints counts;
  for (const ConvAxis& a : axes) counts.push_back(a.count());
  return counts;
}
inline int64_t taps_of(const ConvAxes& axes) {
  int64_t taps = 1;
  for (const ConvAxis& a : axes) taps *= a.kernel;
  return taps;
}
inline int64_t windows_of(const ConvAxes& axes) {
  int64_t windows = 1;
  for (const ConvAxis& a : axes) windows *= a.count();
  return windows;
}

// Whether any window reaches into x. Those of conv_transpose's forward may not: output_padding can
// leave less than no padding behind, down to nothing.
inline bool any_reached(const ConvAxes& axes) {
  for (const ConvAxis& a : axes)
    if (a.size + a.after < 1) return false;
  return true;
}

// The number of spatial axes of an operand [N,C,spatial..].
int want_image(const Infer& i, Value x, std::string_view operand);

// Checks stride, pads, dilation, kernel and size. `kernel` and `size`: what is checked, in
// messages.
template <class Op>
ConvAxes want_axes(const Infer& i, const Op& n, const Ints& kernel, const Ints& size) {
  const size_t axes = size.size();
  if (!n.stride.empty()) want_entries(i, "stride", n.stride, axes, 1);
  if (!n.pads.empty()) want_entries(i, "pads", n.pads, 2 * axes, 0);
  if (!n.dilation.empty()) want_entries(i, "dilation", n.dilation, axes, 1);
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  for (size_t k = 0; k < axes; ++k) {
    if (kernel[k] < 1 || kernel[k] > kMost)
      i.fail(Code::shape_mismatch, "expected a window of 1 to 2^31 - 1 taps along spatial axis ", k,
             ", got ", kernel[k]);
    if (size[k] < 1 || size[k] > int64_t{1} << 48)
      i.fail(Code::shape_mismatch, "expected 1 to 2^48 pixels along spatial axis ", k, ", got ",
             size[k]);
  }
  return axes_of(n, kernel, size);
}

// Refuses windows that do not fit.
inline void want_windows(const Infer& i, const ConvAxes& axes) {
  for (size_t k = 0; k < axes.size(); ++k)
    if (axes[k].count() < 1)
      i.fail(Code::shape_mismatch, "a window of extent ", axes[k].extent(), " does not fit into ",
             axes[k].size + axes[k].before + axes[k].after, " padded pixels along spatial axis ",
             k);
}

// The sum of products behind an op: x [n,c,size..], w [m,c/groups,kernel..], y [n,m,windows..].
struct Conv {
  int64_t n = 0, c = 0, m = 0, groups = 1;
  ConvAxes axes;

  Ints kernel() const {
    Ints k;
    for (const ConvAxis& a : axes) k.push_back(a.kernel);
    return k;
  }
  Ints size() const {
    Ints s;
    for (const ConvAxis& a : axes) s.push_back(a.size);
    return s;
  }
  int64_t depth() const { return c / groups * taps_of(axes); }
  Shape x() const { return image_shape(n, c, size()); }
  Shape w() const { return image_shape(m, c / groups, kernel()); }
  Shape y() const { return image_shape(n, m, counts_of(axes)); }
};

// The decompositions, by products over columns, in the accumulation dtype: y of x and w, x of y and w
// (an axis may have less than no padding behind: what no window reaches is zero), w of y and x.
Value products(Builder& b, Value x, Value w, const Conv& c);
Value transposed_products(Builder& b, Value y, Value w, Conv c);
Value weight_products(Builder& b, Value y, Value x, const Conv& c);

}  // namespace tenon::core
