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

// Empty, or the first element of `got` that is not `want`'s, plus what may lie between them at that
// element. Same dtypes; NaN is NaN, and the sign of a zero is nobody's.
std::string same(const std::string& name, const HostTensor& got, const HostTensor& want,
                 const std::function<double(size_t i)>& between = {});
// What judge lets element i of an output differ by from `want`.
double room(const HostTensor& want, const HostTensor* scale, size_t i, tenon_dtype out,
            const Tolerance& tolerance, const Verdict& how);

}  // namespace tenon::conform
