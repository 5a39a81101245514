// SPDX-License-Identifier: Apache-2.0
// Records of conj, complex_abs and complex_norm_sq.
#include <limits>

#include "ops/padded.hpp"
#include "ops/table.hpp"

namespace tenon::core {
namespace {

// ---- conj

void conj_shape(Infer& i, const op::conj& n) {
  i.want_complex(n.x, "x");
  i.out(0, i.type(n.x));
}

void conj_grad(Grad& g, const op::conj& n) {
  if (g.wants(n.x)) g.give(n.x, g.b.conj(g.dy()));
}

bool conj_lower(Lower& l, const op::conj& n) {
  Builder& b = l.b;
  const Value x = b.as_real(n.x);
  l.out(0, b.as_complex(b.times(x, b.pair(b.dtype(x), 1, -1))));
  return true;
}

constexpr Record<op::conj> kConj{.shape = conj_shape,
                                 .grad = conj_grad,
                                 .lower = conj_lower,
                                 .batch = batch_all<op::conj>,
                                 .padded = padded_each<op::conj>,
                                 .flops = no_products,
                                 .bytes = each_once};

// ---- complex_abs complex_norm_sq

template <class Op>
void length_shape(Infer& i, const Op& n) {
  i.want_complex(n.x, "x");
  i.out(0, {sdk::part_dtype(i.dtype(n.x)), i.shape(n.x)});
}

// x times a real factor of its shape.
Value scaled(Builder& b, Value x, Value factor) {
  return b.as_complex(b.times(b.as_real(x), b.unsqueeze(factor, b.shape(factor).rank())));
}

void abs_grad(Grad& g, const op::complex_abs& n) {
  if (!g.wants(n.x)) return;
  Builder& b = g.b;
  const Value y = g.y(), none = b.compare("eq", y, 0);
  // 1 replaces a length of 0, so that no branch that is dropped divides by it.
  const Value safe = b.where(none, b.scalar(b.dtype(y), 1), y);
  // Divides first: 1 / y may overflow.
  const Value unit = b.as_complex(b.over(b.as_real(n.x), b.unsqueeze(safe, b.shape(y).rank())));
  g.give(n.x, scaled(b, unit, b.where(none, b.scalar(b.dtype(y), 0), g.dy())));
}

// The longer part times sqrt(1 + ratio²): no square overflows. An infinite part outweighs NaN.
bool abs_lower(Lower& l, const op::complex_abs& n) {
  Builder& b = l.b;
  const Value re = b.unary("abs", b.part(n.x, 0)), im = b.unary("abs", b.part(n.x, 1));
  const Value longer = b.max(re, im), shorter = b.min(re, im);
  const DType t = b.dtype(re);
  const Value one = b.scalar(t, 1), equal = b.compare("eq", longer, shorter);
  const Value ratio = b.where(equal, one, b.over(shorter, b.where(equal, one, longer)));
  const Value y = b.times(longer, b.unary("sqrt", b.plus(b.times(ratio, ratio), one)));
  const Value infinite = b.logical("or", b.unary("is_inf", re), b.unary("is_inf", im));
  l.out(0, b.where(infinite, b.scalar(t, std::numeric_limits<double>::infinity()), y));
  return true;
}

constexpr Record<op::complex_abs> kAbs{.shape = length_shape<op::complex_abs>,
                                       .grad = abs_grad,
                                       .lower = abs_lower,
                                       .batch = batch_all<op::complex_abs>,
                                       .padded = padded_each<op::complex_abs>,
                                       .flops = no_products,
                                       .bytes = each_once};

void norm_sq_grad(Grad& g, const op::complex_norm_sq& n) {
  if (g.wants(n.x)) g.give(n.x, scaled(g.b, n.x, g.b.times(g.dy(), 2)));
}

bool norm_sq_lower(Lower& l, const op::complex_norm_sq& n) {
  Builder& b = l.b;
  const Value re = b.part(n.x, 0), im = b.part(n.x, 1);
  l.out(0, b.plus(b.times(re, re), b.times(im, im)));
  return true;
}

constexpr Record<op::complex_norm_sq> kNormSq{.shape = length_shape<op::complex_norm_sq>,
                                              .grad = norm_sq_grad,
                                              .lower = norm_sq_lower,
                                              .batch = batch_all<op::complex_norm_sq>,
                                              .padded = padded_each<op::complex_norm_sq>,
                                              .flops = no_products,
                                              .bytes = each_once};

}  // namespace

constinit const OpRecord conj_def = record<op::conj, kConj>();
constinit const OpRecord complex_abs_def = record<op::complex_abs, kAbs>();
constinit const OpRecord complex_norm_sq_def = record<op::complex_norm_sq, kNormSq>();

}  // namespace tenon::core
