// SPDX-License-Identifier: Apache-2.0
// Identities by op: neutral elements, repeated casts, views of views, and others.
#include "ops/algebra.hpp"

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "base/number.hpp"

namespace tenon::core {
namespace {

// Decodes the node that computes v, if it is an Op.
template <class Op>
const NodeInfo* made_by(const Graph& g, Value v) {
  if (!v || g[v].space != Space::node) return nullptr;
  const NodeInfo& node = g[g[v].node];
  return node.op->name() == Op::kName && node.op->domain == "tenon" ? &node : nullptr;
}

// The value of a uniform constant, also through views that repeat it.
std::optional<double> uniform(const Graph& g, Value v) {
  for (const NodeInfo* n; (n = made_by<op::expand>(g, v)) || (n = made_by<op::reshape>(g, v));)
    v = n->operands[0];
  const ValueInfo& info = g[v];
  const int64_t count = info.space == Space::constant ? info.type.shape.elements() : 0;
  if (count < 1 || count > 4096) return std::nullopt;
  double first = 0;
  const size_t each = tenon_dtype_bits(info.type.dtype) / 8;
  if (!load_number(info.type.dtype, info.data->data(), &first)) return std::nullopt;
  for (int64_t i = 1; i < count; ++i) {
    double other = 0;
    load_number(info.type.dtype, info.data->data() + static_cast<size_t>(i) * each, &other);
    if (other != first) return std::nullopt;
  }
  return first;
}

// Drops an `expand` of an operand if broadcasting has the same effect and the shape of the result
// stays.
bool drop_expand(const Builder& b, std::vector<Value>& operands, const Shape& out) {
  for (Value& v : operands) {
    const NodeInfo* expand = made_by<op::expand>(b.graph, v);
    if (!expand) continue;
    const Value was = v;
    v = expand->operands[0];
    Shape shape;
    for (Value other : operands)
      if (other) shape = broadcast(shape, b.shape(other), "expand");
    if (shape == out) return true;
    v = was;
  }
  return false;
}

template <class Op>
Value without_expand(Builder& b, const NodeInfo& node, const Type& out) {
  NodeInfo changed = node;
  if (!drop_expand(b, changed.operands, out.shape)) return {};
  return b.add(decode<Op>(changed));
}

// ---- elementwise

Value simpler_binary(Builder& b, const NodeInfo& node, const Type& out) {
  const auto n = decode<op::binary>(node);
  auto neutral = [&](Value kept, Value other, double number) {
    return b.type(kept) == out && uniform(b.graph, other) == number;
  };
  const bool sum = n.kind == "add", product = n.kind == "mul";
  if ((sum || n.kind == "sub") && neutral(n.a, n.b, 0)) return n.a;
  if ((product || n.kind == "div" || n.kind == "pow") && neutral(n.a, n.b, 1)) return n.a;
  if ((sum && neutral(n.b, n.a, 0)) || (product && neutral(n.b, n.a, 1))) return n.b;
  return without_expand<op::binary>(b, node, out);
}

Value simpler_unary(Builder& b, const NodeInfo& node, const Type&) {
  const auto n = decode<op::unary>(node);
  const NodeInfo* inner = made_by<op::unary>(b.graph, n.x);
  if (!inner || decode<op::unary>(*inner).kind != "neg") return {};
  if (n.kind == "neg") return inner->operands[0];
  return n.kind == "abs" ? b.unary("abs", inner->operands[0]) : Value{};
}

Value simpler_logical(Builder& b, const NodeInfo& node, const Type& out) {
  const NodeInfo* inner = made_by<op::logical>(b.graph, node.operands[0]);
  if (decode<op::logical>(node).kind == "not" && inner && decode<op::logical>(*inner).kind == "not")
    return inner->operands[0];
  return without_expand<op::logical>(b, node, out);
}

Value simpler_where(Builder& b, const NodeInfo& node, const Type& out) {
  const auto n = decode<op::where>(node);
  const auto cond = uniform(b.graph, n.cond);
  const Value taken = n.a == n.b ? n.a : !cond ? Value{} : *cond != 0 ? n.a : n.b;
  if (taken && b.type(taken) == out) return taken;
  return without_expand<op::where>(b, node, out);
}

// The bits of an integer, without sign, that a float represents exactly.
int exact_bits(DType t) {
  return t == kF64 ? 53 : t == kF32 ? 24 : t == kF16 ? 11 : t == kBF16 ? 8 : 0;
}

// True if every value of `from` has an equal in `to`, so that a cast there and back changes
// nothing.
bool lossless(DType from, DType to) {
  if (from == to || from == kBool) return is_float(to) || is_integer(to) || from == to;
  if (is_float(from)) return is_float(to) && (to == kF64 || (to == kF32 && is_half(from)));
  if (!is_integer(from)) return false;
  const bool is_signed = from <= kI64;
  const int bits = static_cast<int>(tenon_dtype_bits(from)) - (is_signed ? 1 : 0);
  if (is_float(to)) return bits <= exact_bits(to);
  if (!is_integer(to)) return false;
  const int room = static_cast<int>(tenon_dtype_bits(to)) - (to <= kI64 ? 1 : 0);
  return to <= kI64 ? bits <= room : !is_signed && bits <= room;
}

Value simpler_cast(Builder& b, const NodeInfo& node, const Type& out) {
  const Value x = node.operands[0];
  if (b.type(x) == out) return x;
  const NodeInfo* inner = made_by<op::cast>(b.graph, x);
  if (!inner) return {};
  const Value source = inner->operands[0];
  const DType from = b.dtype(source), via = b.dtype(x), to = out.dtype;
  if (!lossless(from, via)) return {};
  if (from == to) return source;
  // Floats saturate when cast to an integer, integers wrap. The difference matters if the result is
  // out of range.
  const bool known = is_float(to) || is_integer(to) || to == kBool;
  const bool same_way =
      from == kBool || is_float(from) == is_float(via) || !is_integer(to) || lossless(from, to);
  return known && same_way ? Value(b.add(op::cast{.to = to, .x = source})) : Value{};
}

// ---- shape

// Gradients are expanded before.
Value simpler_stop_gradient(Builder&, const NodeInfo& node, const Type&) {
  return node.operands[0];
}

Ints permutation(const NodeInfo& node, int rank) {
  Ints perm = decode<op::transpose>(node).perm;
  if (perm.empty())
    for (int i = rank; i-- > 0;) perm.push_back(i);
  for (int64_t& p : perm) p = p < 0 ? p + rank : p;
  return perm;
}

Value simpler_transpose(Builder& b, const NodeInfo& node, const Type& out) {
  const Value x = node.operands[0];
  const Shape from = b.shape(x);
  const Ints perm = permutation(node, from.rank());
  // If only axes of length 1 move, the data stays in place.
  int64_t last = -1;
  bool in_order = true;
  for (int64_t p : perm) {
    if (from[static_cast<int>(p)] == 1) continue;
    in_order = in_order && p > last;
    last = p;
  }
  if (in_order) return b.reshape(x, out.shape);
  const NodeInfo* inner = made_by<op::transpose>(b.graph, x);
  if (!inner) return {};
  Ints both = permutation(*inner, from.rank());
  Ints composed;
  for (int64_t p : perm) composed.push_back(both[static_cast<size_t>(p)]);
  return b.transpose(inner->operands[0], std::move(composed));
}

Value simpler_reshape(Builder& b, const NodeInfo& node, const Type& out) {
  const Value x = node.operands[0];
  if (b.type(x) == out) return x;
  const NodeInfo* inner = made_by<op::reshape>(b.graph, x);
  return inner ? b.reshape(inner->operands[0], out.shape) : Value{};
}

Value simpler_expand(Builder& b, const NodeInfo& node, const Type& out) {
  const Value x = node.operands[0];
  if (b.type(x) == out) return x;
  const NodeInfo* inner = made_by<op::expand>(b.graph, x);
  return inner ? b.expand(inner->operands[0], out.shape) : Value{};
}

Value simpler_narrow(Builder& b, const NodeInfo& node, const Type& out) {
  const auto n = decode<op::narrow>(node);
  const bool forward = std::all_of(n.step.begin(), n.step.end(), [](int64_t s) { return s == 1; });
  return forward && b.type(n.x) == out ? n.x : Value{};
}

Value simpler_pad(Builder& b, const NodeInfo& node, const Type& out) {
  return b.type(node.operands[0]) == out ? node.operands[0] : Value{};
}

Value simpler_concat(Builder&, const NodeInfo& node, const Type&) {
  return node.operands.size() == 1 ? node.operands[0] : Value{};
}

// Undoes the op that made its operand.
template <class Inverse>
Value undone(Builder& b, const NodeInfo& node, const Type&) {
  const NodeInfo* inner = made_by<Inverse>(b.graph, node.operands[0]);
  return inner ? inner->operands[0] : Value{};
}

// Reductions over axes of length 1 that equal their operand.
Value simpler_reduce(Builder& b, const NodeInfo& node, const Type& out) {
  const auto n = decode<op::reduce>(node);
  constexpr std::string_view kinds[] = {"sum", "mean", "max", "min", "prod", "any", "all"};
  if (std::find(std::begin(kinds), std::end(kinds), n.kind) == std::end(kinds)) return {};
  const Type from = b.type(n.x);
  const int64_t count = from.shape.elements();
  if (from.dtype != out.dtype || count != out.shape.elements() || count == 0) return {};
  return b.reshape(n.x, out.shape);
}

using Rule = Value (*)(Builder&, const NodeInfo&, const Type&);

const std::unordered_map<std::string_view, Rule>& rules() {
  static const std::unordered_map<std::string_view, Rule> table = {
      {op::binary::kName, simpler_binary},
      {op::compare::kName, without_expand<op::compare>},
      {op::logical::kName, simpler_logical},
      {op::unary::kName, simpler_unary},
      {op::where::kName, simpler_where},
      {op::cast::kName, simpler_cast},
      {op::stop_gradient::kName, simpler_stop_gradient},
      {op::transpose::kName, simpler_transpose},
      {op::reshape::kName, simpler_reshape},
      {op::expand::kName, simpler_expand},
      {op::narrow::kName, simpler_narrow},
      {op::pad::kName, simpler_pad},
      {op::concat::kName, simpler_concat},
      {op::reduce::kName, simpler_reduce},
      {op::view_as_real::kName, undone<op::view_as_complex>},
      {op::view_as_complex::kName, undone<op::view_as_real>},
      {op::conj::kName, undone<op::conj>},
  };
  return table;
}

}  // namespace

Value simpler(Builder& b, const NodeInfo& node, const Type& out) {
  if (node.op->domain != "tenon") return {};
  const auto rule = rules().find(node.op->name());
  return rule == rules().end() ? Value{} : rule->second(b, node, out);
}

bool commutes(const NodeInfo& node) {
  if (node.op->traits & kCommutative) return true;
  if (node.op->domain != "tenon" || !node.op->schema->attr("kind")) return false;
  const std::string_view name = node.op->name();
  const std::string& kind = std::get<std::string>(*node.attr("kind"));
  if (name == op::binary::kName)
    return kind == "add" || kind == "mul" || kind == "max" || kind == "min";
  if (name == op::compare::kName) return kind == "eq" || kind == "ne";
  return name == op::logical::kName && kind != "not";
}

}  // namespace tenon::core
