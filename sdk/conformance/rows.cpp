// SPDX-License-Identifier: Apache-2.0
// The numbers of the shared rows.
#include "rows.hpp"

#include <cmath>

namespace tenon::conform {

std::vector<double> Offset::numbers() const {
  // The largest comes twice, so that the log of the sum is not zero.
  static constexpr double kUnits[] = {0, 5, -2, 6, 3, -8, 4, 1, -5, 6, 2};
  const double unit = std::fabs(value) >= 1e7 ? 8 : 0.5;
  std::vector<double> out;
  for (const double k : kUnits) out.push_back(value + unit * k);
  return out;
}

const std::vector<Offset>& offsets() {
  static const std::vector<Offset> all = {
      {"1e3", 1000, kFloats},         {"minus-1e3", -1000, kFloats},
      {"1e5", 1e5, {f32, bf16, f64}}, {"minus-1e5", -1e5, {f32, bf16, f64}},
      {"1e8", 1e8, {f32, bf16, f64}},
  };
  return all;
}

Value distance_scale(CaseBuilder& b, Value x, const Dims& axes) {
  const Value distance = b.binary("sub", b.reduce("max", x, axes), x);
  return b.binary("mul", b.unary("exp", b.unary("neg", distance)),
                  b.binary("add", distance, b.number(1)));
}

const DTypes& movable() {
  static const DTypes all = kFloats + DTypes{i8, i32, i64, u16, boolean};
  return all;
}
Fill content(const CaseBuilder& b) {
  return is_float(b.own()) ? Fill::normal() : Fill::integers(0, b.own() == boolean ? 1 : 100);
}

}  // namespace tenon::conform
