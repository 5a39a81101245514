// SPDX-License-Identifier: Apache-2.0
// Tries numbers for the symbols of a graph.
#include "export/trial.hpp"

#include <algorithm>

#include "ir/rewrite.hpp"
#include "ops/record.hpp"

namespace tenon::core::onnx {
namespace {

// Number `which` (0 or 1) of symbol k. Different symbols have different numbers where that fits. The
// second number is large: strides and thresholds must not give both the same dim, which would then
// count as a number of the model.
struct Way {
  int64_t first, second, apart;
  int64_t number(int which, size_t k) const {
    return (which ? second : first) + apart * static_cast<int64_t>(k);
  }
};
constexpr Way kWays[] = {{48, 100800, 192}, {5, 100003, 4},        {2, 50021, 2},  {48, 10080, 192},
                         {5, 10007, 4},     {5040, 5040000, 5040}, {64, 65536, 0}, {48, 100800, 0},
                         {1, 100003, 0},    {48, 10080, 0},        {5, 10007, 0},  {1, 4096, 0}};

bool has_extents(const core::Graph& graph) {
  for (NodeId n = 0; n < graph.node_count(); ++n)
    if (graph[n].op->traits & kExtent) return true;
  return false;
}

// The nodes that outputs need, with numbers for symbols. fewer: rows with an extent are fewer than
// the type says, so that their dims differ from those of a graph in which they are not.
core::Graph bound(const core::Graph& graph, const std::vector<int64_t>& numbers, bool fewer) {
  std::vector<Type> types;
  for (Value v : graph.inputs()) {
    Type type = graph.type(v);
    for (int k = 0; k < type.shape.rank(); ++k)
      if (is_symbol(type.shape[k])) type.shape[k] = numbers[static_cast<size_t>(~type.shape[k])];
    types.push_back(type);
  }
  std::vector<Value> wanted;
  for (const Output& o : graph.outputs()) wanted.push_back(o.value);
  const std::vector<bool> needed = needed_for(graph, wanted);
  Rewriter rewriter(graph, types);
  for (NodeId n = 0; n < graph.node_count(); ++n) {
    const NodeInfo& node = graph[n];
    if (std::ranges::none_of(node.outputs, [&](Value v) { return v && needed[v.id]; })) continue;
    if (fewer && (node.op->traits & kExtent)) {
      const int64_t rows = rewriter.to.type(rewriter.map(node.operands[0])).shape.elements() + 1;
      Attrs attrs = node.attrs;
      std::erase_if(attrs, [](const Attr& a) { return a.name == "bound"; });
      attrs.push_back({"bound", rows});
      rewriter.copy(n, std::move(attrs));
    } else {
      rewriter.copy(n);
    }
  }
  for (const Output& o : graph.outputs()) rewriter.to.output(o.name, rewriter.map(o.value));
  return std::move(rewriter.to);
}

}  // namespace

ValueInfo::Dim Trial::dim_of(Value v, int axis) const {
  const int64_t here = graph.type(v).shape[axis];
  if (!other || other->type(v).shape[axis] == here) return {.size = here};
  if (graph[v].space == Space::input)
    for (size_t k = 0; k < inputs.size(); ++k)
      if (graph.inputs()[k] == v && is_symbol(inputs[k].shape[axis]))
        return {.symbol = symbols[static_cast<size_t>(~inputs[k].shape[axis])]};
  // Symbols of the same numbers cannot be told apart: unknown.
  const int64_t there = other->type(v).shape[axis];
  ValueInfo::Dim dim;
  for (size_t k = 0; k < symbols.size(); ++k) {
    if (numbers[k] != here || others[k] != there) continue;
    if (!dim.symbol.empty()) return {};
    dim.symbol = symbols[k];
  }
  return dim;
}

Trial trial_of(const core::Graph& graph) {
  Trial out;
  out.symbols = graph.symbols();
  for (Value v : graph.inputs()) out.inputs.push_back(graph.type(v));
  const size_t count = out.symbols.size();
  const bool extents = has_extents(graph);
  if (count == 0) {
    out.graph = bound(graph, {}, false);
    if (extents) out.other = bound(graph, {}, true);
    return out;
  }
  std::string reason;
  for (const Way& way : kWays) {
    out.numbers.clear();
    out.others.clear();
    for (size_t k = 0; k < count; ++k) {
      out.numbers.push_back(way.number(0, k));
      out.others.push_back(way.number(1, k));
    }
    try {
      out.graph = bound(graph, out.numbers, false);
      out.other = bound(graph, out.others, extents);
      return out;
    } catch (const Error& e) {
      if (reason.empty()) reason = e.what();
    }
  }
  fail(Code::unsupported,
       "export: a node refuses all numbers that were tried for the symbols: ", reason,
       "; hint: give numbers for the symbols");
}

}  // namespace tenon::core::onnx
