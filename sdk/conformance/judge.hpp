// SPDX-License-Identifier: Apache-2.0
// Is a result near enough to what it should be?
#pragma once

#include "kit.hpp"

namespace tenon::conform {

// How the result was made: eps_acc comes from the case's dtype, `times` widens every bound.
struct Verdict {
  tenon_dtype dtype = f32;
  double times = 1;
};

// Empty, or the first element that is off. `want` has floats in f64; NaN and infinities must
// stand at the same places, integers and bools must be equal.
std::string judge(const std::string& name, const HostTensor& got, const HostTensor& want,
                  const HostTensor* scale, const Tolerance& tolerance, const Verdict& how);

}  // namespace tenon::conform
