// SPDX-License-Identifier: Apache-2.0
// What devices say of nodes: asked about whole graphs, and about a node by itself before a pass
// makes it.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "host/device.hpp"
#include "ir/graph.hpp"

namespace tenon::core {

// What does device `d` say of each node of this graph?
using Query = std::function<std::vector<Verdict>(const Graph& graph, uint32_t d)>;

// Refuses every node of a group of which the device refuses one: all or none. A refusal without a
// text gets one.
void settle_verdicts(std::vector<Verdict>& verdicts);

// Operands for a graph of their own, which is asked about. A claim may depend on what an operand
// is, so each stands for a value of its kind: a constant with its content, a weight or state that
// is updated or not, else an input. Operands that are one value stay one value.
struct Trial {
  Graph graph{};
  std::vector<Value> operands{};  // of graph, by position; absent where an operand is
};
Trial trial_of(const Graph& g, std::span<const Value> operands);

// What a claim, and so a decomposition, may depend on, as bytes: equal where it is.
std::string form_key(const Graph& g, const NodeInfo& node);

// What devices say of single nodes. Each form is asked about once.
class Claims {
 public:
  explicit Claims(const Query& query) : query_(query) {}

  // A node of this op over values of g.
  const Verdict& of(const Graph& g, const OpRecord& op, const Operands& operands,
                    const Attrs& attrs, const std::vector<bool>& wanted, uint32_t device = 0);
  const Verdict& of(const Graph& g, const NodeInfo& node);  // on the device of its marks

  // Why a pass should not put one node, about which the device said `joined`, in the place of
  // these: it is refused, or the device says that they cost less. Empty when it should.
  std::string why_not(const Verdict& joined, const Graph& g, std::span<const NodeId> parts);

 private:
  const Query& query_;
  std::unordered_map<std::string, Verdict> answers_;  // by form_key and device
};

// Claims that a device made of a node and took back when it saw the node in its region. Planning
// begins again with them refused.
class Withdrawn {
 public:
  // False when the claim was taken back before.
  bool add(const Graph& g, NodeId n, const std::string& why);
  bool empty() const { return why_.empty(); }
  void clear() { why_.clear(); }
  // The same answers, with these claims refused.
  Query without(Query query) const;

 private:
  std::unordered_map<std::string, std::string> why_;  // by form_key and device
};

// Costs are estimates: equal ones differ in their last digits.
bool costs_less(double a, double b);
std::string microseconds(double seconds);  // "12.3 us"

}  // namespace tenon::core
