// SPDX-License-Identifier: Apache-2.0
// Rules: writing elements by index.
#include "import/onnx/helpers.hpp"
#include "ops/index.hpp"

namespace tenon::core::onnx {
namespace {

// none add mul max min, of which bools have some.
std::string reduction_of(const Call& c) {
  const std::string reduction = c.s("reduction", "none");
  if (reduction == "none" || reduction == "max" || reduction == "min") return reduction;
  if (reduction != "add" && reduction != "mul")
    c.wrong("attribute reduction: expected none, add, mul, max or min, got '", reduction, "'");
  if (c.dtype(0) == kBool) c.refuse("attribute reduction: '", reduction, "' of bool");
  return reduction;
}

// base [P, rest..], places [M], updates [M, rest..]
Value scatter_rows(Builder& b, const std::string& reduction, Value base, Value places,
                   Value updates) {
  if (b.shape(places)[0] == 0) return base;
  if (reduction == "none")
    return b.add(op::scatter{.base = base, .indices = places, .updates = updates});
  if (reduction == "add")
    return b.add(op::scatter_add{.updates = updates, .indices = places, .base = base});
  return b.add(
      op::scatter_reduce{.kind = reduction, .base = base, .indices = places, .updates = updates});
}

void scatter_elements(Call& c) {
  Builder& b = c.b;
  const Shape s = c.shape(0), at = c.shape(1);
  const int axis = c.axis(c.i("axis", 0), s.rank());
  if (at.rank() != s.rank()) c.wrong("indices: expected rank ", s.rank(), ", got ", at.text());
  if (c.shape(2) != at)
    c.wrong("updates: expected the shape of indices, ", at.text(), ", got ", c.shape(2).text());
  const std::string reduction = reduction_of(c);
  if (reduction == "add")
    return c.out(b.add(op::scatter_elements_add{
        .axis = axis, .updates = c.value(2), .indices = c.value(1), .base = c.value(0)}));
  if (reduction != "none")
    return c.out(b.add(op::scatter_elements_reduce{.kind = reduction,
                                                   .axis = axis,
                                                   .base = c.value(0),
                                                   .indices = c.value(1),
                                                   .updates = c.value(2)}));
  for (int k = 0; k < s.rank(); ++k)
    if (k != axis && at[k] > s[k]) c.wrong("indices: ", at.text(), " do not fit ", s.text());
  const Value flat = b.reshape(flat_positions(b, s, c.value(1), axis, "error"), {at.elements()});
  const Value rows = scatter_rows(b, reduction, b.reshape(c.value(0), {s.elements()}), flat,
                                  b.reshape(c.value(2), {at.elements()}));
  c.out(b.reshape(rows, s));
}

void scatter_nd(Call& c) {
  Builder& b = c.b;
  const Shape s = c.shape(0), at = c.shape(1);
  if (at.rank() < 1) c.wrong("indices: expected rank 1 or more");
  const int64_t count = at[at.rank() - 1];
  if (count < 1 || count > s.rank()) c.wrong("indices ", at.text(), " do not fit ", s.text());
  const int first = static_cast<int>(count);
  const int64_t rows = product(at, 0, at.rank() - 1);
  Shape base{product(s, 0, first)}, updates{rows};
  for (int k = first; k < s.rank(); ++k) base.push(s[k]), updates.push(s[k]);
  if (c.shape(2).elements() != updates.elements())
    c.wrong("updates: expected ", updates.elements(), " elements, got ", c.shape(2).text());
  const Value flat = b.reshape(flat_index(b, b.cast(c.value(1), kI64), s, count), {rows});
  c.out(b.reshape(scatter_rows(b, reduction_of(c), b.reshape(c.value(0), base), flat,
                               b.reshape(c.value(2), updates)),
                  s));
}

// Writes a piece of a cache for each example, at a place of its own along an axis.
void tensor_scatter(Call& c) {
  Builder& b = c.b;
  const Shape s = c.shape(0), u = c.shape(1);
  const int axis = c.axis(c.i("axis", -2), s.rank());
  const std::string mode = c.s("mode", "linear");
  if (axis == 0) c.wrong("attribute axis: expected another axis than 0, the batch");
  if (mode != "linear" && mode != "circular")
    c.wrong("attribute mode: expected linear or circular, got '", mode, "'");
  Shape along_batch, along;
  for (int k = 0; k < s.rank(); ++k) {
    along_batch.push(k == 0 ? s[k] : 1);
    along.push(k == axis ? u[axis] : 1);
  }
  Value index = b.iota(along, axis, kI64);
  if (c.has(2)) index = b.plus(index, b.reshape(b.cast(c.value(2), kI64), along_batch));
  if (mode == "circular") index = b.binary("mod", index, b.scalar_int(kI64, s[axis]));
  Value flat{};
  int64_t stride = 1;
  for (int k = s.rank(); k-- > 0;) {
    Shape own;
    for (int i = 0; i < s.rank(); ++i) own.push(i == k ? u[k] : 1);
    const Value part =
        b.times(k == axis ? index : b.iota(own, k, kI64), b.scalar_int(kI64, stride));
    flat = flat ? b.plus(flat, part) : part;
    stride *= s[k];
  }
  const int64_t count = u.elements();
  const Value out = b.add(op::scatter{.base = b.reshape(c.value(0), {s.elements()}),
                                      .indices = b.reshape(b.expand(flat, u), {count}),
                                      .updates = b.reshape(c.value(1), {count})});
  c.out(b.reshape(out, s));
}

constexpr Rule kRules[] = {
    {"Scatter", 9, scatter_elements},
    {"ScatterElements", 11, scatter_elements},
    {"ScatterND", 11, scatter_nd},
    {"TensorScatter", 24, tensor_scatter},
};

}  // namespace

std::span<const Rule> scatter_rules() { return kRules; }

}  // namespace tenon::core::onnx
