// SPDX-License-Identifier: Apache-2.0
// Complex numbers in cases: inputs and outputs are pairs of floats, so that the reference computes
// with c128 where the case has c64.
#pragma once

#include "kit.hpp"

namespace tenon::conform {

inline const DTypes kParts = {f32, f64};

inline Value complex_input(CaseBuilder& b, std::string_view name, Dims dims,
                           const Fill& fill = Fill::normal()) {
  dims.push_back(2);
  return b.add(op::view_as_complex{.x = b.input(name, dims, fill)});
}
inline void complex_output(CaseBuilder& b, std::string_view name, Value v) {
  b.output(name, b.add(op::view_as_real{.x = v}));
}

}  // namespace tenon::conform
