// SPDX-License-Identifier: Apache-2.0
// gather_elements scatter_elements_add: one index per element (specification 6.3). Lowered to their
// flat forms.
#include "ops/check.hpp"
#include "ops/index.hpp"
#include "ops/padded.hpp"
#include "ops/table.hpp"

namespace tenon::core {

int want_element_indices(const Infer& i, const Shape& whole, std::string_view operand,
                         Value indices, int64_t axis, const std::string& oob) {
  i.want_index(indices, "indices");
  const Shape& at = i.shape(indices);
  const int along = i.axis(axis, whole.rank());
  i.want_rank(indices, "indices", whole.rank());
  for (int k = 0; k < whole.rank(); ++k)
    if (k != along && at[k] > whole[k])
      i.fail(Code::shape_mismatch, "operand indices: expected at most ", whole[k],
             " elements on axis ", k, " as ", operand, ", got ", i.type(indices).text());
  want_reachable(i, whole[along], indices, oob);
  return along;
}

Value flat_positions(Builder& b, const Shape& whole, Value indices, int axis,
                     const std::string& oob) {
  const Shape at = b.shape(indices);
  const int64_t dim = whole[axis];
  const auto number = [&](int64_t v) { return b.scalar_int(kI64, v); };
  Value index = b.cast(indices, kI64);
  if (oob == "clamp") index = b.min(b.max(index, number(-dim)), number(dim - 1));
  const Value placed =
      b.where(b.compare("lt", index, number(0)), b.plus(index, number(dim)), index);
  const Value inside =
      b.logical("and", b.compare("ge", placed, number(0)), b.compare("lt", placed, number(dim)));
  Value flat;
  int64_t stride = 1;
  for (int k = whole.rank() - 1; k >= 0; --k) {
    Shape line;
    for (int m = 0; m < whole.rank(); ++m) line.push(m == k ? at[k] : 1);
    const Value part = k == axis ? b.times(placed, number(stride))
                                 : b.iota(line, k, kI64, 0, static_cast<double>(stride));
    flat = flat ? b.plus(flat, part) : part;
    stride *= whole[k];
  }
  return b.where(inside, b.expand(flat, at), number(stride));
}

namespace {

void gather_elements_shape(Infer& i, const op::gather_elements& n) {
  want_ranked(i, n.data, "data");
  want_element_indices(i, i.shape(n.data), "operand data", n.indices, n.axis, n.oob);
  i.out(0, {i.dtype(n.data), i.shape(n.indices)});
}

void gather_elements_grad(Grad& g, const op::gather_elements& n) {
  if (!g.wants(n.data)) return;
  const Shape data = g.b.shape(n.data);
  g.give(n.data, g.b.add(op::scatter_elements_add{.axis = n.axis,
                                                  .shape = Ints(data.begin(), data.end()),
                                                  .oob = n.oob,
                                                  .updates = g.dy(),
                                                  .indices = n.indices}));
}

bool gather_elements_lower(Lower& l, const op::gather_elements& n) {
  Builder& b = l.b;
  const Shape data = b.shape(n.data), at = b.shape(n.indices);
  if (at.elements() == 0) {
    l.out(0, b.zeros({b.dtype(n.data), at}));
    return true;
  }
  const int axis = normalize_axis(n.axis, data.rank(), "gather_elements");
  l.out(0, b.add(op::gather{.oob = flat_policy(n.oob),
                            .data = b.reshape(n.data, {data.elements()}),
                            .indices = flat_positions(b, data, n.indices, axis, n.oob)}));
  return true;
}

double gather_elements_bytes(const Cost& c, const op::gather_elements& n) {
  return 2 * c.bytes(c.out(0)) + c.bytes(n.indices);
}

bool gather_elements_padded(Padded& p, const op::gather_elements& n) {
  const int axis = normalize_axis(n.axis, p.rank(n.data), "gather_elements");
  p.index_counted(n.indices, p.length(n.data, axis), p.type(n.data).shape[axis], n.oob == "clamp");
  p.clamp_indices(n.indices, p.type(n.data).shape[axis]);
  return true;
}

constexpr Record<op::gather_elements> kGatherElements{
    .shape = gather_elements_shape,
    .words = {{"oob", "error clamp skip"}},
    .grad = gather_elements_grad,
    .lower = gather_elements_lower,
    .batch = batch_along_axis<op::gather_elements>,
    .padded = gather_elements_padded,
    .flops = no_products,
    .bytes = gather_elements_bytes};

void scatter_elements_add_shape(Infer& i, const op::scatter_elements_add& n) {
  want_number(i, n.updates, "updates");
  i.want_same_dtype(n.updates, "updates", n.base, "base");
  const Shape whole = n.base ? i.shape(n.base) : shape_attr(i, n.shape);
  if (n.base && !n.shape.empty() && shape_attr(i, n.shape) != whole)
    i.fail(Code::invalid_argument, "attribute shape: expected none or ", whole.text(),
           " as operand base, given ", text_of(n.shape));
  if (whole.rank() == 0)
    i.fail(Code::shape_mismatch, "attribute shape or operand base: expected rank >= 1, got none");
  want_element_indices(i, whole, n.base ? "operand base" : "attribute shape", n.indices, n.axis,
                       n.oob);
  i.want_shape(n.updates, "updates", i.shape(n.indices));
  i.out(0, {i.dtype(n.updates), whole});
}

void scatter_elements_add_grad(Grad& g, const op::scatter_elements_add& n) {
  const Value dy = g.dy();
  if (g.wants(n.updates))
    g.give(n.updates, g.b.add(op::gather_elements{
                          .axis = n.axis, .oob = n.oob, .data = dy, .indices = n.indices}));
  if (g.wants(n.base)) g.give(n.base, dy);
}

bool scatter_elements_add_lower(Lower& l, const op::scatter_elements_add& n) {
  Builder& b = l.b;
  const Shape whole = n.base ? b.shape(n.base) : Shape(std::span<const Dim>(n.shape));
  const int64_t count = b.shape(n.indices).elements();
  if (count == 0) {
    l.out(0, n.base ? n.base : b.zeros({b.dtype(n.updates), whole}));
    return true;
  }
  const int axis = normalize_axis(n.axis, whole.rank(), "scatter_elements_add");
  const Value flat = flat_positions(b, whole, n.indices, axis, n.oob);
  op::scatter_add add{.oob = flat_policy(n.oob),
                      .updates = b.reshape(n.updates, {count}),
                      .indices = b.reshape(flat, {count})};
  if (n.base)
    add.base = b.reshape(n.base, {whole.elements()});
  else
    add.dim = whole.elements();
  l.out(0, b.reshape(b.add(add), whole));
  return true;
}

// Like scatter_add: in place with a base, otherwise all zeros are written.
double scatter_elements_add_bytes(const Cost& c, const op::scatter_elements_add& n) {
  const double updates = c.bytes(n.updates);
  return updates + c.bytes(n.indices) + (n.base ? 2 * updates : c.bytes(c.out(0)));
}
bool scatter_elements_add_batch(Batch& v, const op::scatter_elements_add& one) {
  op::scatter_elements_add n = one;
  n.axis = Batch::axis(n.axis);
  if (!n.base) n.shape.insert(n.shape.begin(), v.size());
  return v.add_all(n);
}

// Padded updates add zero.
bool scatter_elements_add_padded(Padded& p, const op::scatter_elements_add& n) {
  const int axis = normalize_axis(n.axis, p.result(0).shape.rank(), "scatter_elements_add");
  p.index_counted(n.indices, p.result_length(0, axis), p.result(0).shape[axis], n.oob == "clamp");
  p.clamp_indices(n.indices, p.result(0).shape[axis]);
  p.fill_all(n.updates, Fill::zero);
  return true;
}

constexpr Record<op::scatter_elements_add> kScatterElementsAdd{
    .shape = scatter_elements_add_shape,
    .words = {{"oob", "error clamp skip"}},
    .grad = scatter_elements_add_grad,
    .lower = scatter_elements_add_lower,
    .batch = scatter_elements_add_batch,
    .padded = scatter_elements_add_padded,
    .flops = no_products,
    .bytes = scatter_elements_add_bytes};

}  // namespace

const OpRecord gather_elements_def = record<op::gather_elements, kGatherElements>();
const OpRecord scatter_elements_add_def = record<op::scatter_elements_add, kScatterElementsAdd>();

}  // namespace tenon::core
