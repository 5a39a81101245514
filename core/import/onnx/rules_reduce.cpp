// SPDX-License-Identifier: Apache-2.0
// Rules for reductions over axes.
#include "import/onnx/helpers.hpp"

namespace tenon::core::onnx {
namespace {

struct Reduction {
  Ints axes;
  bool keepdims;
  bool nothing;  // reduces each element alone
};

// Axes are an attribute in old opsets, an input in new ones.
Reduction reduction_of(const Call& c, int64_t axes_are_input_since) {
  const int rank = c.rank(0);
  Ints axes;
  if (c.opset >= axes_are_input_since) {
    if (c.has(1)) axes = c.ints(1, "axes");
  } else {
    axes = c.is("axes");
  }
  const bool noop = c.flag("noop_with_empty_axes", false);
  Reduction r{c.axes(std::move(axes), rank), c.flag("keepdims", true), false};
  if (r.axes.empty() && noop) r.nothing = true;
  if (r.axes.empty() && !noop) r.axes = iota_list(rank);
  if (r.axes.empty()) r.nothing = true;  // a scalar
  return r;
}

Value reduced(Call& c, std::string_view kind, Value x, const Reduction& r) {
  return c.b.add(op::reduce{.kind = std::string(kind),
                            .axes = r.nothing ? Ints{} : r.axes,
                            .keepdims = r.keepdims || r.nothing,
                            .noop_with_empty_axes = r.nothing,
                            .x = x});
}

int64_t since(std::string_view op) { return op == "ReduceSum" ? 13 : 18; }

template <Kind kind>
void reduce(Call& c) {
  const Reduction r = reduction_of(c, since(c.node.op));
  const std::string_view name = kind;
  if (c.folds() && !r.nothing)
    if (auto known = known_reduce(name, *c.known(0), r.axes, r.keepdims))
      return c.out(std::move(*known));
  const DType t = c.dtype(0);
  Value x = c.value(0);
  if (t == kBool) {
    if (name != "max" && name != "min") c.wrong("input 0: expected a number, got bool");
    return c.out(reduced(c, name == "max" ? "any" : "all", x, r));
  }
  const bool needs_float = name == "l2" || name == "logsumexp";
  if (needs_float && is_integer(t)) x = c.b.cast(x, kF64);
  Value y = reduced(c, name, x, r);
  c.out(c.b.cast(y, t));
}

void log_sum(Call& c) {
  const Reduction r = reduction_of(c, 18);
  const DType t = c.dtype(0);
  Value x = is_integer(t) ? c.b.cast(c.value(0), kF64) : c.b.widen(c.value(0));
  c.out(c.b.cast(c.b.log(reduced(c, "sum", x, r)), t));
}

constexpr Rule kRules[] = {
    {"ReduceSum", 1, reduce<"sum">},
    {"ReduceMean", 1, reduce<"mean">},
    {"ReduceMax", 1, reduce<"max">},
    {"ReduceMin", 1, reduce<"min">},
    {"ReduceProd", 1, reduce<"prod">},
    {"ReduceSumSquare", 1, reduce<"sum_square">},
    {"ReduceL1", 1, reduce<"l1">},
    {"ReduceL2", 1, reduce<"l2">},
    {"ReduceLogSumExp", 1, reduce<"logsumexp">},
    {"ReduceLogSum", 1, log_sum},
};

}  // namespace

std::span<const Rule> reduce_rules() { return kRules; }

}  // namespace tenon::core::onnx
