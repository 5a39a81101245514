// SPDX-License-Identifier: Apache-2.0
// What the cases of transforms share. Errors are judged by the length of the transformed row: each
// element of a result is a sum over all of it.
#pragma once

#include <cmath>
#include <string>

#include "cases/complex.hpp"
#include "cases/families.hpp"

namespace tenon::conform {

// Rounding errors grow with the logarithm of the length.
inline Tolerance transform_of(int64_t points) {
  return scaled(4 * (2 + std::log2(static_cast<double>(points))));
}
inline double factor_of(const std::string& norm, bool inverse, double points) {
  if (norm == "ortho") return 1 / std::sqrt(points);
  return (norm == "forward") != inverse ? 1 / points : 1;
}
// The length of the vector along these axes of floats, times a number.
inline Value length_of(CaseBuilder& b, Value x, const Dims& axes, double times) {
  return b.binary("mul", b.reduce("l2", x, axes), b.number(times));
}
inline Value pairs(CaseBuilder& b, Value x) { return b.graph().add(op::view_as_real{.x = x}); }

void fft_frame_rows(Suite& s);  // stft, istft
void fft_conv_rows(Suite& s);   // fft_conv1d

}  // namespace tenon::conform
