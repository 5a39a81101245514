// SPDX-License-Identifier: Apache-2.0
// Operands that may be numbers, and operators on values: part of tenon.hpp.
#pragma once

#include <cmath>
#include <cstdio>
#include <tuple>

#include "dtype.hpp"
#include "handle.hpp"
#include "tensor.hpp"

namespace tenon {

// An operand: a value, or a number, which takes the dtype of the value beside it.
class Term {
 public:
  Term(Value v) : value_(v) {}              // NOLINT: implicit on purpose
  Term(const Node& node) : value_(node) {}  // NOLINT: likewise
  template <class T>
  requires std::is_arithmetic_v<T> Term(T number) : kind_(Kind::real) {  // NOLINT: likewise
    if constexpr (std::is_floating_point_v<T>)
      real_ = static_cast<double>(number);
    else if constexpr (std::is_signed_v<T>)
      kind_ = Kind::integer, integer_ = number;
    else
      kind_ = Kind::natural, natural_ = number;
  }
  Term(F16 number) : Term(static_cast<float>(number)) {}   // NOLINT: likewise
  Term(BF16 number) : Term(static_cast<float>(number)) {}  // NOLINT: likewise

  // Absent for a number.
  Value value() const { return value_; }
  // The number as a tensor of that dtype. Floats round. Throws if an integer or bool cannot hold
  // the number, or if a finite number is beyond a float.
  Tensor number(tenon_dtype dtype) const {
    if (sdk::is_float(dtype)) {
      const Tensor wide = wide_number(), out = wide.to(dtype);
      if (std::isinf(out.to(f64).item<double>()) && !std::isinf(wide.to(f64).item<double>()))
        refuse(dtype);
      return out;
    }
    if (!fits(dtype)) refuse(dtype);
    return wide_number().to(dtype);
  }

 private:
  enum class Kind : uint8_t { none, real, integer, natural };

  Tensor wide_number() const {
    if (kind_ == Kind::real) return Tensor::scalar(real_);
    return kind_ == Kind::integer ? Tensor::scalar(integer_) : Tensor::scalar(natural_);
  }
  bool fits(tenon_dtype dtype) const {
    const bool is_signed = dtype == i8 || dtype == i16 || dtype == i32 || dtype == i64;
    // Bits for the magnitude: numbers are below 2^bits.
    const int bits = dtype == boolean ? 1 : static_cast<int>(tenon_dtype_bits(dtype)) - is_signed;
    const auto below = [&](uint64_t n) { return bits == 64 || n >> bits == 0; };
    if (kind_ == Kind::natural) return below(natural_);
    if (kind_ == Kind::integer)
      return integer_ >= 0 ? below(static_cast<uint64_t>(integer_))
                           : is_signed && below(static_cast<uint64_t>(-(integer_ + 1)));
    const double limit = std::ldexp(1.0, bits);
    return std::trunc(real_) == real_ && real_ < limit && real_ >= (is_signed ? -limit : 0.0);
  }
  [[noreturn]] void refuse(tenon_dtype dtype) const {
    char text[40];
    if (kind_ == Kind::real)
      std::snprintf(text, sizeof text, "%g", real_);
    else if (kind_ == Kind::integer)
      std::snprintf(text, sizeof text, "%lld", static_cast<long long>(integer_));
    else
      std::snprintf(text, sizeof text, "%llu", static_cast<unsigned long long>(natural_));
    throw Error(TENON_DTYPE_MISMATCH, "number: expected one that " +
                                          std::string(sdk::dtype_name(dtype)) + " can hold, got " +
                                          text);
  }

  Value value_{};
  Kind kind_ = Kind::none;
  double real_ = 0;
  int64_t integer_ = 0;
  uint64_t natural_ = 0;
};

namespace detail {
template <class Op>
Node add_node(tenon_graph* graph, const Op& op, std::string_view provenance) {
  const NodeEncoder e(op, graph);
  const tenon_node_desc desc = e.desc(op, provenance);
  std::vector<tenon_value> out(e.want.size(), TENON_NONE);
  check(tenon_graph_add_node(graph, &desc, out.data()));
  Node node;
  for (tenon_value v : out) node.outputs.push_back(v == TENON_NONE ? Value() : Value(v, graph));
  return node;
}
// Two operands as values. A number becomes a constant.
inline std::pair<Value, Value> values(Term a, Term b) {
  Value x = a.value(), y = b.value();
  tenon_graph* const graph = x ? x.graph : y.graph;
  if (!graph || (x && y && x.graph != y.graph))
    throw Error(TENON_INVALID_ARGUMENT, !x && !y ? "two operands: expected a value, got numbers"
                                        : graph  ? "two operands: expected values of one graph"
                                                 : "two operands: expected a value of a Graph");
  if (!x || !y) {
    Value& missing = x ? y : x;
    tenon_dtype dtype = TENON_DTYPE_NONE;
    check(tenon_graph_dtype(graph, (x ? x : y).id, &dtype));
    const Tensor number = (x ? b : a).number(dtype);
    missing.graph = graph;
    check(
        tenon_graph_constant(graph, dtype, 0, nullptr, number.data(), number.size(), &missing.id));
  }
  return {x, y};
}
inline Value binary(const char* kind, Term a, Term b) {
  const auto [x, y] = values(a, b);
  return add_node(x.graph, op::binary{.kind = kind, .a = x, .b = y}, {});
}
}  // namespace detail

// Arithmetic on values of one graph. Shapes broadcast; the dtypes must agree.
inline Value operator+(Term a, Term b) { return detail::binary("add", a, b); }
inline Value operator-(Term a, Term b) { return detail::binary("sub", a, b); }
inline Value operator*(Term a, Term b) { return detail::binary("mul", a, b); }
inline Value operator/(Term a, Term b) { return detail::binary("div", a, b); }
inline Value operator-(Value x) {
  if (!x.graph) throw Error(TENON_INVALID_ARGUMENT, "operand x: expected a value of a Graph");
  return detail::add_node(x.graph, op::unary{.kind = "neg", .x = x}, {});
}
inline Value& operator+=(Value& a, Term b) { return a = a + b; }
inline Value& operator-=(Value& a, Term b) { return a = a - b; }
inline Value& operator*=(Value& a, Term b) { return a = a * b; }
inline Value& operator/=(Value& a, Term b) { return a = a / b; }

}  // namespace tenon
