// SPDX-License-Identifier: Apache-2.0
// Makes a graph legal for the devices at hand: each node is native on the wanted device, else
// decomposed there, else it falls back to the second device, else it is refused. Where rates are
// known, what is decomposed falls back too when that is cheaper. Says so for every node, with the
// reason.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "host/device.hpp"
#include "host/rates.hpp"
#include "ir/graph.hpp"

namespace tenon::core {

enum class NodeVerdict : uint8_t { native, decomposed, fallback, refused };
std::string_view verdict_name(NodeVerdict v);

// One line per node of the graph as it was asked for.
struct NodeReport {
  std::string name;        // provenance, or the name of its first output
  std::string provenance;  // may be empty
  std::string op;
  NodeVerdict verdict = NodeVerdict::native;
  std::string reason;  // why it is not native
  std::string note;    // what was joined in it, or why it was not joined into another
  double flops = 0;    // of its products
  uint32_t device = 0;
};

struct LegalGraph {
  Graph graph;
  std::vector<uint32_t> device;  // of each node of graph
  std::vector<NodeReport> reports;
  std::vector<uint32_t> report_of;  // of each node of graph: index into reports
};

struct LegalizeOptions {
  uint32_t devices = 1;        // 2: device 1 takes what device 0 refuses
  bool decompose_all = false;  // write every op in primitives
  // Of both devices, or none: what device 0 only takes decomposed goes to device 1 where that is
  // cheaper, its operands and outputs carried over. Without rates it stays.
  std::span<const Rates> rates{};
};

// What does device `d` say of each node of this graph?
using Query = std::function<std::vector<Verdict>(const Graph& graph, uint32_t d)>;

// Throws unsupported, naming each refused node with every device's reason.
LegalGraph legalize(const Graph& from, const LegalizeOptions& options, const Query& query);

}  // namespace tenon::core
