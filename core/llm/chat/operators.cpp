// SPDX-License-Identifier: Apache-2.0
// Arithmetic and comparisons.
#include "llm/chat/operators.hpp"

#include <cmath>

#include "llm/chat/format.hpp"
#include "llm/chat/print.hpp"

namespace tenon::llm::jinja {
namespace {

[[noreturn]] void fail_types(Machine& m, std::string_view op, const Value& a, const Value& b) {
  m.require_defined(a);
  m.require_defined(b);
  m.fail("'" + std::string(op) + "' does not work for " + std::string(type_name(a)) + " and " +
         std::string(type_name(b)));
}

Value checked(Machine& m, std::string_view op, bool overflow, int64_t result) {
  if (overflow)
    m.fail("the result of '" + std::string(op) + "' has more than 64 bits, which is not supported");
  return make_int(result);
}

Value repeat(Machine& m, const Value& v, int64_t times) {
  const auto n = static_cast<uint64_t>(times > 0 ? times : 0);
  if (v.is(Kind::text)) {
    const std::string_view one = text_of(v);
    if (one.empty() || n == 0) return m.text({}, v.text->markup);
    if (n > m.limits().memory / one.size()) m.charge(m.limits().memory + 1);
    m.charge(n * one.size());
    std::string all;
    all.reserve(n * one.size());
    for (uint64_t i = 0; i < n; ++i) all += one;
    return m.text(std::move(all), v.text->markup);
  }
  const auto& one = v.list->items;
  if (!one.empty() && n > m.limits().memory / (one.size() * sizeof(Value)))
    m.charge(m.limits().memory + 1);
  m.charge(n * one.size() * sizeof(Value));
  std::vector<Value> all;
  for (uint64_t i = 0; i < n && !one.empty(); ++i) all.insert(all.end(), one.begin(), one.end());
  return m.list(std::move(all), v.list->is_tuple() ? Form::tuple : Form::list);
}

bool repeats(const Value& v) {
  return v.is(Kind::text) ||
         (v.is(Kind::list) && (v.list->form == Form::list || v.list->is_tuple()));
}

Value add_texts(Machine& m, const Value& a, const Value& b) {
  const bool markup = a.text->markup || b.text->markup;
  const auto part = [&](const Value& v) {
    return markup && !v.text->markup ? escape(text_of(v)) : v.text->bytes;
  };
  m.charge(a.text->bytes.size() + b.text->bytes.size());
  return m.text(part(a) + part(b), markup);
}

Value add(Machine& m, const Value& a, const Value& b) {
  if (a.is(Kind::text) && b.is(Kind::text)) return add_texts(m, a, b);
  if (a.is(Kind::list) && b.is(Kind::list) && repeats(a) && repeats(b) &&
      a.list->is_tuple() == b.list->is_tuple()) {
    m.charge((a.list->items.size() + b.list->items.size()) * sizeof(Value));
    std::vector<Value> all = a.list->items;
    all.insert(all.end(), b.list->items.begin(), b.list->items.end());
    return m.list(std::move(all), a.list->is_tuple() ? Form::tuple : Form::list);
  }
  fail_types(m, "+", a, b);
}

double floor_mod(double a, double b) {
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  return rest == 0 ? std::copysign(0.0, b) : rest;
}

double floor_divide(double a, double b) {
  const double rest = floor_mod(a, b);
  const double quotient = (a - rest) / b;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double whole = std::floor(quotient);
  return quotient - whole > 0.5 ? whole + 1 : whole;
}

Value power_of_ints(Machine& m, int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) m.fail("0 cannot have a negative power");
    return make_real(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  bool overflow = false;
  if (base == 0 || base == 1) return make_int(exponent == 0 ? 1 : base);
  if (base == -1) return make_int(exponent % 2 ? -1 : 1);
  if (exponent > 63) overflow = true;
  for (int64_t i = 0; i < exponent && !overflow; ++i)
    overflow = __builtin_mul_overflow(result, base, &result);
  return checked(m, "**", overflow, result);
}

Value of_ints(Machine& m, std::string_view op, int64_t a, int64_t b) {
  int64_t result = 0;
  if (op == "+" || op == "-" || op == "*") {
    const bool overflow = op == "+"   ? __builtin_add_overflow(a, b, &result)
                          : op == "-" ? __builtin_sub_overflow(a, b, &result)
                                      : __builtin_mul_overflow(a, b, &result);
    return checked(m, op, overflow, result);
  }
  if (op == "**") return power_of_ints(m, a, b);
  if (b == 0) m.fail("division by zero");
  if (op == "/") return make_real(static_cast<double>(a) / static_cast<double>(b));
  if (b == -1)
    return op == "%" ? make_int(0) : checked(m, op, a == INT64_MIN, a == INT64_MIN ? 0 : -a);
  const bool down = a % b != 0 && (a % b < 0) != (b < 0);
  return make_int(op == "%" ? a % b + (down ? b : 0) : a / b - down);
}

Value of_reals(Machine& m, std::string_view op, double a, double b) {
  if (op == "+") return make_real(a + b);
  if (op == "-") return make_real(a - b);
  if (op == "*") return make_real(a * b);
  if (op == "**") {
    if (a == 0 && b < 0) m.fail("0.0 cannot have a negative power");
    const double result = std::pow(a, b);
    if (std::isinf(result) && std::isfinite(a) && std::isfinite(b))
      m.fail("the result of '**' is outside the range of doubles");
    if (std::isnan(result) && !std::isnan(a) && !std::isnan(b))
      m.fail("complex numbers are not supported");
    return make_real(result);
  }
  if (b == 0) m.fail("division by zero");
  if (op == "/") return make_real(a / b);
  return make_real(op == "%" ? floor_mod(a, b) : floor_divide(a, b));
}

}  // namespace

Value binary(Machine& m, std::string_view op, const Value& a, const Value& b) {
  if (a.is_whole() && b.is_whole()) return of_ints(m, op, a.whole(), b.whole());
  if (a.is_number() && b.is_number()) return of_reals(m, op, a.number(), b.number());
  if (op == "+") return add(m, a, b);
  if (op == "*" && repeats(a) && b.is_whole()) return repeat(m, a, b.whole());
  if (op == "*" && repeats(b) && a.is_whole()) return repeat(m, b, a.whole());
  if (op == "%" && a.is(Kind::text)) return format_percent(m, a, b);
  fail_types(m, op, a, b);
}

Value negate(Machine& m, const Value& v) {
  if (v.is(Kind::real)) return make_real(-v.real);
  m.require_defined(v);
  if (!v.is_whole()) m.fail("'-' does not work for " + std::string(type_name(v)));
  return of_ints(m, "-", 0, v.whole());
}

Value plus(Machine& m, const Value& v) {
  if (v.is(Kind::real)) return v;
  m.require_defined(v);
  if (!v.is_whole()) m.fail("'+' does not work for " + std::string(type_name(v)));
  return make_int(v.whole());
}

bool holds(Machine& m, std::string_view op, const Value& a, const Value& b) {
  if (op == "==") return is_equal(m, a, b);
  if (op == "!=") return !is_equal(m, a, b);
  if (op == "in") return m.contains(b, a);
  if (op == "not in") return !m.contains(b, a);
  m.require_defined(a);
  m.require_defined(b);
  if (a.is_number() && b.is_number() && (std::isnan(a.number()) || std::isnan(b.number())))
    return false;
  const int order = compare(m, a, b, op);
  if (op == "<") return order < 0;
  if (op == "<=") return order <= 0;
  return op == ">" ? order > 0 : order >= 0;
}

}  // namespace tenon::llm::jinja
