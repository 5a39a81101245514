// SPDX-License-Identifier: Apache-2.0
// Vectors of the points and cameras of the splat family, in terms of ops.
#pragma once

#include <array>
#include <limits>
#include <string_view>
#include <vector>

#include "ops/splat.hpp"

namespace tenon::core {

inline void want_points(const Infer& i, Value v, std::string_view operand, Dim width) {
  want_f32_or_f64(i, v, operand);
  i.want_rank(v, operand, 2);
  i.want_shape(v, operand, {i.shape(v)[0], width});
}

// A component of each point, [1,P], of each camera, [I,1], or of each pair, [I,P].
using Vector3 = std::array<Value, 3>;

// x[.., at] of x [P, width].
inline Value of_points(Builder& b, Value x, int64_t at) {
  return b.reshape(b.narrow(x, 1, at, 1), {1, b.shape(x)[0]});
}
// x[:, row, column] of matrices x [I, n, n].
inline Value of_cameras(Builder& b, Value x, int64_t row, int64_t column) {
  return b.reshape(b.narrow(b.narrow(x, 1, row, 1), 2, column, 1), {b.shape(x)[0], 1});
}
inline Vector3 points_of(Builder& b, Value x) {
  return {of_points(b, x, 0), of_points(b, x, 1), of_points(b, x, 2)};
}
// The rotation of world to camera, by rows.
inline std::array<Vector3, 3> rotation_of(Builder& b, Value viewmats) {
  std::array<Vector3, 3> out;
  for (size_t r = 0; r < 3; ++r)
    for (size_t c = 0; c < 3; ++c)
      out[r][c] = of_cameras(b, viewmats, static_cast<int64_t>(r), static_cast<int64_t>(c));
  return out;
}
inline Value dot(Builder& b, const Vector3& x, const Vector3& y) {
  return b.plus(b.plus(b.times(x[0], y[0]), b.times(x[1], y[1])), b.times(x[2], y[2]));
}
// x·a - y·c.
inline Value difference(Builder& b, Value x, Value a, Value y, Value c) {
  return b.minus(b.times(x, a), b.times(y, c));
}
// The vector product.
inline Vector3 cross(Builder& b, const Vector3& x, const Vector3& y) {
  Vector3 out;
  for (size_t k = 0; k < 3; ++k) {
    const size_t next = (k + 1) % 3, last = (k + 2) % 3;
    out[k] = difference(b, x[next], y[last], x[last], y[next]);
  }
  return out;
}
// Puts components [I,P] side by side: [I,P,n].
inline Value beside(Builder& b, const std::vector<Value>& parts) {
  std::vector<Value> all;
  for (const Value v : parts) all.push_back(b.unsqueeze(v, 2));
  return b.concat(all, 2);
}

// True where an element is neither NaN nor infinite.
inline Value finite(Builder& b, Value x) {
  return b.compare("lt", b.unary("abs", x), std::numeric_limits<double>::infinity());
}
// True for rows of x [N, ..] whose elements are all finite.
inline Value finite_rows(Builder& b, Value x) {
  Ints axes;
  for (int k = 1; k < b.shape(x).rank(); ++k) axes.push_back(k);
  return b.reduce("min", b.cast(finite(b, x), kI32), axes, false);
}

}  // namespace tenon::core
