// SPDX-License-Identifier: Apache-2.0
// Matches operands, constants and readers for the forms of raise.
#include "plan/rewrite/raise_match.hpp"

#include <algorithm>
#include <cmath>

#include "base/number.hpp"

namespace tenon::core {

Matcher::Matcher(const Graph& graph) : g_(graph), readers_(graph) {
  for (NodeId n = 0; n < graph.node_count(); ++n) has_gradients_ |= is<op::grad>(n);
}

void Matcher::begin(NodeId root) {
  root_ = root;
  clone_ = g_[root].clone;
  seen_.clear();
}

Value Matcher::unary(Value v, std::string_view kind) {
  const size_t before = mark();
  const auto n = of_kind<op::unary>(v, kind);
  if (n && is_unset(n->alpha) && is_unset(n->beta) && !n->ste) return n->x;
  back_to(before);
  return {};
}

std::optional<std::pair<Value, Value>> Matcher::binary(Value v, std::string_view kind) {
  if (const auto n = of_kind<op::binary>(v, kind)) return std::pair(n->a, n->b);
  return {};
}

namespace {

// The axes that a reduction reduces, ascending.
std::vector<int> axes_of(const op::reduce& n, int rank) {
  std::vector<int> axes;
  for (const int64_t a : n.axes) axes.push_back(static_cast<int>(a < 0 ? a + rank : a));
  if (n.axes.empty() && !n.noop_with_empty_axes)
    for (int a = 0; a < rank; ++a) axes.push_back(a);
  std::sort(axes.begin(), axes.end());
  return axes;
}

}  // namespace

Value Matcher::reduced_axis(Value v, std::string_view kind, int& axis) {
  const size_t before = mark();
  int at = -1;
  // With the axis kept, or put back by a reshape.
  Value inner = v;
  bool reshaped = false;
  if (const auto r = as<op::reshape>(v)) inner = r->x, reshaped = true;
  const auto n = of_kind<op::reduce>(inner, kind);
  if (n && n->keepdims != reshaped) {
    const Shape& x = shape(n->x);
    const std::vector<int> axes = axes_of(*n, x.rank());
    if (axes.size() == 1) {
      at = axes[0];
      Shape kept = x;
      kept[at] = 1;
      if (shape(v) == kept) {
        axis = at;
        return n->x;
      }
    }
  }
  back_to(before);
  return {};
}

Value Matcher::reduced(Value v, std::string_view kind, int& first) {
  const size_t before = mark();
  const auto n = of_kind<op::reduce>(v, kind);
  if (n && n->keepdims) {
    const int rank = shape(n->x).rank();
    const std::vector<int> axes = axes_of(*n, rank);
    const int begin = rank - static_cast<int>(axes.size());
    if (!axes.empty() && axes.front() == begin && axes.back() == rank - 1) {
      first = begin;
      return n->x;
    }
  }
  back_to(before);
  return {};
}

Value Matcher::square(Value v) {
  if (const Value x = unary(v, "square")) return x;
  const size_t before = mark();
  if (const auto p = binary(v, "mul"); p && p->first == p->second) return p->first;
  back_to(before);
  if (const auto p = binary(v, "pow"); p && is_number(p->second, 2)) return p->first;
  back_to(before);
  return {};
}

std::optional<double> Matcher::number(Value v) const {
  const ValueInfo& info = g_[v];
  if (info.space != Space::constant || !is_float(info.type.dtype) ||
      info.type.shape.elements() != 1)
    return {};
  double x = 0;
  load_number(info.type.dtype, info.data->data(), &x);
  return x;
}

bool Matcher::is_number(Value v, double wanted) const { return number(v) == wanted; }

namespace {

// How far a number may be from the constant that it was rounded to, relative to the constant: half a
// unit in the last place. A power of two counts as exact.
double rounding_of(double constant, DType dtype) {
  const double unit = dtype == kF64    ? 0x1p-53
                      : dtype == kF32  ? 0x1p-24
                      : dtype == kBF16 ? 0x1p-8
                                       : 0x1p-11;
  const double size = std::abs(constant), power = std::ldexp(1.0, std::ilogb(constant));
  return size == power || !std::isnormal(constant) ? 0 : unit * power / size;
}

}  // namespace

// The wanted number is a rounded double, so in f64 one unit in the last place proves nothing.
bool Matcher::Product::is_rounded(double wanted) const {
  return std::isfinite(number) && std::abs(number - wanted) <= (room + 0x1p-53) * std::abs(number);
}

Matcher::Product Matcher::product(Value v) {
  Product p;
  take_apart(v, p, true);
  return p;
}

void Matcher::take_apart(Value v, Product& p, bool outermost) {
  if (const auto n = number(v)) {
    p.number *= *n;
    p.room += (1 + p.room) * rounding_of(*n, type(v).dtype);
    return;
  }
  constexpr int kMostNodes = 12;
  if ((outermost || readers_.one(v)) && p.nodes < kMostNodes) {
    ++p.nodes;
    if (const auto f = binary(v, "mul")) {
      take_apart(f->first, p, false);
      take_apart(f->second, p, false);
      return;
    }
    const size_t before = mark();
    if (const auto f = binary(v, "div")) {
      if (const auto by = number(f->second); by && *by != 0) {
        p.number /= *by;
        const double off = rounding_of(*by, type(f->second).dtype);
        p.room += (1 + p.room) * off / (1 - off);
        take_apart(f->first, p, false);
        return;
      }
      back_to(before);
    }
    if (const Value x = unary(v, "neg")) {
      p.number = -p.number;
      take_apart(x, p, false);
      return;
    }
  }
  p.factors.push_back(v);
}

std::optional<std::pair<Value, double>> Matcher::plus_number(Value v) {
  const size_t before = mark();
  if (const auto s = binary(v, "add")) {
    if (const auto n = number(s->second)) return std::pair(s->first, *n);
    if (const auto n = number(s->first)) return std::pair(s->second, *n);
  }
  back_to(before);
  return {};
}

bool Matcher::closed() const {
  const std::vector<NodeId> inside = nodes();
  for (NodeId n : inside) {
    if (n == root_) continue;
    for (Value v : g_[n].outputs) {
      if (!v) continue;
      if (readers_.leaves(v)) return false;
      for (NodeId reader : readers_.of(v))
        if (!std::binary_search(inside.begin(), inside.end(), reader)) return false;
    }
  }
  return true;
}

std::vector<NodeId> Matcher::nodes() const {
  std::vector<NodeId> all = seen_;
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

}  // namespace tenon::core
