// SPDX-License-Identifier: Apache-2.0
// Nodes that run functions (level control), as passes see them: which functions, how often, and what
// their inputs and outputs are.
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "ir/rewrite.hpp"
#include "ops/build.hpp"
#include "ops/record.hpp"

namespace tenon::core {

inline bool is_control(const NodeInfo& node) { return node.op->schema->level == OpLevel::control; }

inline bool has_control(const Graph& graph) {
  for (NodeId n = 0; n < graph.node_count(); ++n)
    if (is_control(graph[n])) return true;
  return false;
}

// A node of level control.
//
//   kind     functions           inputs                     outputs
//   branch   then, else          captured                   results, one for each output
//   loop     condition, body     carry, captured            condition: bool; body: the next carry
//   trips    body                carry, slices, captured    the next carry, then slices
struct Control {
  enum class Kind : uint8_t { branch, loop, trips };
  static constexpr int64_t kNoBound = -1;

  Kind kind{};
  std::vector<FunctionAttr> functions{};
  Value cond{};  // branch
  std::vector<Value> carry{}, xs{}, captured{};
  int64_t trips = kNoBound;  // trips: how many; loop: at most so many
  bool reverse = false;      // trips: from the last slice to the first
};
Control control_of(const Graph& graph, const NodeInfo& node);

Type slice_type(const Type& stacked);  // without axis 0

// The operand types of function k, which are the types of its inputs once it is bound.
std::vector<Type> input_types(const Graph& graph, const Control& control);

// The function over inputs of these types: its symbols are numbers. Fails, and names the input, if
// they do not fit. Functions inside it are bound too.
FunctionAttr bound_function(const FunctionAttr& function, std::span<const Type> types);
// A bound graph with its functions bound.
Graph bind_functions(const Graph& graph);
// Copies a node with other functions, in the order of Control::functions.
void copy_with_functions(Rewriter& rewriter, const Graph& from, NodeId node,
                         std::span<const FunctionAttr> functions);

// Adds the node of a Control whose functions are bound. Its first `count` outputs are wanted.
Results add_control(Builder& b, const Control& control, size_t count);

// Writes the body of a scan: from the carry, a slice of each of xs and the captured values, the next
// carry, then slices of what is stacked.
using ScanStep =
    std::function<std::vector<Value>(Builder& b, std::span<const Value> carry,
                                     std::span<const Value> xs, std::span<const Value> captured)>;
// Adds the node of a Control of kind trips; `step` writes its function.
Results add_scan(Builder& b, Control scan, const ScanStep& step);

// Writes the functions of a loop: from the carry, whether it goes on (a bool scalar), and from the
// carry and the captured values, the next carry.
using LoopGoes = std::function<Value(Builder& b, std::span<const Value> carry)>;
using LoopStep = std::function<std::vector<Value>(Builder& b, std::span<const Value> carry,
                                                  std::span<const Value> captured)>;
// Adds the node of a Control of kind loop; `goes` and `step` write its functions.
Results add_while(Builder& b, Control loop, const LoopGoes& goes, const LoopStep& step);

// Copies a node of a function into b's graph. It keeps its own marks for recomputation. where: goes
// before its name, if not empty.
void copy_inside(Copier& copy, Builder& b, const Graph& function, NodeId node,
                 std::string_view where);
// Appends the nodes of a function, with these operands as its inputs. Returns its outputs.
std::vector<Value> inline_function(Builder& b, const Graph& function,
                                   std::span<const Value> operands, std::string_view where = {});

}  // namespace tenon::core
