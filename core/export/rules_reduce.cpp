// SPDX-License-Identifier: Apache-2.0
// Reductions, softmax, order and running sums as nodes of ONNX.
#include <algorithm>

#include "export/call.hpp"

namespace tenon::core::onnx {
namespace {

struct Pair {
  std::string_view kind, op;
};
constexpr Pair kReductions[] = {
    {"sum", "ReduceSum"},
    {"mean", "ReduceMean"},
    {"max", "ReduceMax"},
    {"min", "ReduceMin"},
    {"prod", "ReduceProd"},
    {"sum_square", "ReduceSumSquare"},
    {"l1", "ReduceL1"},
    {"l2", "ReduceL2"},
    {"any", "ReduceMax"},
    {"all", "ReduceMin"},
    {"logsumexp", "ReduceLogSumExp"},
};

// Bools count in i64.
Ref countable(Call& c, const Ref& x) { return x.dtype == kBool ? c.e.cast(x, kI64) : x; }

void write_reduce(Call& c) {
  const auto n = decode<op::reduce>(c.node);
  const auto row = std::ranges::find(kReductions, n.kind, &Pair::kind);
  if (row == std::end(kReductions)) c.refuse("ONNX has no op for kind ", n.kind);
  Emitter& e = c.e;
  Ref x = c.in(n.x);
  if (n.kind == "sum" || n.kind == "prod") x = countable(c, x);
  if (n.axes.empty() && n.noop_with_empty_axes) {
    // Each element alone: along an axis of length 1.
    x = e.unsqueeze(x, {0});
    return c.out(e.add(row->op, {x, e.ints({0})}, {attribute("keepdims", 0)}));
  }
  // A scalar has no axis; no axes mean all of them.
  const Ref axes = n.axes.empty() ? Ref{} : e.ints(n.axes);
  c.out(e.add(row->op, {x, axes}, {attribute("keepdims", n.keepdims)}));
}

void write_softmax(Call& c) {
  const auto n = decode<op::softmax>(c.node);
  c.out(c.e.add(n.log ? "LogSoftmax" : "Softmax", {c.in(n.x)}, {attribute("axis", n.axis)}));
}

template <class Op>
void write_arg(Call& c) {
  const auto n = decode<Op>(c.node);
  c.out(c.e.add(std::is_same_v<Op, op::argmax> ? "ArgMax" : "ArgMin", {c.in(n.x)},
                {attribute("axis", n.axis), attribute("keepdims", n.keepdims),
                 attribute("select_last_index", n.select_last)}));
}

void give_top(Call& c, Value x, const Ref& k, int64_t axis, bool largest, bool sorted) {
  const std::vector<Ref> y = c.e.add_all(
      "TopK", {c.in(x), k},
      {attribute("axis", axis), attribute("largest", largest), attribute("sorted", sorted)}, 2);
  c.out(0, y[0]);
  c.out(1, y[1]);
}

void write_topk(Call& c) {
  const auto n = decode<op::topk>(c.node);
  give_top(c, n.x, c.e.ints({n.k}), n.axis, n.largest, n.sorted);
}

void write_sort(Call& c) {
  const auto n = decode<op::sort>(c.node);
  const auto axis = static_cast<int>(from_front(n.axis, c.rank(n.x)));
  give_top(c, n.x, c.length(n.x, axis), n.axis, n.descending, true);
}

void write_cumsum(Call& c) {
  const auto n = decode<op::cumsum>(c.node);
  const Ref x = countable(c, c.in(n.x));
  const Ref y = c.e.add("CumSum", {c.e.widen(x), c.e.integer(n.axis)},
                        {attribute("exclusive", n.exclusive), attribute("reverse", n.reverse)});
  c.out(c.e.cast(y, x.dtype));
}

constexpr ExportRule kRules[] = {
    {"reduce", write_reduce},
    {"softmax", write_softmax},
    {"argmax", write_arg<op::argmax>},
    {"argmin", write_arg<op::argmin>},
    {"topk", write_topk},
    {"sort", write_sort},
    {"cumsum", write_cumsum},
};

}  // namespace

std::span<const ExportRule> reduce_export_rules() { return kRules; }

}  // namespace tenon::core::onnx
