// SPDX-License-Identifier: Apache-2.0
// Shared by the records of the fft family: factors of norms, one axis as the last one, tables.
#pragma once

#include "ops/check.hpp"
#include "ops/padded.hpp"

namespace tenon::core {

inline constexpr int64_t kMostPoints = int64_t{1} << 27;  // of one transform

// Returns the factor of a transform of n points.
double norm_factor(const std::string& norm, bool inverse, int64_t n);
// Returns the norm that gives the opposite direction the same factor.
std::string other_norm(const std::string& norm);
// The norm without a factor.
inline std::string plain_norm(bool inverse) { return inverse ? "forward" : "backward"; }

inline void want_points(const Infer& i, std::string_view what, int64_t n) {
  if (n < 1 || n > kMostPoints)
    i.fail(Code::invalid_argument, what, ": expected a length from 1 to ", kMostPoints, ", got ",
           n);
}

// The operand x is f32 or f64.
inline void want_real(const Infer& i, Value x) {
  if (i.dtype(x) != kF32 && i.dtype(x) != kF64)
    i.fail(Code::dtype_mismatch, "operand x: expected f32 or f64, got ", i.type(x).text());
}
// Checks the operands and attributes of an stft. Returns the shape of its result.
Shape spectra_shape(const Infer& i, const op::stft& n);

// A constant of these numbers, rounded to the dtype; of pairs of parts if it is complex.
Value constant_of(Builder& b, DType t, const Shape& shape, std::span<const double> numbers);

// Cuts the axis, or fills it with zeros.
Value with_length(Builder& b, Value x, int axis, int64_t length);
// Fills the padding of an axis (counted from 0) with zeros: attribute n lengthens axes by zeros too.
void fill_zeros(Padded& p, Value x, int axis);
// Floating-point operations of `rows` complex transforms.
double transform_flops(double points, double rows);
// f(x) along the last axis, with this axis there.
template <class F>
Value along_last(Builder& b, Value x, int axis, F&& f) {
  const int last = b.shape(x).rank() - 1;
  if (axis == last) return f(x);
  Ints perm(static_cast<size_t>(last + 1));
  for (int k = 0; k <= last; ++k) perm[static_cast<size_t>(k)] = k;
  std::swap(perm[static_cast<size_t>(axis)], perm[static_cast<size_t>(last)]);
  return b.transpose(f(b.transpose(x, perm)), perm);
}

// y = x transformed along its last axis, by matrices and smaller transforms.
Value transformed(Builder& b, Value x, bool inverse, double factor);

}  // namespace tenon::core
