// SPDX-License-Identifier: Apache-2.0
// What the cases of softmax and of its losses share.
#pragma once

#include "cases/families.hpp"

namespace tenon::conform {

// The exponent's rounding grows with the distance to the maximum.
inline Value softmax_scale(CaseBuilder& b, Value x, Value y, int64_t axis, bool log) {
  const Value span = b.binary("add", b.abs(x), b.reduce("max", b.abs(x), {axis}));
  if (log) return b.binary("add", span, b.number(4));
  return b.binary("mul", b.abs(y), b.binary("add", span, b.number(1)));
}

}  // namespace tenon::conform
