// SPDX-License-Identifier: Apache-2.0
// The decimal texts of the numbers of a range.
#pragma once

#include <cmath>

#include "llm/grammar/expression.hpp"

namespace tenon::llm {

// Bounds of JSON numbers; open ones are outside of the range. Infinite: no bound.
struct NumberRange {
  double low = -INFINITY, high = INFINITY;
  bool low_open = false, high_open = false;
  bool is_bounded() const { return !std::isinf(low) || !std::isinf(high); }
};

// The integers of a range, as integers() of integer_range.hpp has them.
Part integers(const NumberRange& range);

// Without exponents, leading zeros and -0; at most 16 digits in front of the point and 10 more
// behind it than a bound has. Nothing matches if the range is empty.
Part numbers(const NumberRange& range);

}  // namespace tenon::llm
