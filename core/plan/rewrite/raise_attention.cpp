// SPDX-License-Identifier: Apache-2.0
// The form of attention: softmax(scale·q·kᵀ, masked)·v over [B, heads, S, D] (specification 5.4),
// and of attention between transposes, which is attention over [B, S, heads, D].
// In a row that sees no key, softmax gives NaN and attention gives 0. If the mask may hide a whole
// row, the raised form therefore adds the NaN, to the result and to the gradients.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/number.hpp"
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

// Does an element of a constant mask hide a key?
bool hides(const ValueInfo& mask, int64_t at) {
  const DType dtype = mask.type.dtype;
  const std::byte* element = mask.data->data() + at * (tenon_dtype_bits(dtype) / 8);
  if (dtype == kBool) return *element == std::byte{0};
  double x = 0;
  load_number(dtype, element, &x);
  return x == -std::numeric_limits<double>::infinity();
}

// Can an element of a mask of numbers be -inf? Looks through what chooses and moves constants.
bool may_hide(Matcher& m, Value mask, int nodes = 8) {
  const ValueInfo& info = m.graph()[mask];
  if (info.space == Space::constant) {
    for (int64_t at = 0; at < info.type.shape.elements(); ++at)
      if (hides(info, at)) return true;
    return false;
  }
  if (nodes == 0 || info.type.dtype == kBool) return true;
  const size_t before = m.mark();
  bool may = true;
  if (const auto w = m.as<op::where>(mask))
    may = may_hide(m, w->a, nodes - 1) || may_hide(m, w->b, nodes - 1);
  else if (const auto r = m.as<op::reshape>(mask))
    may = may_hide(m, r->x, nodes - 1);
  else if (const auto e = m.as<op::expand>(mask))
    may = may_hide(m, e->x, nodes - 1);
  m.back_to(before);
  return may;
}

// Can a mask hide all keys of a row? A constant is read.
bool may_hide_rows(Matcher& m, Value mask) {
  const ValueInfo& info = m.graph()[mask];
  if (info.space != Space::constant) return may_hide(m, mask);
  const Shape& s = info.type.shape;
  const int64_t keys = s.rank() == 0 ? 1 : s[s.rank() - 1];
  for (int64_t row = 0; row < s.elements(); row += keys) {
    int64_t key = 0;
    while (key < keys && hides(info, row + key)) ++key;
    if (key == keys) return true;
  }
  return false;
}

// Puts the NaN of rows that see no key into o. The unraised graph has NaN gradients there too: of
// v, and under a float mask also of q, k and the mask (under a boolean mask a select stops them).
// To give the same gradients, o reads a mean of each of these tensors, times NaN in rows that see
// no key and times 0 in the others.
Value with_nan(Builder& b, const op::attention& n, Value o, Value lse, bool has_gradients) {
  const Value hidden =
      b.compare("eq", b.unsqueeze(lse, 3), -std::numeric_limits<double>::infinity());
  const DType dtype = b.dtype(o);
  const Value nan = b.scalar(dtype, std::nan(""));
  if (!has_gradients) return b.where(hidden, nan, o);
  Value read = b.mean(n.v, {2});
  if (b.dtype(n.mask) != kBool) {
    read = b.plus(read, b.mean(n.q, {3}));
    read = b.plus(read, b.mean(n.k, {2, 3}));
    read = b.plus(read, b.shape(n.mask).rank() == 0 ? n.mask : b.mean(n.mask, {-1}));
  }
  const Value factor = b.where(hidden, nan, b.scalar(dtype, 0));
  return b.where(hidden, b.times(factor, read), o);
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

// x of x times a number, which goes into `scale`. A number so far from 1 that products of x might
// overflow, where those of the scaled x do not, stays.
Value without_scale(Matcher& m, Value v, double& scale) {
  constexpr double kFarthest = 1024;
  if (!m.is_read_once(v)) return v;
  const size_t before = m.mark();
  const Matcher::Product p = m.product(v);
  const double size = std::abs(p.number);
  if (p.factors.size() == 1 && m.type(p.factors[0]) == m.type(v) && size >= 1 / kFarthest &&
      size <= kFarthest) {
    scale *= p.number;
    return p.factors[0];
  }
  m.back_to(before);
  return v;
}

// k of the right operand of q·kᵀ: `value`, or that transposed by `perm` if there is one. Absent if
// it is not kᵀ.
struct Keys {
  Value value{};
  std::vector<int64_t> perm{};
};
Keys keys_of(Matcher& m, const op::matmul& product, double& scale) {
  Keys k{without_scale(m, product.b, scale)};
  if (product.trans_b) return k;
  const auto t = m.as<op::transpose>(k.value);  // kᵀ by a node of its own
  if (!t || t->perm.size() != 4) return {};
  k.value = without_scale(m, t->x, scale);
  k.perm = {t->perm[0], t->perm[1], t->perm[3], t->perm[2]};
  if (std::ranges::is_sorted(k.perm)) k.perm.clear();
  return k;
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
  double scale = scaled.number * product->alpha;
  const Value q = without_scale(m, product->a, scale);
  const Keys k = keys_of(m, *product, scale);
  if (!k.value) return {};
  const Shape rows = m.shape(q), keys = m.shape(product->b);
  if (rows.rank() != 4 || keys.rank() != 4 || rows[0] != scores[0] || rows[1] != scores[1] ||
      keys[0] != scores[0] || keys[1] != scores[1] || rows[3] == 0 || scores[3] == 0)
    return {};
  if (!is_scale(scale, m.type(p->x).dtype)) return {};

  const bool has_gradients = m.has_gradients(), has_nan = s.mask && may_hide_rows(m, s.mask);
  if (has_nan && has_gradients && v[3] == 0) return {};  // nothing of o leads to q and k
  op::attention a{.scale = scale, .causal = s.causal, .want_lse = has_nan};
  std::vector<Value> operands{q, k.value, out->b};
  if (s.mask) operands.push_back(s.mask);
  return Raised{
      std::move(operands),
      [a, has_gradients, perm = k.perm](Builder& b, const std::vector<Value>& o) -> Value {
        op::attention n = a;
        n.q = o[0], n.k = perm.empty() ? o[1] : b.transpose(o[1], perm), n.v = o[2];
        if (o.size() > 3) n.mask = o[3];
        const auto r = b.add(n);
        return n.want_lse ? with_nan(b, n, r[0], r[1], has_gradients) : Value(r);
      }};
}

std::optional<Raised> raise_attention_layout(Matcher& m, Value y) {
  const std::vector<int64_t> heads_last{0, 2, 1, 3};
  const auto out = m.as<op::transpose>(y);
  if (!out || out->perm != heads_last) return {};
  auto n = m.as<op::attention>(out->x);
  if (!n || n->layout != "bhsd" || n->want_lse) return {};
  n->layout = "bshd";
  for (Value* x : {&n->q, &n->k, &n->v}) {
    const auto t = m.as<op::transpose>(*x);
    if (!t || t->perm != heads_last) return {};
    *x = t->x;
  }
  return Raised{{n->q, n->k, n->v, n->mask, n->kv_len, n->past_len, n->block_table},
                [a = *n](Builder& b, const std::vector<Value>& o) -> Value {
                  op::attention made = a;
                  made.q = o[0], made.k = o[1], made.v = o[2];
                  made.mask = o[3], made.kv_len = o[4], made.past_len = o[5];
                  made.block_table = o[6];
                  return b.add(made)[0];
                }};
}

}  // namespace tenon::core
