// SPDX-License-Identifier: Apache-2.0
// The form of attention: softmax(scale·q·kᵀ, masked)·v over [B, heads, S, D] (specification 5.4).
// Where no key is allowed a softmax is NaN and attention 0, so under a mask whose content is not
// known the NaN is put back.
#include <cmath>
#include <limits>

#include "plan/rewrite/raise_match.hpp"

namespace tenon::core {
namespace {

bool is_plain(const op::matmul& n) {
  return !n.trans_a && n.out_dtype == TENON_DTYPE_NONE && n.f32_precision == "ieee";
}

// A mask over the scores: rank up to 4, each dim 1 or the scores'.
bool fits(const Shape& mask, const Shape& scores) {
  if (mask.rank() > 4) return false;
  for (int k = 0; k < mask.rank(); ++k)
    if (mask[k] != 1 && mask[k] != scores[k + 4 - mask.rank()]) return false;
  return true;
}

// 0, 1, 2 .. along the axis that is `from_the_end` of the scores' last two, and 1 long elsewhere,
// or as long as the other axis.
bool counts_along(Matcher& m, Value v, int from_the_end, const Shape& scores) {
  const auto n = m.as<op::iota>(v);
  if (!n || n->start != 0 || n->step != 1 || !is_index(n->dtype)) return false;
  const Shape& s = m.shape(v);
  const int axis = static_cast<int>(n->axis < 0 ? n->axis + s.rank() : n->axis);
  return s.rank() - 1 - axis == from_the_end && s[axis] == scores[3 - from_the_end] &&
         fits(s, scores);
}

// Is it a constant that allows query i exactly the keys j <= i, for all batches and heads alike?
bool is_triangle(const Matcher& m, Value mask, const Shape& scores) {
  const ValueInfo& info = m.graph()[mask];
  const Shape& s = info.type.shape;
  if (info.space != Space::constant || info.type.dtype != kBool || s.rank() < 2) return false;
  const int64_t rows = scores[2], keys = scores[3];
  if (s[s.rank() - 2] != rows || s[s.rank() - 1] != keys || s.elements() != rows * keys)
    return false;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < keys; ++j)
      if ((info.data->at(static_cast<size_t>(i * keys + j)) != std::byte{0}) != (j <= i))
        return false;
  return true;
}

// key <= query, of counters, or its table.
bool is_causal(Matcher& m, Value mask, const Shape& scores) {
  if (is_triangle(m, mask, scores)) return true;
  const size_t before = m.mark();
  if (const auto c = m.as<op::compare>(mask); c && (c->kind == "le" || c->kind == "ge")) {
    const bool le = c->kind == "le";
    if (counts_along(m, le ? c->a : c->b, 0, scores) &&
        counts_along(m, le ? c->b : c->a, 1, scores))
      return true;
  }
  m.back_to(before);
  return false;
}

// Can a kernel multiply with it as one number? Where the parts do not overflow, neither may it.
bool is_scale(double scale, DType dtype) {
  return scale == 0 ||
         (dtype == kF64 ? std::isnormal(scale) : std::isnormal(static_cast<float>(scale)));
}

struct Masked {
  Value scores;
  Value mask;  // absent: none
  bool causal = false;
};

Masked masked(Matcher& m, Value s) {
  const Shape whole = m.shape(s);
  const size_t before = m.mark();
  if (const auto w = m.as<op::where>(s)) {
    const auto fill = m.number(w->b);
    if (fill && *fill == -std::numeric_limits<double>::infinity() && m.shape(w->a) == whole &&
        fits(m.shape(w->cond), whole)) {
      // What makes a mask that others read too stays for them.
      const size_t here = m.mark();
      const bool causal = is_causal(m, w->cond, whole);
      if (causal) m.back_to(here);
      return {w->a, causal ? Value{} : w->cond, causal};
    }
  }
  m.back_to(before);
  if (const auto sum = m.binary(s, "add"))
    for (const auto& [scores, mask] :
         {std::pair(sum->first, sum->second), std::pair(sum->second, sum->first)}) {
      // The other one is what a product, perhaps scaled, made.
      const size_t here = m.mark();
      const Matcher::Product p = m.product(scores);
      const bool product = p.factors.size() == 1 && m.as<op::matmul>(p.factors[0]).has_value();
      m.back_to(here);
      if (product && m.shape(scores) == whole && fits(m.shape(mask), whole)) return {scores, mask};
    }
  m.back_to(before);
  return {s, {}};
}

}  // namespace

std::optional<Raised> raise_attention(Matcher& m, Value y) {
  const auto out = m.as<op::matmul>(y);
  if (!out || !is_plain(*out) || out->trans_b || out->alpha != 1) return {};
  const auto p = m.as<op::softmax>(out->a);
  if (!p || p->log || m.shape(p->x).rank() != 4 || (p->axis != -1 && p->axis != 3)) return {};
  const Shape scores = m.shape(p->x), v = m.shape(out->b);
  if (v.rank() != 4 || v[0] != scores[0] || v[1] != scores[1]) return {};

  const Masked s = masked(m, p->x);
  const Matcher::Product scaled = m.product(s.scores);
  if (scaled.factors.size() != 1 || m.type(scaled.factors[0]) != m.type(p->x)) return {};
  const auto product = m.as<op::matmul>(scaled.factors[0]);
  if (!product || !is_plain(*product)) return {};
  Value k = product->b;
  if (!product->trans_b) {  // kᵀ by a node of its own
    const auto t = m.as<op::transpose>(k);
    if (!t || t->perm != std::vector<int64_t>{0, 1, 3, 2}) return {};
    k = t->x;
  }
  const Shape q = m.shape(product->a), keys = m.shape(k);
  if (q.rank() != 4 || keys.rank() != 4 || q[0] != scores[0] || q[1] != scores[1] ||
      keys[0] != scores[0] || keys[1] != scores[1] || q[3] == 0 || scores[3] == 0)
    return {};
  const double scale = scaled.number * product->alpha;
  if (!is_scale(scale, m.type(p->x).dtype)) return {};

  op::attention a{.scale = scale, .causal = s.causal};
  std::vector<Value> operands{product->a, k, out->b};
  if (s.mask) operands.push_back(s.mask);
  return Raised{std::move(operands), [a](Builder& b, const std::vector<Value>& o) -> Value {
                  op::attention n = a;
                  n.q = o[0], n.k = o[1], n.v = o[2];
                  if (o.size() == 3) return b.add(n);
                  n.mask = o[3];
                  n.want_lse = true;
                  const auto r = b.add(n);
                  const Value nothing = b.compare("eq", b.unsqueeze(r[1], 3),
                                                  -std::numeric_limits<double>::infinity());
                  const Value nan = b.scalar(b.dtype(r[0]), std::nan(""));
                  return b.where(nothing, nan, r[0]);
                }};
}

}  // namespace tenon::core
