// SPDX-License-Identifier: Apache-2.0
// Splits ranges of numbers by their integers, then by the digits of fractions.
#include "llm/grammar/number_range.hpp"

#include <algorithm>
#include <charconv>
#include <string>

#include "llm/grammar/integer_range.hpp"

namespace tenon::llm {
namespace {

constexpr int64_t kDigits = 10;

Part digit(char low, char high) {
  return bytes(static_cast<uint8_t>(low), static_cast<uint8_t>(high));
}
Part any_digits(int64_t least) { return repeat(digit('0', '9'), least, kDigits); }
Part zeros(int64_t least) { return repeat(text("0"), least, kDigits); }

// The digits of fractions: forms of one digit or more, and whether there may be none.
struct Digits {
  std::vector<Part> forms{};
  bool none = false;

  void add(std::vector<Part> form) { forms.push_back(sequence(std::move(form))); }
  // All of `rest` behind `head`.
  void add(const std::string& head, Digits rest) {
    if (head.empty()) {
      none |= rest.none;
      for (Part& form : rest.forms) forms.push_back(std::move(form));
      return;
    }
    if (rest.none) add({text(head)});
    if (!rest.forms.empty()) add({text(head), choice(std::move(rest.forms))});
  }
  // The point and the digits behind an integer.
  Part fraction() && {
    std::vector<Part> ways;
    if (none) ways.push_back(text(""));
    if (!forms.empty()) ways.push_back(sequence({text("."), choice(std::move(forms))}));
    return choice(std::move(ways));
  }
};

// Digits d with 0.d >= 0.low; open: 0.d > 0.low. Bounds have no zeros at their ends.
Digits at_least(const std::string& low, bool open) {
  Digits out;
  for (size_t i = 0; i < low.size(); ++i)
    if (low[i] < '9')
      out.add({text(low.substr(0, i)), digit(static_cast<char>(low[i] + 1), '9'), any_digits(0)});
  Digits rest;
  if (open)
    rest.add({zeros(0), digit('1', '9'), any_digits(0)});
  else
    rest.add({any_digits(1)}), rest.none = true;
  out.add(low, std::move(rest));
  return out;
}

// Digits d with 0.d <= 0.high; open: 0.d < 0.high.
Digits at_most(const std::string& high, bool open) {
  Digits out;
  for (size_t i = 0; i < high.size(); ++i) {
    out.add(high.substr(0, i), {.none = true});  // the digits that are missing are not all zero
    if (high[i] > '0')
      out.add({text(high.substr(0, i)), digit('0', static_cast<char>(high[i] - 1)), any_digits(0)});
  }
  if (!open) out.add(high, {.forms = {zeros(1)}, .none = true});
  return out;
}

std::string tail(const std::string& digits, size_t from) {
  return from < digits.size() ? digits.substr(from) : "";
}

Digits between(const std::string& low, bool low_open, const std::string& high, bool high_open) {
  const auto at = [](const std::string& s, size_t i) { return i < s.size() ? s[i] : '0'; };
  size_t k = 0;
  while (k < std::max(low.size(), high.size()) && at(low, k) == at(high, k)) ++k;
  Digits out;
  const std::string head = high.substr(0, k);
  if (k == std::max(low.size(), high.size())) {  // one number
    if (!low_open && !high_open) out.add(head, {.forms = {zeros(1)}, .none = true});
    return out;
  }
  const char first = at(low, k), last = at(high, k);
  if (first > last) return out;
  // Digits end where `low` does, or go on with zeros.
  if (k >= low.size() && !low_open) out.add(low, {.forms = {zeros(1)}, .none = true});
  out.add(head + first, at_least(tail(low, k + 1), low_open));
  if (first + 1 < last)
    out.add({text(head), digit(static_cast<char>(first + 1), static_cast<char>(last - 1)),
             any_digits(0)});
  out.add(head + last, at_most(tail(high, k + 1), high_open));
  return out;
}

struct Decimal {
  int64_t whole = 0;
  std::string digits{};
};

// 0 <= x < 1e16
Decimal decimal(double x) {
  char buffer[512];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, x, std::chars_format::fixed).ptr;
  const std::string all(buffer, end);
  const size_t point = std::min(all.find('.'), all.size());
  Decimal out{std::stoll(all.substr(0, point)), tail(all, point + 1)};
  out.digits.resize(out.digits.find_last_not_of('0') + 1);  // npos + 1 is 0
  return out;
}

// 0 <= low; high may be infinite.
void add_natural(const NumberRange& r, std::vector<Part>& out) {
  constexpr double kEnd = 1e16;
  if (r.low >= kEnd || r.low > r.high) return;
  const Decimal low = decimal(r.low);
  const bool bounded = r.high < kEnd;
  const Decimal high = bounded ? decimal(r.high) : Decimal{kLargestInteger + 1};
  const auto add = [&](int64_t whole, Digits digits) {
    out.push_back(sequence({integers(whole, whole), std::move(digits).fraction()}));
  };
  if (low.whole == high.whole)
    return add(low.whole, between(low.digits, r.low_open, high.digits, r.high_open));
  add(low.whole, at_least(low.digits, r.low_open));
  if (low.whole + 1 < high.whole)
    out.push_back(
        sequence({integers(low.whole + 1, high.whole - 1), at_least("", false).fraction()}));
  if (bounded) add(high.whole, at_most(high.digits, r.high_open));
}

// A text may round to an open bound. All texts up to the double in front of it are inside, and with
// 0 any text that is not 0.
NumberRange closed(NumberRange r) {
  const auto close = [](double& bound, bool& open, double towards) {
    if (!open || bound == 0 || std::isinf(bound)) return;
    bound = std::nextafter(bound, towards);
    open = false;
  };
  close(r.low, r.low_open, INFINITY);
  close(r.high, r.high_open, -INFINITY);
  return r;
}

}  // namespace

Part integers(const NumberRange& r) {
  const double low = r.low_open ? std::floor(r.low) + 1 : std::ceil(r.low);
  const double high = r.high_open ? std::ceil(r.high) - 1 : std::floor(r.high);
  const auto cut = [](double x) { return static_cast<int64_t>(std::clamp(x, -1e17, 1e17)); };
  return integers(cut(low), cut(high));
}

Part numbers(const NumberRange& range) {
  const NumberRange r = closed(range);
  std::vector<Part> natural, negative;
  if (r.high >= 0)
    add_natural({std::max(r.low, 0.0), r.high, r.low >= 0 && r.low_open, r.high_open}, natural);
  if (r.low < 0)
    add_natural({std::max(-r.high, 0.0), -r.low, r.high >= 0 || r.high_open, r.low_open}, negative);
  if (!negative.empty()) natural.push_back(sequence({text("-"), choice(std::move(negative))}));
  return choice(std::move(natural));
}

}  // namespace tenon::llm
