// SPDX-License-Identifier: Apache-2.0
// Records of the scatter_reduce family: scatter_reduce scatter_elements_reduce. The first is the
// scatter of slices, the second has one index per element and is lowered to the first.
#include "ops/check.hpp"
#include "ops/index.hpp"
#include "ops/padded.hpp"
#include "ops/table.hpp"

namespace tenon::core {
namespace {

constexpr std::string_view kKinds = "mul max min";

template <class Op>
void want_kind(const Infer& i, const Op& n) {
  i.want_same_dtype(n.base, "base", n.updates, "updates");
  want_ranked(i, n.base, "base");
  const DType t = i.dtype(n.base);
  if (!is_float(t) && !is_integer(t) && !(t == kBool && n.kind != "mul"))
    i.fail(Code::dtype_mismatch, "operand base: kind ", n.kind, " does not take ",
           i.type(n.base).text());
}

void slices_shape(Infer& i, const op::scatter_reduce& n) {
  i.want_index(n.indices, "indices");
  want_kind(i, n);
  want_slices(i, n);
}

void elements_shape(Infer& i, const op::scatter_elements_reduce& n) {
  want_kind(i, n);
  want_element_indices(i, i.shape(n.base), "operand base", n.indices, n.axis, n.oob);
  i.want_shape(n.updates, "updates", i.shape(n.indices));
  i.out(0, i.type(n.base));
}

// ---- gradient

// What a node reads at its places, and how it writes there.
template <class Op>
class Places {
 public:
  Places(Builder& builder, const Op& node) : b(builder), n(node) {}
  Value read(Value from) const {
    if constexpr (kSlices)
      return b.add(op::gather{.axis = n.axis, .oob = n.oob, .data = from, .indices = n.indices});
    else
      return b.add(
          op::gather_elements{.axis = n.axis, .oob = n.oob, .data = from, .indices = n.indices});
  }
  Value add(Value base, Value updates) const {
    if constexpr (kSlices)
      return b.add(op::scatter_add{
          .axis = n.axis, .oob = n.oob, .updates = updates, .indices = n.indices, .base = base});
    else
      return b.add(op::scatter_elements_add{
          .axis = n.axis, .oob = n.oob, .updates = updates, .indices = n.indices, .base = base});
  }
  Value reduce(Value base, Value updates) const {
    Op m = n;
    m.base = base, m.updates = updates;
    return b.add(m);
  }

 private:
  static constexpr bool kSlices = std::is_same_v<Op, op::scatter_reduce>;
  Builder& b;
  const Op& n;
};

// The largest or smallest of a place share dy. Where the result is NaN, the NaNs do.
template <class Op>
void extreme_grad(Grad& g, const Op& n) {
  Builder& b = g.b;
  const Places<Op> at(b, n);
  const DType own = b.dtype(n.base);
  const Value dy = b.widen(g.dy()), y = g.y(), zero = b.scalar(b.dtype(dy), 0);
  const auto wins = [&](Value x, Value result) {
    return b.logical("or", b.compare("eq", x, result), b.unary("is_nan", x));
  };
  const Value kept = wins(n.base, y), written = wins(n.updates, at.read(y));
  const Value winners = at.add(b.cast(kept, b.dtype(dy)), b.cast(written, b.dtype(dy)));
  const Value share = b.over(dy, winners);
  if (g.wants(n.base)) g.give(n.base, b.cast(b.where(kept, share, zero), own));
  if (g.wants(n.updates)) g.give(n.updates, b.cast(b.where(written, at.read(share), zero), own));
}

// dy times the product of all other factors of the place: the product of those that are not 0,
// divided by the factor, if no other factor is 0.
template <class Op>
void product_grad(Grad& g, const Op& n) {
  Builder& b = g.b;
  const Places<Op> at(b, n);
  const DType own = b.dtype(n.base);
  const Value dy = b.widen(g.dy()), zero = b.scalar(b.dtype(dy), 0);
  struct Factor {
    Value is_zero, other_than_zero;
  };
  const auto factor = [&](Value x) {
    const Value wide = b.widen(x), is_zero = b.compare("eq", wide, zero);
    return Factor{b.cast(is_zero, b.dtype(dy)), b.where(is_zero, b.scalar(b.dtype(dy), 1), wide)};
  };
  const Factor base = factor(n.base), update = factor(n.updates);
  const Value zeros = at.add(base.is_zero, update.is_zero);
  const Value whole = b.times(dy, at.reduce(base.other_than_zero, update.other_than_zero));
  const auto slope = [&](const Factor& f, Value zeros_there, Value whole_there) {
    return b.cast(b.where(b.compare("eq", zeros_there, f.is_zero),
                          b.over(whole_there, f.other_than_zero), zero),
                  own);
  };
  if (g.wants(n.base)) g.give(n.base, slope(base, zeros, whole));
  if (g.wants(n.updates)) g.give(n.updates, slope(update, at.read(zeros), at.read(whole)));
}

template <class Op>
void reduce_grad(Grad& g, const Op& n) {
  if (!g.wants(n.base) && !g.wants(n.updates)) return;
  if (n.kind == "mul")
    product_grad(g, n);
  else
    extreme_grad(g, n);
}

// ---- the other rules

bool elements_lower(Lower& l, const op::scatter_elements_reduce& n) {
  Builder& b = l.b;
  const Shape whole = b.shape(n.base);
  const int64_t count = b.shape(n.indices).elements();
  if (count == 0) {
    l.out(0, n.base);
    return true;
  }
  const int axis = normalize_axis(n.axis, whole.rank(), "scatter_elements_reduce");
  const Value flat = flat_positions(b, whole, n.indices, axis, n.oob);
  const Value y = b.add(op::scatter_reduce{.kind = n.kind,
                                           .oob = flat_policy(n.oob),
                                           .base = b.reshape(n.base, {whole.elements()}),
                                           .indices = b.reshape(flat, {count}),
                                           .updates = b.reshape(n.updates, {count})});
  l.out(0, b.reshape(y, whole));
  return true;
}

bool slices_batch(Batch& v, const op::scatter_reduce& one) {
  if (!v.batched(one.indices)) return indexed_batch(v, one);
  const Shape& base = v.type(one.base).shape;
  const int axis = normalize_axis(one.axis, base.rank(), "scatter_reduce");
  const Value indices = spread_indices(v, one.indices, base, axis);
  v.out(0, v.b.add(op::scatter_elements_reduce{
               .kind = one.kind,
               .axis = axis + 1,
               .oob = one.oob,
               .base = v.all(one.base),
               .indices = indices,
               .updates = v.b.reshape(v.all(one.updates), v.b.shape(indices))}));
  return true;
}

// Padded updates change nothing.
Fill neutral(std::string_view kind) {
  return kind == "mul" ? Fill::one : kind == "max" ? Fill::lowest : Fill::highest;
}
template <class Op>
bool reduce_padded(Padded& p, const Op& n) {
  const int axis = normalize_axis(n.axis, p.rank(n.base), Op::kName);
  p.index_counted(n.indices, p.result_length(0, axis), p.result(0).shape[axis], n.oob == "clamp");
  p.clamp_indices(n.indices, p.result(0).shape[axis]);
  if constexpr (std::is_same_v<Op, op::scatter_reduce>) {
    for (int i = 0; i < p.rank(n.indices); ++i) p.fill(n.updates, axis + i, neutral(n.kind));
  } else {
    p.fill_all(n.updates, neutral(n.kind));
  }
  return true;
}

// Only places with updates are read and written.
template <class Op>
double reduce_bytes(const Cost& c, const Op& n) {
  return 3 * c.bytes(n.updates) + c.bytes(n.indices);
}

constexpr Record<op::scatter_reduce> kScatterReduce{
    .shape = slices_shape,
    .words = {{"kind", kKinds}, {"oob", "error skip"}},
    .grad = reduce_grad<op::scatter_reduce>,
    .batch = slices_batch,
    .padded = reduce_padded<op::scatter_reduce>,
    .flops = no_products,
    .bytes = reduce_bytes<op::scatter_reduce>};

constexpr Record<op::scatter_elements_reduce> kScatterElementsReduce{
    .shape = elements_shape,
    .words = {{"kind", kKinds}, {"oob", "error clamp skip"}},
    .grad = reduce_grad<op::scatter_elements_reduce>,
    .lower = elements_lower,
    .batch = batch_along_axis<op::scatter_elements_reduce>,
    .padded = reduce_padded<op::scatter_elements_reduce>,
    .flops = no_products,
    .bytes = reduce_bytes<op::scatter_elements_reduce>};

}  // namespace

const OpRecord scatter_reduce_def = record<op::scatter_reduce, kScatterReduce>();
const OpRecord scatter_elements_reduce_def =
    record<op::scatter_elements_reduce, kScatterElementsReduce>();

}  // namespace tenon::core
