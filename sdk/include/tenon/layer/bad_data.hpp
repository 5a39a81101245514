// SPDX-License-Identifier: Apache-2.0
// Texts for bad data that kernels on devices with streams report: for tenon's own ops the same as
// those of the cpu plugin. A kernel reports a position and perhaps the element; the names, axes and
// lengths come from the node.
#pragma once

#include <string>

#include "../axis.hpp"

namespace tenon::sdk::layer {

using Describe = std::function<std::string(const BadData&)>;

inline std::string at_position(const BadData& bad) {
  return " at position " + std::to_string(bad.position);
}
// "index 113", or "the index" if the kernel did not report which.
inline std::string named(const char* what, const BadData& bad) {
  if (!bad.value) return "the " + std::string(what);
  return std::string(what) + " " + std::to_string(*bad.value);
}

// Of operand indices, into an axis of x.
inline Describe index_text(const Type& x, int64_t axis) {
  return [view = along_axis(x, axis)](const BadData& bad) {
    return "operand indices: " + named("index", bad) + at_position(bad) + " is outside axis " +
           std::to_string(view.axis) + " of length " + std::to_string(view.length);
  };
}
// Of operand start: a block of `size` within `whole`.
inline Describe start_text(const Type& whole, std::span<const int64_t> size) {
  return [dims = whole.dims, rank = whole.rank,
          size = std::vector(size.begin(), size.end())](const BadData& bad) {
    const std::string start =
        "operand start: " + (bad.value ? std::to_string(*bad.value) : "the start") +
        at_position(bad);
    const auto axis = static_cast<size_t>(bad.position);
    if (bad.position < 0 || bad.position >= rank || axis >= size.size())
      return start + " is outside its axis";
    return start + " is outside [0, " + std::to_string(dims[axis] - size[axis]) +
           "], the starts of a block of " + std::to_string(size[axis]) + " in an axis of length " +
           std::to_string(dims[axis]);
  };
}
inline Describe label_text(int64_t classes) {
  return [=](const BadData& bad) {
    return "operand labels: " + named("label", bad) + at_position(bad) + " is outside [0, " +
           std::to_string(classes) + ")";
  };
}
// w: of grouped_matmul, one matrix per expert.
inline Describe expert_text(const Value& ids, const Type& x, const Type& w) {
  if (ids)
    return [experts = w.dims[0]](const BadData& bad) {
      return "operand ids: " + named("expert", bad) + " of row " + std::to_string(bad.position) +
             " is outside [-1, " + std::to_string(experts) + ")";
    };
  return [rows = x.dims[0]](const BadData& bad) {
    return "operand offsets: expected numbers that ascend from 0 to " + std::to_string(rows) +
           ", got " + (bad.value ? std::to_string(*bad.value) : "another number") +
           at_position(bad);
  };
}

inline Describe matrix_text(const char* what) {
  return [=](const BadData& bad) {
    return "operand a: matrix " + std::to_string(bad.position) + " is " + what;
  };
}

// The texts of the ops. node: as the kernel's maker saw it.
inline Describe describe_op(const op::gather& n, const Node&) {
  return index_text(n.data.type(), n.axis);
}
inline Describe describe_op(const op::gather_elements& n, const Node&) {
  return index_text(n.data.type(), n.axis);
}
inline Describe describe_op(const op::gather_backward& n, const Node& node) {
  return index_text(node.out(0).type(), n.axis);
}
inline Describe describe_op(const op::scatter& n, const Node& node) {
  return index_text(node.out(0).type(), n.axis);
}
inline Describe describe_op(const op::scatter_add& n, const Node& node) {
  return index_text(node.out(0).type(), n.axis);
}
inline Describe describe_op(const op::scatter_elements_add& n, const Node& node) {
  return index_text(node.out(0).type(), n.axis);
}
inline Describe describe_op(const op::scatter_reduce& n, const Node& node) {
  return index_text(node.out(0).type(), n.axis);
}
inline Describe describe_op(const op::scatter_elements_reduce& n, const Node& node) {
  return index_text(node.out(0).type(), n.axis);
}
inline Describe describe_op(const op::dynamic_slice& n, const Node&) {
  return start_text(n.x.type(), n.size);
}
inline Describe describe_op(const op::dynamic_update_slice& n, const Node&) {
  return start_text(n.base.type(), n.update.type().shape());
}
inline Describe describe_op(const op::grouped_matmul& n, const Node&) {
  return expert_text(n.ids, n.x.type(), n.w.type());
}
inline Describe describe_op(const op::grouped_matmul_backward& n, const Node&) {
  return expert_text(n.ids, n.x.type(), n.w.type());
}
inline Describe describe_op(const op::cross_entropy& n, const Node&) {
  return label_text(along_axis(n.logits.type(), n.axis).length);
}
inline Describe describe_op(const op::cross_entropy_backward& n, const Node&) {
  return label_text(along_axis(n.logits.type(), n.axis).length);
}
inline Describe describe_op(const op::rope& n, const Node&) {
  return [rows = n.cos.type().dims[0]](const BadData& bad) {
    return "operand position_ids: " + (bad.value ? std::to_string(*bad.value) : "the id") + " at " +
           std::to_string(bad.position) + " is outside the tables' [0, " + std::to_string(rows) +
           ")";
  };
}
inline Describe describe_op(const op::lu&, const Node&) { return matrix_text("singular"); }
inline Describe describe_op(const op::dense_solve&, const Node&) { return matrix_text("singular"); }
inline Describe describe_op(const op::cholesky&, const Node&) {
  return matrix_text("not positive definite");
}
inline Describe describe_op(const op::sample&, const Node&) {
  return [](const BadData& bad) {
    return "operand logits: row " + std::to_string(bad.position) +
           " has a NaN, +inf, or no finite logit";
  };
}

// The text of a node of tenon's own, empty for ops without one. view: of the node, not read before.
inline Describe describe(tenon_node_view view, const Node& node) {
  Describe text;
  const auto try_op = [&]<class Op>(Op op) {
    if (text || node.op() != Op::kName) return;
    visit(op, Decoder(view, node));
    text = describe_op(op, node);
  };
  if (node.domain() != "tenon") return text;
  try_op(op::gather{}), try_op(op::gather_elements{}), try_op(op::gather_backward{});
  try_op(op::scatter{}), try_op(op::scatter_add{}), try_op(op::scatter_elements_add{});
  try_op(op::scatter_reduce{}), try_op(op::scatter_elements_reduce{});
  try_op(op::dynamic_slice{}), try_op(op::dynamic_update_slice{});
  try_op(op::grouped_matmul{}), try_op(op::grouped_matmul_backward{});
  try_op(op::cross_entropy{}), try_op(op::cross_entropy_backward{});
  try_op(op::rope{}), try_op(op::sample{});
  try_op(op::lu{}), try_op(op::dense_solve{}), try_op(op::cholesky{});
  return text;
}

}  // namespace tenon::sdk::layer
