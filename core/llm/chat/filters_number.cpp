// SPDX-License-Identifier: Apache-2.0
// Filters that make numbers.
#include <charconv>
#include <cmath>
#include <optional>

#include "llm/chat/filters.hpp"
#include "llm/chat/operators.hpp"
#include "llm/chat/print.hpp"
#include "llm/chat/text_tools.hpp"
#include "llm/chat/unicode.hpp"

namespace tenon::llm::jinja {
namespace {

// Without white space around it and single underscores between digits. Empty if these are misplaced.
std::string bare_number(std::string_view text) {
  const std::string trimmed = stripped(text, Sides::both);
  std::string out;
  for (size_t i = 0; i < trimmed.size(); ++i) {
    if (trimmed[i] != '_') {
      out += trimmed[i];
      continue;
    }
    const auto is_digit = [&](size_t at) {
      return at < trimmed.size() && std::isalnum(static_cast<unsigned char>(trimmed[at]));
    };
    if (i == 0 || !is_digit(i - 1) || !is_digit(i + 1)) return {};
  }
  return out;
}

enum class Parsed { no, yes, too_large };

Parsed parse_whole(std::string_view text, int64_t base, int64_t& out) {
  std::string digits = bare_number(text);
  const bool negative = digits.starts_with('-');
  if (negative || digits.starts_with('+')) digits.erase(0, 1);
  if (base == 0 || base == 2 || base == 8 || base == 16) {
    const char mark =
        digits.size() > 2 && digits[0] == '0' ? static_cast<char>(digits[1] | 0x20) : '\0';
    const int64_t of_mark = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
    if (of_mark && (base == 0 || base == of_mark)) {
      digits.erase(0, 2);
      base = of_mark;
    } else if (base == 0) {
      base = 10;
    }
  }
  if (digits.empty() || !std::isalnum(static_cast<unsigned char>(digits[0]))) return Parsed::no;
  if (negative) digits.insert(0, 1, '-');
  const char* end = digits.data() + digits.size();
  const auto [at, error] = std::from_chars(digits.data(), end, out, static_cast<int>(base));
  if (at != end) return Parsed::no;
  return error == std::errc() ? Parsed::yes : Parsed::too_large;
}

std::optional<double> parse_real(std::string_view text) {
  std::string number = bare_number(text);
  const bool negative = number.starts_with('-');
  if (negative || number.starts_with('+')) number.erase(0, 1);
  if (number.empty() || number[0] == '-' || number[0] == '+') return std::nullopt;
  const std::string word = lower_text(number);
  double value = 0;
  if (word == "inf" || word == "infinity") {
    value = INFINITY;
  } else if (word == "nan") {
    value = NAN;
  } else {
    if (number[0] != '.' && !(number[0] >= '0' && number[0] <= '9')) return std::nullopt;
    const char* end = number.data() + number.size();
    const auto [at, error] = std::from_chars(number.data(), end, value);
    if (at != end) return std::nullopt;
    // Out of range: zero or infinity, as the exponent says.
    if (error != std::errc()) value = number.find("e-") != number.npos ? 0 : INFINITY;
  }
  return negative ? -value : value;
}

Value to_whole(Machine& m, const Value& v, const Args& args) {
  const Bound a(m, "int", args, {"default", "base"});
  const Value otherwise = a.get(0, make_int(0));
  const int64_t base = a.whole(1, 10);
  m.require_defined(v);
  std::optional<double> real;
  if (v.is(Kind::text)) {
    if (base != 0 && (base < 2 || base > 36)) return otherwise;
    int64_t whole = 0;
    const Parsed parsed = parse_whole(text_of(v), base, whole);
    if (parsed == Parsed::yes) return make_int(whole);
    if (parsed == Parsed::too_large)
      m.fail("int: the number has more than 64 bits, which is not supported");
    real = parse_real(text_of(v));
  } else if (v.is_whole()) {
    return make_int(v.whole());
  } else if (v.is(Kind::real)) {
    real = v.real;
    if (std::isinf(v.real)) m.fail("int: cannot convert infinity");
  }
  if (!real || !std::isfinite(*real)) return otherwise;
  if (!(std::fabs(*real) < 9.2233720368547758e18))
    m.fail("int: the number has more than 64 bits, which is not supported");
  return make_int(static_cast<int64_t>(*real));
}

Value to_real(Machine& m, const Value& v, const Args& args) {
  const Bound a(m, "float", args, {"default"});
  m.require_defined(v);
  if (v.is_number()) return make_real(v.number());
  if (v.is(Kind::text))
    if (const auto real = parse_real(text_of(v))) return make_real(*real);
  return a.get(0, make_real(0));
}

Value absolute(Machine& m, const Value& v, const Args& args) {
  Bound(m, "abs", args, {});
  m.require_defined(v);
  if (!v.is_number()) m.fail("abs: expected a number, got " + std::string(type_name(v)));
  if (v.is(Kind::real)) return make_real(std::fabs(v.real));
  return v.whole() < 0 ? negate(m, v) : make_int(v.whole());
}

// Rounds to the nearest decimal, halves to even, by the exact value of the double.
double rounded(double value, int64_t digits) {
  if (!std::isfinite(value) || digits > 320) return value;
  if (digits < -310) return std::copysign(0.0, value);
  if (digits < 0) {
    const double unit = std::pow(10.0, static_cast<double>(-digits));
    return std::nearbyint(value / unit) * unit;
  }
  char text[700];
  std::snprintf(text, sizeof text, "%.*f", static_cast<int>(digits), value);
  return std::strtod(text, nullptr);
}

Value round(Machine& m, const Value& v, const Args& args) {
  const Bound a(m, "round", args, {"precision", "method"});
  const int64_t digits = a.whole(0, 0);
  const std::string_view method = a.text(1, "common");
  if (method != "common" && method != "ceil" && method != "floor")
    m.fail("round: 'method': expected common, ceil or floor");
  m.require_defined(v);
  if (!v.is_number()) m.fail("round: expected a number, got " + std::string(type_name(v)));
  if (method == "common") {
    if (v.is(Kind::real)) return make_real(rounded(v.real, digits));
    if (digits >= 0) return make_int(v.whole());
    return make_int(static_cast<int64_t>(rounded(v.number(), digits)));
  }
  const double unit = std::pow(10.0, static_cast<double>(digits));
  const double scaled = v.number() * unit;
  if (!std::isfinite(scaled)) m.fail("round: the number is too large");
  return make_real((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit);
}

Value sum(Machine& m, const Value& v, const Args& args) {
  const Bound a(m, "sum", args, {"attribute", "start"});
  Value total = a.get(1, make_int(0));
  for (const Value& item : m.items_of(v))
    total = binary(m, "+", total, attribute_path(m, item, a.get(0, Value::none()), Value::none()));
  return total;
}

}  // namespace

const std::vector<FilterRow>& number_filters() {
  static const std::vector<FilterRow> rows = {
      {"abs", absolute}, {"float", to_real}, {"int", to_whole}, {"round", round}, {"sum", sum},
  };
  return rows;
}

}  // namespace tenon::llm::jinja
