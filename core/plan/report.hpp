// SPDX-License-Identifier: Apache-2.0
// What became of each node: the verdicts, and the graph that they are about.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.hpp"

namespace tenon::core {

enum class NodeVerdict : uint8_t { native, decomposed, fallback, refused };
std::string_view verdict_name(NodeVerdict v);

// Of a node as it was before it was decomposed, or of one that stands for several.
struct NodeReport {
  std::string name{};        // provenance, or the name of its first output
  std::string provenance{};  // may be empty
  std::string op{};
  NodeVerdict verdict = NodeVerdict::native;
  std::string reason{};  // why it is not native
  std::string note{};    // what was joined in it, or why it was not joined into another
  double flops = 0;      // of its products
  uint32_t device = 0;
};
NodeReport report_of(const Graph& graph, const NodeInfo& node);

// A weight that stands for what is computed of another one, once.
struct Hoisted {
  std::string source{};                  // the other's name
  std::shared_ptr<const Graph> maker{};  // of one weight, "w", and one output
  std::string layout{};                  // the maker as text: equal for what is equal
};

// The nodes' marks say on which device each runs, and which of the reports it belongs to (source).
struct LegalGraph {
  Graph graph{};
  std::vector<NodeReport> reports{};
  std::map<std::string, Hoisted> hoisted{};  // by the name of the weight of graph
};

// After passes over a legal graph: nodes that stand for several get reports of their own, and
// reports of nodes that went into others go, unless they tell of a decomposition or a fallback.
// Then every node has a report.
void settle_reports(LegalGraph& legal);

}  // namespace tenon::core
