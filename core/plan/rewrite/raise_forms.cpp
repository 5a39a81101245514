// SPDX-License-Identifier: Apache-2.0
// Forms of raise: softmax, cross entropy, activations and norms. Numbers in comments are the
// specification's.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "plan/rewrite/raise_match.hpp"

namespace tenon::core {
namespace {

// e^(x - max x) and x - max x over one axis.
struct Shifted {
  Value x;
  int axis = -1;
};
std::optional<Shifted> shifted(Matcher& m, Value d) {
  const auto difference = m.binary(d, "sub");
  if (!difference) return {};
  int axis = -1;
  if (m.reduced_axis(difference->second, "max", axis) != difference->first) return {};
  return Shifted{difference->first, axis};
}

// Σ e over the axis, where e = e^(x - max x).
bool is_sum_of(Matcher& m, Value s, Value e, int axis) {
  int over = -1;
  return m.reduced_axis(s, "sum", over) == e && over == axis;
}

Raised softmax_of(Value x, int axis, bool log) {
  return {{x}, [axis, log](Builder& b, const std::vector<Value>& v) -> Value {
            return b.add(op::softmax{.axis = axis, .log = log, .x = v[0]});
          }};
}

Raised activation_of(Value x, std::string kind) {
  return {{x}, [kind = std::move(kind)](Builder& b, const std::vector<Value>& v) {
            return b.unary(kind, v[0]);
          }};
}

}  // namespace

// ---- softmax (3.2). e^x / Σ e^x is none: it overflows where softmax does not.

std::optional<Raised> raise_softmax(Matcher& m, Value y) {
  Value e, sum;
  if (const auto quotient = m.binary(y, "div")) {
    e = quotient->first, sum = quotient->second;
  } else if (const auto product = m.binary(y, "mul")) {
    for (const auto& [a, b] :
         {std::pair(product->first, product->second), std::pair(product->second, product->first)})
      if (!sum)
        if (const Value s = m.unary(b, "reciprocal")) e = a, sum = s;
  }
  if (!sum) return {};
  const Value d = m.unary(e, "exp");
  if (!d) return {};
  const auto from = shifted(m, d);
  if (!from || !is_sum_of(m, sum, e, from->axis)) return {};
  return softmax_of(from->x, from->axis, false);
}

// x - max x - ln Σ e^(x - max x). The logarithm of a softmax is none: it underflows.
std::optional<Raised> raise_log_softmax(Matcher& m, Value y) {
  const auto difference = m.binary(y, "sub");
  if (!difference) return {};
  const auto from = shifted(m, difference->first);
  if (!from) return {};
  const Value sum = m.unary(difference->second, "log");
  if (!sum) return {};
  int axis = -1;
  const Value e = m.reduced_axis(sum, "sum", axis);
  if (!e || axis != from->axis || m.unary(e, "exp") != difference->first) return {};
  return softmax_of(from->x, from->axis, true);
}

// ---- cross entropy (3.3): the label's logarithm, picked from a log softmax along the axis. What
// reduces the items afterwards stays as it is. A pick counts negative labels from the end and
// ignores none, so they are mapped, and what is ignored is a label that cannot be. A product with
// one-hot rows is none: it makes 0·-inf of a logit of -inf.
std::optional<Raised> raise_cross_entropy(Matcher& m, Value y) {
  const auto pick = m.as<op::gather_elements>(y);
  if (!pick || pick->oob != "error") return {};
  const auto log = m.as<op::softmax>(pick->data);
  if (!log || !log->log) return {};
  const DType dtype = m.type(log->x).dtype;
  if (acc_dtype(dtype) != dtype) return {};  // its loss is of another dtype
  const Shape& x = m.shape(log->x);
  const int axis = static_cast<int>(log->axis < 0 ? log->axis + x.rank() : log->axis);
  Shape picked = x;
  picked[axis] = 1;
  if ((pick->axis < 0 ? pick->axis + x.rank() : pick->axis) != axis ||
      m.shape(pick->indices) != picked || x[axis] == 0)
    return {};
  const int64_t classes = x[axis];
  if (m.type(pick->indices).dtype == kI32 && classes > std::numeric_limits<int32_t>::max())
    return {};
  return Raised{{log->x, pick->indices},
                [axis, classes, picked](Builder& b, const std::vector<Value>& v) -> Value {
                  Shape items;
                  for (int a = 0; a < picked.rank(); ++a)
                    if (a != axis) items.push(picked[a]);
                  const DType index = b.dtype(v[1]);
                  const Value labels = b.reshape(v[1], items);
                  const Value from_end = b.plus(labels, b.scalar_int(index, classes));
                  const Value mapped =
                      b.where(b.compare("lt", labels, b.scalar_int(index, 0)), from_end, labels);
                  const int64_t never = index == kI32 ? std::numeric_limits<int32_t>::min()
                                                      : std::numeric_limits<int64_t>::min();
                  const auto r = b.add(op::cross_entropy{.axis = axis,
                                                         .ignore_index = never,
                                                         .reduction = "none",
                                                         .logits = v[0],
                                                         .labels = mapped,
                                                         .want_lse = true});
                  // In a row with +inf the loss is infinite, but the log softmax is NaN.
                  const Value above =
                      b.compare("eq", r[1], std::numeric_limits<double>::infinity());
                  const Value nan = b.scalar(b.dtype(r[0]), std::nan(""));
                  return b.reshape(b.where(above, nan, b.neg(r[0])), picked);
                }};
}

// ---- activations (1.3)

namespace {

bool is_multiple(Matcher& m, Value u, Value x, double number) {
  const Matcher::Product p = m.product(u);
  return p.factors.size() == 1 && p.factors[0] == x && p.is_rounded(number);
}

// How often a product has x as a factor, squares and cubes counted; -1 when it has others.
int powers_of(Matcher& m, const Matcher::Product& p, Value x) {
  int count = 0;
  for (const Value f : p.factors) {
    const size_t before = m.mark();
    if (f == x) {
      count += 1;
    } else if (m.square(f) == x) {
      count += 2;
    } else {
      m.back_to(before);
      const auto cube = m.binary(f, "pow");
      if (!cube || cube->first != x || !m.is_number(cube->second, 3)) return -1;
      count += 3;
    }
  }
  return count;
}

// √(2/π)(x + .044715x³), or √(2/π)·x·(1 + .044715x²).
bool is_tanh_argument(Matcher& m, Value u, Value x) {
  const Matcher::Product p = m.product(u);
  if (!p.is_rounded(std::sqrt(2 / std::numbers::pi))) return false;
  const auto is_cubic = [&](Value v, int powers) {
    const Matcher::Product q = m.product(v);
    return q.is_rounded(0.044715) && powers_of(m, q, x) == powers;
  };
  if (p.factors.size() == 1) {
    const auto sum = m.binary(p.factors[0], "add");
    if (!sum || (sum->first != x && sum->second != x)) return false;
    return is_cubic(sum->first == x ? sum->second : sum->first, 3);
  }
  if (p.factors.size() != 2 || (p.factors[0] != x && p.factors[1] != x)) return false;
  const auto sum = m.plus_number(p.factors[p.factors[0] == x ? 1 : 0]);
  return sum && sum->second == 1 && is_cubic(sum->first, 2);
}

// The kind whose x/2·t this is, or nullptr.
const char* gelu_of(Matcher& m, Value x, Value t) {
  constexpr double kRoot = std::numbers::sqrt2 / 2;
  if (const Value u = m.unary(t, "erfc")) return is_multiple(m, u, x, -kRoot) ? "gelu" : nullptr;
  const auto sum = m.plus_number(t);
  if (!sum || sum->second != 1) return nullptr;
  if (const Value u = m.unary(sum->first, "erf"))
    return is_multiple(m, u, x, kRoot) ? "gelu" : nullptr;
  const Value u = m.unary(sum->first, "tanh");
  return u && is_tanh_argument(m, u, x) ? "gelu_tanh" : nullptr;
}

}  // namespace

// x·Φ(x), with 1 + erf or erfc; x/2·(1 + tanh u), u = √(2/π)(x + .044715x³).
std::optional<Raised> raise_gelu(Matcher& m, Value y) {
  const Matcher::Product p = m.product(y);
  if (p.factors.size() != 2 || p.number != 0.5) return {};
  const size_t before = m.mark();
  for (size_t k = 0; k < 2; ++k) {
    m.back_to(before);
    const Value x = p.factors[k];
    if (m.type(x) != m.type(y)) continue;
    if (const char* kind = gelu_of(m, x, p.factors[1 - k])) return activation_of(x, kind);
  }
  return {};
}

// 1 / (1 + e^-x)
std::optional<Raised> raise_sigmoid(Matcher& m, Value y) {
  Value below = m.unary(y, "reciprocal");
  if (!below)
    if (const auto quotient = m.binary(y, "div"); quotient && m.is_number(quotient->first, 1))
      below = quotient->second;
  if (!below) return {};
  const auto sum = m.plus_number(below);
  if (!sum || sum->second != 1) return {};
  const Value e = m.unary(sum->first, "exp");
  const Value x = e ? m.unary(e, "neg") : Value{};
  if (!x || m.type(x) != m.type(y)) return {};
  return activation_of(x, "sigmoid");
}

// x·σ(x), or x / (1 + e^-x)
std::optional<Raised> raise_silu(Matcher& m, Value y) {
  if (const auto product = m.binary(y, "mul")) {
    const size_t before = m.mark();
    for (const auto& [x, s] :
         {std::pair(product->first, product->second), std::pair(product->second, product->first)}) {
      m.back_to(before);
      if (m.unary(s, "sigmoid") == x) return activation_of(x, "silu");
    }
    return {};
  }
  const auto quotient = m.binary(y, "div");
  if (!quotient) return {};
  const auto sum = m.plus_number(quotient->second);
  if (!sum || sum->second != 1) return {};
  const Value e = m.unary(sum->first, "exp");
  if (!e || m.unary(e, "neg") != quotient->first || m.type(y) != m.type(quotient->first)) return {};
  return activation_of(quotient->first, "silu");
}

// ---- norms (4.1, 4.4)

namespace {

struct Root {
  double eps = 0;
  int axis = 0;  // from here to the last
};

// r = 1/√(mean(c²) + eps) of these values, or its reciprocal; to be told apart by the caller.
std::optional<Root> root_of_mean(Matcher& m, Value inside, Value c) {
  const auto sum = m.plus_number(inside);
  if (!sum || !(sum->second >= 0) || !std::isfinite(sum->second)) return {};
  Root r{.eps = sum->second};
  const Value squares = m.reduced(sum->first, "mean", r.axis);
  if (!squares || m.square(squares) != c) return {};
  return r;
}

std::optional<Root> inverse_root(Matcher& m, Value r, Value c) {
  if (const Value inside = m.unary(r, "rsqrt")) return root_of_mean(m, inside, c);
  const size_t before = m.mark();
  Value root = m.unary(r, "reciprocal");
  if (!root)
    if (const auto quotient = m.binary(r, "div"); quotient && m.is_number(quotient->first, 1))
      root = quotient->second;
  if (const Value inside = root ? m.unary(root, "sqrt") : Value{})
    return root_of_mean(m, inside, c);
  m.back_to(before);
  return {};
}

// c·r or c/√(..): the values c, the root, and the other factors of the product.
struct Normalized {
  Value c;
  Root root;
  std::vector<Value> rest;
};
std::optional<Normalized> quotient_by_root(Matcher& m, Value y) {
  const auto quotient = m.binary(y, "div");
  if (!quotient) return {};
  const Value inside = m.unary(quotient->second, "sqrt");
  if (!inside) return {};
  const auto root = root_of_mean(m, inside, quotient->first);
  if (!root) return {};
  return Normalized{quotient->first, *root, {}};
}
std::optional<Normalized> normalized(Matcher& m, Value y) {
  const size_t start = m.mark();
  if (auto n = quotient_by_root(m, y)) return n;
  m.back_to(start);
  const Matcher::Product p = m.product(y);
  const size_t count = p.factors.size(), before = m.mark();
  if (p.number != 1 || count > 3) return {};
  // The factors except two, by position, because a value may occur twice.
  const auto all_but = [&](size_t a, size_t b) {
    std::vector<Value> rest;
    for (size_t f = 0; f < count; ++f)
      if (f != a && f != b) rest.push_back(p.factors[f]);
    return rest;
  };
  for (size_t c = 0; c < count; ++c) {
    m.back_to(before);
    if (auto n = quotient_by_root(m, p.factors[c])) {
      n->rest = all_but(c, c);
      return n;
    }
    for (size_t r = 0; r < count; ++r) {
      if (c == r) continue;
      m.back_to(before);
      if (const auto root = inverse_root(m, p.factors[r], p.factors[c]))
        return Normalized{p.factors[c], *root, all_but(c, r)};
    }
  }
  return {};
}

// Is v a parameter of a norm of x from this axis on?
bool is_parameter(const Matcher& m, Value v, Value x, int axis) {
  const Shape &shape = m.shape(v), &whole = m.shape(x);
  if (m.type(v).dtype != m.type(x).dtype || shape.rank() != whole.rank() - axis) return false;
  for (int k = 0; k < shape.rank(); ++k)
    if (shape[k] != whole[axis + k]) return false;
  return true;
}

}  // namespace

// x·r·γ. One without a scale is left as it is: the op has one.
std::optional<Raised> raise_rms_norm(Matcher& m, Value y) {
  const auto n = normalized(m, y);
  if (!n || n->rest.size() != 1 || m.type(y) != m.type(n->c)) return {};
  const auto [eps, axis] = n->root;
  if (!is_parameter(m, n->rest[0], n->c, axis)) return {};
  return Raised{{n->c, n->rest[0]}, [eps = eps, axis = axis](Builder& b, const auto& v) -> Value {
                  return b.add(op::rms_norm{.axis = axis, .eps = eps, .x = v[0], .gamma = v[1]});
                }};
}

// (x - mean x)·r, and γ where it is in the product. The variance is that of centred values: as
// mean(x²) - mean(x)² it is none, for it rounds to something else.
std::optional<Raised> raise_layer_norm(Matcher& m, Value y) {
  const auto n = normalized(m, y);
  if (!n || n->rest.size() > 1 || m.type(y) != m.type(n->c)) return {};
  const auto [eps, axis] = n->root;
  const auto difference = m.binary(n->c, "sub");
  int over = -1;
  if (!difference || m.reduced(difference->second, "mean", over) != difference->first ||
      over != axis)
    return {};
  const Value x = difference->first;
  std::vector<Value> operands{x};
  if (!n->rest.empty()) {
    if (!is_parameter(m, n->rest[0], x, axis)) return {};
    operands.push_back(n->rest[0]);
  }
  return Raised{std::move(operands), [eps = eps, axis = axis](Builder& b, const auto& v) -> Value {
                  return b.add(op::layer_norm{
                      .axis = axis, .eps = eps, .x = v[0], .gamma = v.size() > 1 ? v[1] : Value{}});
                }};
}

namespace {

// Puts a scale, then an offset, into a norm that nobody else reads.
template <class Norm>
std::optional<Raised> with_parameter(Matcher& m, Value y, Value inner, Value v, bool scale) {
  const auto norm = m.as<Norm>(inner);
  if (!norm || norm->beta || (scale && norm->gamma)) return {};
  const int rank = m.shape(norm->x).rank();
  const int axis = static_cast<int>(norm->axis < 0 ? norm->axis + rank : norm->axis);
  if (m.type(y) != m.type(norm->x) || !is_parameter(m, v, norm->x, axis)) return {};
  std::vector<Value> operands{norm->x, scale ? v : norm->gamma, scale ? Value{} : v};
  return Raised{
      std::move(operands),
      [axis, eps = norm->eps](Builder& b, const std::vector<Value>& o) -> Value {
        return b.add(Norm{.axis = axis, .eps = eps, .x = o[0], .gamma = o[1], .beta = o[2]});
      }};
}

}  // namespace

std::optional<Raised> raise_scaled_norm(Matcher& m, Value y) {
  const auto product = m.binary(y, "mul");
  const auto sum = product ? product : m.binary(y, "add");
  if (!sum) return {};
  const size_t before = m.mark();
  for (const auto& [inner, v] :
       {std::pair(sum->first, sum->second), std::pair(sum->second, sum->first)}) {
    m.back_to(before);
    if (auto r = with_parameter<op::layer_norm>(m, y, inner, v, bool(product))) return r;
    m.back_to(before);
    if (product) continue;
    if (auto r = with_parameter<op::rms_norm>(m, y, inner, v, false)) return r;
  }
  return {};
}

}  // namespace tenon::core
