// SPDX-License-Identifier: Apache-2.0
// The decimal texts of the integers of a range.
#pragma once

#include "llm/grammar/expression.hpp"

namespace tenon::llm {

// Beyond, JSON numbers are not exact as doubles.
constexpr int64_t kLargestInteger = 9'999'999'999'999'999;

// Without leading zeros; -0 is left out. Bounds beyond kLargestInteger are cut. Nothing matches if least > most.
Part integers(int64_t least, int64_t most);

}  // namespace tenon::llm
