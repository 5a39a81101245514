// SPDX-License-Identifier: Apache-2.0
//
// The weights of `resize` along one axis. An output is a weighted sum of input pixels, its taps. The
// taps are the same for all lines along an axis, and axes are independent of each other, so a kernel
// resizes one axis after the other. tenon's decomposition uses the same taps.
//
//   const ResizeAxis axis = resize_axis(n, 0, height);
//   const ResizeTaps taps = resize_taps(n, axis);     // of resize
//   const ResizeTaps back = transposed(taps, height); // of resize_backward
//
// The formulas are in sdk/OPS.md.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <vector>

namespace tenon {

// The largest dim that resize reads or writes, so that positions are exact in 64 bits.
inline constexpr int64_t kMaxResizeDim = int64_t{1} << 30;

struct ResizeAxis {
  int64_t in = 1, out = 1;
  double scale = 1;           // out / in, or the given one
  bool exact = true;          // the scale is out / in
  double start = 0, end = 1;  // the region of tf_crop_and_resize
};

// in · scale, rounded down. Below 2^23 the product is rounded to f32 first, so that a scale which is
// itself a rounded f32 number gives the size that was meant.
inline double scaled_dim(int64_t in, double scale) {
  const double size = static_cast<double>(in) * scale;
  return std::floor(size < 8388608.0 ? static_cast<double>(static_cast<float>(size)) : size);
}

// Spatial axis k of a node of resize or resize_backward, whose x has `in` pixels there.
template <class Op>
ResizeAxis resize_axis(const Op& n, size_t k, int64_t in) {
  ResizeAxis a{.in = in};
  if (!n.sizes.empty()) {
    a.out = n.sizes[k];
    a.scale = static_cast<double>(a.out) / static_cast<double>(in);
  } else {
    a.out = static_cast<int64_t>(scaled_dim(in, n.scales[k]));
    a.scale = n.scales[k];
    a.exact = a.scale * static_cast<double>(in) == static_cast<double>(a.out);
  }
  if (!n.roi.empty()) {
    a.start = n.roi[k];
    a.end = n.roi[k + n.roi.size() / 2];
  }
  return a;
}

// The taps of all outputs of an axis: those of output o are [begin[o], begin[o + 1]). They have
// ascending indices in [0, in), and no weight is 0.
struct ResizeTaps {
  std::vector<int64_t> begin{0};
  std::vector<int64_t> index;
  std::vector<double> weight;
  std::vector<uint8_t> outside;  // the output has the extrapolation value; empty: none has

  int64_t rows() const { return static_cast<int64_t>(begin.size()) - 1; }
  int64_t count() const { return begin.back(); }
  int64_t most() const {  // taps of one output
    int64_t n = 0;
    for (size_t o = 1; o < begin.size(); ++o) n = std::max(n, begin[o] - begin[o - 1]);
    return n;
  }
  // Each output is one unchanged pixel.
  bool moves() const {
    for (size_t o = 1; o < begin.size(); ++o)
      if (begin[o] - begin[o - 1] != 1) return false;
    return std::all_of(weight.begin(), weight.end(), [](double w) { return w == 1; });
  }
  bool identity(int64_t in) const {
    if (rows() != in || !outside.empty() || !moves()) return false;
    for (int64_t o = 0; o < in; ++o)
      if (index[static_cast<size_t>(o)] != o) return false;
    return true;
  }
};

namespace detail {

// The position of output o among the pixels of x.
template <class Op>
double resize_position(const Op& n, const ResizeAxis& a, int64_t o) {
  const double at = static_cast<double>(o), in = static_cast<double>(a.in);
  const double width = a.exact ? static_cast<double>(a.out) : in * a.scale;
  const std::string_view c = n.coordinates;
  if (c == "asymmetric") return at / a.scale;
  if (c == "align_corners") return a.out == 1 ? 0.0 : at * (in - 1) / (width - 1);
  if (c == "tf_crop_and_resize") {
    const double room = (a.end - a.start) * (in - 1);
    return a.start * (in - 1) + (a.out == 1 ? room / 2 : at * room / (width - 1));
  }
  if (c == "pytorch_half_pixel" && a.out == 1) return 0;
  // The centers of both images coincide, also where the output lacks a fraction of a pixel.
  const double shift =
      c == "half_pixel_symmetric" ? in / 2 * (1 - static_cast<double>(a.out) / width) : 0.0;
  return shift + (at + 0.5) / a.scale - 0.5;
}

inline int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

// floor(p / q), or what else the mode says.
inline int64_t rounded_ratio(std::string_view mode, int64_t p, int64_t q) {
  if (mode == "floor") return floor_div(p, q);
  if (mode == "ceil") return -floor_div(-p, q);
  if (mode == "round_prefer_ceil") return floor_div(2 * p + q, 2 * q);
  return -floor_div(q - 2 * p, 2 * q);  // round_prefer_floor
}

// The pixel of mode nearest, before it is clamped. Without a given scale, the position is a ratio of
// integers, so that no rounding moves a tie.
template <class Op>
int64_t nearest_pixel(const Op& n, const ResizeAxis& a, int64_t o) {
  const std::string_view c = n.coordinates, mode = n.nearest_mode;
  if (a.exact && c != "tf_crop_and_resize") {
    if (a.out == 1 && (c == "align_corners" || c == "pytorch_half_pixel")) return 0;
    if (c == "align_corners") return rounded_ratio(mode, o * (a.in - 1), a.out - 1);
    if (c == "asymmetric") return rounded_ratio(mode, o * a.in, a.out);
    return rounded_ratio(mode, (2 * o + 1) * a.in - a.out, 2 * a.out);
  }
  const double x = resize_position(n, a, o);
  if (mode == "floor") return static_cast<int64_t>(std::floor(x));
  if (mode == "ceil") return static_cast<int64_t>(std::ceil(x));
  const double low = std::floor(x), rest = x - low;
  const bool up = mode == "round_prefer_ceil" ? rest >= 0.5 : rest > 0.5;
  return static_cast<int64_t>(low) + (up ? 1 : 0);
}

// The filters at a distance t >= 0 from the position.
inline double linear_filter(double t) { return t < 1 ? 1 - t : 0; }
inline double cubic_filter(double t, double a) {
  if (t <= 1) return ((a + 2) * t - (a + 3)) * t * t + 1;
  return t < 2 ? ((a * t - 5 * a) * t + 8 * a) * t - 4 * a : 0;
}

}  // namespace detail

// n: a node of resize or resize_backward. The memory is proportional to out plus, with antialias,
// in.
template <class Op>
ResizeTaps resize_taps(const Op& n, const ResizeAxis& a) {
  ResizeTaps taps;
  const bool crops = n.coordinates == "tf_crop_and_resize", cubic = n.mode == "cubic";
  const double stretch = n.antialias ? std::min(a.scale, 1.0) : 1.0;
  const double reach = (cubic ? 2 : 1) / stretch;  // of the filter, in pixels of x
  const auto last = static_cast<double>(a.in - 1);
  const auto push = [&](int64_t at, double weight) {
    at = std::clamp<int64_t>(at, 0, a.in - 1);
    if (taps.count() < static_cast<int64_t>(taps.index.size()) && taps.index.back() == at) {
      taps.weight.back() += weight;
    } else {
      taps.index.push_back(at);
      taps.weight.push_back(weight);
    }
  };
  // Pixels beyond the edge repeat it, or count nothing.
  const auto push_filter = [&](double x) {
    const auto first = static_cast<int64_t>(std::floor(x - reach)) + 1;
    const auto end = static_cast<int64_t>(std::ceil(x + reach));
    double sum = 0;
    for (int64_t k = first; k < end; ++k) {
      if (n.exclude_outside && (k < 0 || k >= a.in)) continue;
      const double t = std::fabs(static_cast<double>(k) - x) * stretch;
      const double w = cubic ? detail::cubic_filter(t, n.cubic_a) : detail::linear_filter(t);
      sum += w;
      push(k, w);
    }
    if (!n.antialias && !n.exclude_outside) return;
    if (sum == 0) return;
    for (size_t k = static_cast<size_t>(taps.count()); k < taps.weight.size(); ++k)
      taps.weight[k] /= sum;
  };
  taps.begin.reserve(static_cast<size_t>(a.out) + 1);
  if (crops) taps.outside.assign(static_cast<size_t>(a.out), 0);
  for (int64_t o = 0; o < a.out; ++o) {
    const double x = n.mode == "nearest" && !crops ? 0 : detail::resize_position(n, a, o);
    if (crops && !(x >= 0 && x <= last))
      taps.outside[static_cast<size_t>(o)] = 1;
    else if (n.mode == "nearest")
      push(detail::nearest_pixel(n, a, o), 1);
    else
      push_filter(x);
    // A pixel of weight 0 is no tap: its NaN or infinity reaches no output.
    auto kept = static_cast<size_t>(taps.count());
    for (size_t k = kept; k < taps.index.size(); ++k) {
      if (taps.weight[k] == 0) continue;
      taps.index[kept] = taps.index[k];
      taps.weight[kept++] = taps.weight[k];
    }
    taps.index.resize(kept);
    taps.weight.resize(kept);
    taps.begin.push_back(static_cast<int64_t>(kept));
  }
  if (std::none_of(taps.outside.begin(), taps.outside.end(), [](uint8_t v) { return v != 0; }))
    taps.outside.clear();
  return taps;
}

// The taps of the adjoint: those of pixel i are the outputs that read it, with the same weights.
inline ResizeTaps transposed(const ResizeTaps& t, int64_t in) {
  ResizeTaps back;
  back.begin.assign(static_cast<size_t>(in) + 1, 0);
  for (const int64_t i : t.index) ++back.begin[static_cast<size_t>(i) + 1];
  for (size_t i = 1; i < back.begin.size(); ++i) back.begin[i] += back.begin[i - 1];
  back.index.resize(t.index.size());
  back.weight.resize(t.weight.size());
  std::vector<int64_t> next(back.begin.begin(), back.begin.end() - 1);
  for (int64_t o = 0; o < t.rows(); ++o)
    for (auto k = static_cast<size_t>(t.begin[static_cast<size_t>(o)]);
         k < static_cast<size_t>(t.begin[static_cast<size_t>(o) + 1]); ++k) {
      const auto to = static_cast<size_t>(next[static_cast<size_t>(t.index[k])]++);
      back.index[to] = o;
      back.weight[to] = t.weight[k];
    }
  return back;
}

}  // namespace tenon
