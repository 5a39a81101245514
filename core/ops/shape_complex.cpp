// SPDX-License-Identifier: Apache-2.0
// Records of view_as_real and view_as_complex: complex numbers as pairs of their parts. All
// arithmetic of complex numbers is decomposed into these two and real numbers.
#include "ops/padded.hpp"
#include "ops/table.hpp"

namespace tenon::core {
namespace {

void view_as_real_shape(Infer& i, const op::view_as_real& n) {
  i.want_complex(n.x, "x");
  const Type& x = i.type(n.x);
  if (x.shape.rank() == TENON_MAX_RANK)
    i.fail(Code::unsupported,
           "operand x: expected rank 7 at most, since a pair takes an axis, got ", x.text());
  Shape shape = x.shape;
  shape.push(2);
  i.out(0, {sdk::part_dtype(x.dtype), shape});
}

void view_as_real_grad(Grad& g, const op::view_as_real& n) {
  if (g.wants(n.x)) g.give(n.x, g.b.as_complex(g.dy()));
}

constexpr Record<op::view_as_real> kViewAsReal{.shape = view_as_real_shape,
                                               .grad = view_as_real_grad,
                                               .batch = batch_all<op::view_as_real>,
                                               .padded = padded_each<op::view_as_real>,
                                               .flops = no_products,
                                               .bytes = each_once,
                                               .traits = kView};

void view_as_complex_shape(Infer& i, const op::view_as_complex& n) {
  const Type& x = i.type(n.x);
  if (x.dtype != kF32 && x.dtype != kF64)
    i.fail(Code::dtype_mismatch, "operand x: expected f32 or f64, got ", x.text());
  const int last = x.shape.rank() - 1;
  if (last < 0 || x.shape[last] != 2)
    i.fail(Code::shape_mismatch, "operand x: expected pairs, [.., 2], got ", x.text());
  i.out(0, {sdk::complex_dtype(x.dtype), Shape(x.shape.dims().first(static_cast<size_t>(last)))});
}

void view_as_complex_grad(Grad& g, const op::view_as_complex& n) {
  if (g.wants(n.x)) g.give(n.x, g.b.as_real(g.dy()));
}

constexpr Record<op::view_as_complex> kViewAsComplex{.shape = view_as_complex_shape,
                                                     .grad = view_as_complex_grad,
                                                     .batch = batch_all<op::view_as_complex>,
                                                     .padded = padded_each<op::view_as_complex>,
                                                     .flops = no_products,
                                                     .bytes = each_once,
                                                     .traits = kView};

}  // namespace

constinit const OpRecord view_as_real_def = record<op::view_as_real, kViewAsReal>();
constinit const OpRecord view_as_complex_def = record<op::view_as_complex, kViewAsComplex>();

}  // namespace tenon::core
