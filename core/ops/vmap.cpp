// SPDX-License-Identifier: Apache-2.0
// The request for a body over a batch of examples: a node until shapes are numeric, then replaced
// by the ops of the body with one more axis (core/grad/vmap.cpp).
#include "ops/vmap.hpp"

#include "ops/control.hpp"
#include "ops/table.hpp"

namespace tenon::core {
namespace {

// Entry k of a list of axes, counted from the front.
int axis_of(const Infer& i, std::string_view attr, const Ints& axes, size_t count, size_t k,
            int rank) {
  if (!axes.empty() && axes.size() != count)
    i.fail(Code::invalid_argument, "attribute ", attr, ": expected ", count,
           " entries or none, got ", axes.size());
  return i.axis(axes.empty() ? 0 : axes[k], rank);
}

void vmap_shape(Infer& i, const op::vmap& n) {
  std::vector<Type> types;
  int64_t size = -1;
  for (size_t k = 0; k < n.xs.size(); ++k) {
    const Type& x = i.type(n.xs[k]);
    if (x.shape.rank() == 0)
      i.fail(Code::shape_mismatch, "operand xs: entry ", k,
             ": expected rank 1 or more, one axis of which is the batch");
    const int axis = axis_of(i, "in_axes", n.in_axes, n.xs.size(), k, x.shape.rank());
    if (size == -1) size = x.shape[axis];
    if (x.shape[axis] != size)
      i.fail(Code::shape_mismatch, "operand xs: entry ", k, ": expected a batch of ", size,
             " along axis ", axis, ", got ", x.text());
    types.push_back(without_axis(x, axis));
  }
  for (Value v : n.captured) types.push_back(i.type(v));
  if (!n.body) i.fail(Code::invalid_argument, "attribute body is required");
  FunctionAttr body;
  try {
    body = bound_function(n.body, types);
  } catch (const Error& e) {
    i.fail(e.code(), "function body: ", e.what());
  }
  const auto& outputs = body->outputs();
  if (i.out_count() != outputs.size())
    i.fail(Code::invalid_argument, "got ", i.out_count(), " outputs, function body gives ",
           outputs.size());
  for (size_t k = 0; k < outputs.size(); ++k) {
    const Type& y = body->type(outputs[k].value);
    if (y.shape.rank() == TENON_MAX_RANK)
      i.fail(Code::unsupported, "function body: output ", k,
             ": no axis is left for the batch, got ", y.text());
    const int axis = axis_of(i, "out_axes", n.out_axes, outputs.size(), k, y.shape.rank() + 1);
    i.out(k, with_axis(y, axis, size));
  }
}

constexpr Record<op::vmap> kVmap{
    .shape = vmap_shape, .flops = no_products, .bytes = each_once, .traits = kReadsBlocks};

}  // namespace

bool is_vmap(const NodeInfo& node) { return node.op == &vmap_def; }
VmapRequest vmap_of(const NodeInfo& node) {
  auto n = decode<op::vmap>(node);
  return {n.body, std::move(n.in_axes), std::move(n.out_axes), std::move(n.xs),
          std::move(n.captured)};
}

Value first_set(Builder& b, Value flags) {
  return b.add(op::argmax{.axis = 0, .x = b.cast(flags, kI32)});
}
Value row_at(Builder& b, Value x, Value index) {
  return b.add(op::gather{.data = x, .indices = index});
}

Type without_axis(const Type& type, int axis) {
  Shape shape;
  for (int i = 0; i < type.shape.rank(); ++i)
    if (i != axis) shape.push(type.shape[i]);
  return {type.dtype, shape};
}

Type with_axis(const Type& type, int axis, int64_t length) {
  Shape shape;
  for (int i = 0; i <= type.shape.rank(); ++i) {
    if (i == axis) shape.push(length);
    if (i < type.shape.rank()) shape.push(type.shape[i]);
  }
  return {type.dtype, shape};
}

constinit const OpRecord vmap_def = record<op::vmap, kVmap>();

}  // namespace tenon::core
