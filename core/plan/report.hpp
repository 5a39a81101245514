// SPDX-License-Identifier: Apache-2.0
// What became of each node: verdicts, and the legal graph.
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

// A node before its decomposition, or a node that replaces several.
struct NodeReport {
  std::string name{};        // provenance, or the name of its first output
  std::string provenance{};  // may be empty
  std::string op{};
  NodeVerdict verdict = NodeVerdict::native;
  std::string reason{};  // why it is not native
  std::string note{};    // what was joined into it, or why it was not joined into another node
  double flops = 0;      // of its matrix products
  uint32_t device = 0;
};
NodeReport report_of(const Graph& graph, const NodeInfo& node);
// What reports call a node: its provenance, else its first output.
std::string node_name(const Graph& graph, const NodeInfo& node);

// A weight that replaces a value computed from another weight, once.
struct Hoisted {
  std::string source{};                  // name of the other weight
  std::shared_ptr<const Graph> maker{};  // with one weight, "w", and one output
  std::string layout{};                  // the maker as text, equal for equal makers
};

// The marks of nodes give their devices and their reports (source).
struct LegalGraph {
  Graph graph{};
  std::vector<NodeReport> reports{};
  std::map<std::string, Hoisted> hoisted{};  // by name of the weight in the graph
};

// After passes over a legal graph: nodes that replace several get new reports. Reports of nodes
// that were joined into others are removed, unless they tell of a decomposition or a fallback.
// Afterwards every node has a report.
void settle_reports(LegalGraph& legal);

}  // namespace tenon::core
