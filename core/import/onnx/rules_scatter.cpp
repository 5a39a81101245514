// SPDX-License-Identifier: Apache-2.0
// Rules: writing elements by index.
#include "import/onnx/helpers.hpp"
#include "ops/control.hpp"

namespace tenon::core::onnx {
namespace {

// Rows of base [P, rest..] at places [M] become kind(row, update). One trip per update, because
// places may come twice.
Value combine_rows(Builder& b, std::string_view kind, Value base, Value places, Value updates) {
  core::Graph body;
  const Type row_type = slice_type(b.type(updates));
  const Value carried = body.input("base", b.type(base)), place = body.input("place", {kI64, {}}),
              update = body.input("update", row_type);
  Builder in(body, b.provenance);
  const Value row = in.add(op::gather{.data = carried, .indices = place});
  const Value next = in.binary(kind, row, update);
  Shape one{1};
  for (const Dim d : row_type.shape) one.push(d);
  body.output("base", in.add(op::scatter{.base = carried,
                                         .indices = in.reshape(place, {1}),
                                         .updates = in.reshape(next, one)}));
  Control scan{.kind = Control::Kind::trips, .trips = b.shape(places)[0]};
  scan.functions = {std::make_shared<const core::Graph>(std::move(body))};
  scan.carry = {base};
  scan.xs = {places, updates};
  return add_control(b, scan, 1);
}

// reduction: none add mul max min. base [P, rest..], places [M], updates [M, rest..]
Value scatter_rows(Call& c, const std::string& reduction, Value base, Value places, Value updates) {
  Builder& b = c.b;
  if (b.shape(places)[0] == 0) return base;
  const bool boolean = b.dtype(base) == kBool;
  if (reduction == "none")
    return b.add(op::scatter{.base = base, .indices = places, .updates = updates});
  if (boolean) c.refuse("attribute reduction: '", reduction, "' of bool");
  if (reduction == "add")
    return b.add(op::scatter_add{.updates = updates, .indices = places, .base = base});
  if (reduction == "mul" || reduction == "max" || reduction == "min")
    return combine_rows(b, reduction, base, places, updates);
  c.wrong("attribute reduction: expected none, add, mul, max or min, got '", reduction, "'");
}

void scatter_elements(Call& c) {
  Builder& b = c.b;
  const Shape s = c.shape(0), at = c.shape(1);
  const int axis = c.axis(c.i("axis", 0), s.rank());
  if (at.rank() != s.rank()) c.wrong("indices: expected rank ", s.rank(), ", got ", at.text());
  if (c.shape(2) != at)
    c.wrong("updates: expected the shape of indices, ", at.text(), ", got ", c.shape(2).text());
  const std::string reduction = c.s("reduction", "none");
  const Value index = from_front(b, b.cast(c.value(1), kI64), s[axis]);
  if (reduction == "add" && c.dtype(0) != kBool)
    return c.out(b.add(op::scatter_elements_add{
        .axis = axis, .updates = c.value(2), .indices = index, .base = c.value(0)}));
  // The flat position of each update.
  Value flat{};
  int64_t stride = 1;
  for (int k = s.rank(); k-- > 0;) {
    Shape along;
    for (int i = 0; i < s.rank(); ++i) along.push(i == k ? at[k] : 1);
    const Value coordinate = k == axis ? index : b.iota(along, k, kI64);
    const Value part = b.times(coordinate, b.scalar_int(kI64, stride));
    flat = flat ? b.plus(flat, part) : part;
    stride *= s[k];
  }
  flat = b.reshape(b.expand(flat, at), {at.elements()});
  const Value rows = scatter_rows(c, reduction, b.reshape(c.value(0), {s.elements()}), flat,
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
  c.out(b.reshape(scatter_rows(c, c.s("reduction", "none"), b.reshape(c.value(0), base), flat,
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
