// SPDX-License-Identifier: Apache-2.0
// Splits ranges of integers by their number of digits, then digit by digit.
#include "llm/grammar/integer_range.hpp"

#include <algorithm>
#include <string>

namespace tenon::llm {
namespace {

Part digits(size_t count) {
  return repeat(bytes('0', '9'), static_cast<int64_t>(count), static_cast<int64_t>(count));
}

// Texts of the size of `low` and `high` between them, from the digit `at` on. A side that is not bound is free: an earlier
// digit is already above `low`, or below `high`.
Part between(const std::string& low, const std::string& high, bool bound_low, bool bound_high,
             size_t at) {
  const size_t rest = low.size() - at;
  if (!bound_low && !bound_high) return digits(rest);
  if (rest == 0) return sequence({});
  const char first = bound_low ? low[at] : '0', last = bound_high ? high[at] : '9';
  std::vector<Part> forms;
  const auto add = [&](char a, char b, bool on_low, bool on_high) {
    if (a > b) return;
    forms.push_back(sequence({bytes(static_cast<uint8_t>(a), static_cast<uint8_t>(b)),
                              between(low, high, on_low, on_high, at + 1)}));
  };
  const auto up = [](char c) { return static_cast<char>(c + 1); };
  const auto down = [](char c) { return static_cast<char>(c - 1); };
  if (bound_low && bound_high && first == last) {
    add(first, last, true, true);
  } else {
    if (bound_low) add(first, first, true, false);
    add(bound_low ? up(first) : first, bound_high ? down(last) : last, false, false);
    if (bound_high) add(last, last, false, true);
  }
  return choice(std::move(forms));
}

// 0 <= least <= most
void add_natural(int64_t least, int64_t most, std::vector<Part>& out) {
  for (int64_t first = 0, end = 10; first <= most; first = end, end *= 10) {
    const int64_t low = std::max(least, first), high = std::min(most, end - 1);
    if (low <= high)
      out.push_back(between(std::to_string(low), std::to_string(high), true, true, 0));
  }
}

}  // namespace

Part integers(int64_t least, int64_t most) {
  least = std::max(least, -kLargestInteger);
  most = std::min(most, kLargestInteger);
  std::vector<Part> natural, negative;
  if (most >= 0 && least <= most) add_natural(std::max<int64_t>(least, 0), most, natural);
  if (least < 0 && least <= most) add_natural(std::max<int64_t>(-most, 1), -least, negative);
  if (!negative.empty()) natural.push_back(sequence({text("-"), choice(std::move(negative))}));
  return choice(std::move(natural));
}

}  // namespace tenon::llm
