// SPDX-License-Identifier: Apache-2.0
// Short names of Builder, and checks of Infer.
#include "ops/build.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include "base/number.hpp"
#include "ops/record.hpp"

namespace tenon::core {

// ---- Infer

bool is_one_of(std::string_view accepted, std::string_view word) {
  while (!accepted.empty()) {
    const size_t end = std::min(accepted.find(' '), accepted.size());
    if (accepted.substr(0, end) == word) return true;
    accepted.remove_prefix(std::min(end + 1, accepted.size()));
  }
  return false;
}

void check_words(const Infer& i, std::span<const Words> words, const NodeInfo& node) {
  for (const Words& w : words) {
    const OpPart* part = w.attr.empty() ? nullptr : node.op->schema->attr(w.attr);
    if (!part || part->attr_type != TENON_ATTR_STR || w.accepted == kAnyText) continue;
    std::string_view given = part->default_str;
    for (const Attr& a : node.attrs)
      if (a.name == w.attr) given = std::get<std::string>(a.value);
    if (!is_one_of(w.accepted, given))
      i.fail(Code::invalid_argument, "attribute ", w.attr, ": expected one of ", w.accepted,
             ", given '", given, "'");
  }
}

std::string Infer::who() const { return node_.op->text(node_.provenance); }
void Infer::want_float(Value v, std::string_view operand) const {
  if (v && !is_float(dtype(v)))
    fail(Code::dtype_mismatch, "operand ", operand, ": expected a float, got ", type(v).text());
}
void Infer::want_index(Value v, std::string_view operand) const {
  if (v && !is_index(dtype(v)))
    fail(Code::dtype_mismatch, "operand ", operand, ": expected i32 or i64, got ", type(v).text());
}
void Infer::want_complex(Value v, std::string_view operand) const {
  if (v && !is_complex(dtype(v)))
    fail(Code::dtype_mismatch, "operand ", operand, ": expected c64 or c128, got ", type(v).text());
}
void Infer::want_dtype(Value v, std::string_view operand, DType expected) const {
  if (v && dtype(v) != expected)
    fail(Code::dtype_mismatch, "operand ", operand, ": expected ", dtype_name(expected), ", got ",
         type(v).text());
}
void Infer::want_same_dtype(Value a, std::string_view operand_a, Value b,
                            std::string_view operand_b) const {
  if (a && b && dtype(a) != dtype(b))
    fail(Code::dtype_mismatch, "operand ", operand_b, ": expected ", dtype_name(dtype(a)),
         " as operand ", operand_a, ", got ", type(b).text());
}
void Infer::want_shape(Value v, std::string_view operand, const Shape& expected) const {
  if (v && shape(v) != expected)
    fail(Code::shape_mismatch, "operand ", operand, ": expected shape ", expected.text(), ", got ",
         type(v).text());
}
void Infer::want_rank(Value v, std::string_view operand, int rank) const {
  if (v && shape(v).rank() != rank)
    fail(Code::shape_mismatch, "operand ", operand, ": expected rank ", rank, ", got ",
         type(v).text());
}

// ---- Builder

namespace {
std::shared_ptr<const Bytes> bytes_of(DType dtype, double value) {
  auto data = std::make_shared<Bytes>(tenon_dense_bytes(dtype, 1));
  store_number(dtype, data->data(), value);
  return data;
}
}  // namespace

Value Builder::scalar(DType t, double value) { return graph.constant({t, {}}, bytes_of(t, value)); }

Value Builder::scalar_int(DType t, int64_t value) {
  auto data = std::make_shared<Bytes>(tenon_dense_bytes(t, 1));
  if (is_integer(t))
    std::memcpy(data->data(), &value, data->size());  // little-endian: the low bytes
  else
    store_number(t, data->data(), static_cast<double>(value));
  return graph.constant({t, {}}, std::move(data));
}

Value Builder::ints(DType t, std::span<const int64_t> values) {
  check(is_integer(t), "ints: a dtype that is no integer");
  const size_t each = tenon_dtype_bits(t) / 8;
  auto data = std::make_shared<Bytes>(values.size() * each);
  for (size_t i = 0; i < values.size(); ++i) std::memcpy(data->data() + i * each, &values[i], each);
  return graph.constant({t, {static_cast<Dim>(values.size())}}, std::move(data));
}

Value Builder::full(Type t, double value) { return expand(scalar(t.dtype, value), t.shape); }

Value Builder::binary(std::string_view kind, Value a, Value b) {
  return add(op::binary{.kind = std::string(kind), .a = a, .b = b});
}
Value Builder::unary(std::string_view kind, Value x) {
  return add(op::unary{.kind = std::string(kind), .x = x});
}
Value Builder::compare(std::string_view kind, Value a, Value b) {
  return add(op::compare{.kind = std::string(kind), .a = a, .b = b});
}
Value Builder::logical(std::string_view kind, Value a, Value b) {
  return add(op::logical{.kind = std::string(kind), .a = a, .b = b});
}
Value Builder::where(Value cond, Value a, Value b) {
  return add(op::where{.cond = cond, .a = a, .b = b});
}
Value Builder::copy(Value x) { return add(op::copy{.x = x}); }
Value Builder::cast(Value x, DType to) {
  return dtype(x) == to ? x : Value(add(op::cast{.to = to, .x = x}));
}

Value Builder::reshape(Value x, Shape to) {
  if (shape(x) == to) return x;
  // A dim of 0 means 0 here, never "copy".
  return add(op::reshape{.shape = Ints(to.begin(), to.end()), .allow_zero = true, .x = x});
}
Value Builder::transpose(Value x, Ints perm) {
  Ints identity(perm.size());
  std::iota(identity.begin(), identity.end(), 0);
  return perm == identity ? x : Value(add(op::transpose{.perm = std::move(perm), .x = x}));
}
Value Builder::swap_last(Value x) {
  Ints perm(static_cast<size_t>(shape(x).rank()));
  std::iota(perm.begin(), perm.end(), 0);
  std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
  return transpose(x, std::move(perm));
}
Value Builder::expand(Value x, Shape to) {
  return shape(x) == to ? x : Value(add(op::expand{.shape = Ints(to.begin(), to.end()), .x = x}));
}
Value Builder::unsqueeze(Value x, int axis) {
  Shape to;
  for (int i = 0; i <= shape(x).rank(); ++i) {
    if (i == axis) to.push(1);
    if (i < shape(x).rank()) to.push(shape(x)[i]);
  }
  return reshape(x, to);
}
Value Builder::narrow(Value x, int axis, int64_t start, int64_t len, int64_t step) {
  const Shape& s = shape(x);
  if (start == 0 && step == 1 && len == s[axis]) return x;
  Ints starts(static_cast<size_t>(s.rank()), 0), lens(s.begin(), s.end()),
      steps(static_cast<size_t>(s.rank()), 1);
  starts[static_cast<size_t>(axis)] = start;
  lens[static_cast<size_t>(axis)] = len;
  steps[static_cast<size_t>(axis)] = step;
  return add(op::narrow{
      .start = std::move(starts), .len = std::move(lens), .step = std::move(steps), .x = x});
}
Value Builder::concat(std::vector<Value> xs, int axis) {
  return xs.size() == 1 ? xs[0] : Value(add(op::concat{.axis = axis, .xs = std::move(xs)}));
}

Value Builder::reduce(std::string_view kind, Value x, Ints axes, bool keepdims) {
  const bool none = axes.empty();
  return add(op::reduce{.kind = std::string(kind),
                        .axes = std::move(axes),
                        .keepdims = keepdims,
                        .noop_with_empty_axes = none,
                        .x = x});
}

Value Builder::shares(Value x, const Ints& axes) {
  const double most =
      dtype(x) == kF64 ? std::numeric_limits<double>::max() : std::numeric_limits<float>::max();
  // Finite, so that infinite elements are unchanged.
  const Value from =
      max(min(reduce("max", x, axes, true), scalar(dtype(x), most)), scalar(dtype(x), -most));
  const Value e = exp(minus(x, from));
  return over(e, sum(e, axes));
}
Value Builder::sum_to(Value x, Shape to) {
  const Shape from = shape(x);
  if (from == to) return x;
  if (is_complex(dtype(x))) {
    to.push(2);
    return as_complex(sum_to(as_real(x), to));
  }
  const int extra = from.rank() - to.rank();
  Ints axes;
  for (int i = 0; i < from.rank(); ++i)
    if (i < extra || (to[i - extra] == 1 && from[i] != 1)) axes.push_back(i);
  return reshape(axes.empty() ? x : sum(x, std::move(axes)), to);
}

Value Builder::as_real(Value x) { return add(op::view_as_real{.x = x}); }
Value Builder::as_complex(Value x) { return add(op::view_as_complex{.x = x}); }
Value Builder::conj(Value x) { return add(op::conj{.x = x}); }
Value Builder::part(Value x, int64_t which) {
  const Value pairs = as_real(x);
  return reshape(narrow(pairs, shape(x).rank(), which, 1), shape(x));
}
Value Builder::pair(DType t, double real, double imaginary) {
  const size_t each = tenon_dtype_bits(t) / 8;
  auto data = std::make_shared<Bytes>(2 * each);
  store_number(t, data->data(), real);
  store_number(t, data->data() + each, imaginary);
  return graph.constant({t, {2}}, std::move(data));
}

Value Builder::matmul(Value a, Value b, bool trans_a, bool trans_b, double alpha, DType out_dtype) {
  return add(op::matmul{.trans_a = trans_a,
                        .trans_b = trans_b,
                        .alpha = alpha,
                        .out_dtype = out_dtype,
                        .a = a,
                        .b = b});
}
Value Builder::iota(Shape s, int axis, DType t, double start, double step) {
  return add(op::iota{
      .shape = Ints(s.begin(), s.end()), .axis = axis, .dtype = t, .start = start, .step = step});
}

}  // namespace tenon::core
