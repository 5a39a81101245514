// SPDX-License-Identifier: Apache-2.0
// Gradients of nodes that run functions. Each function is differentiated by a reverse walk of its
// own.
//
// A branch computes its function again in the backward pass. Trips save what the backward pass
// reads: each value is stacked over the trips, and the backward node runs the trips in the opposite
// order over these stacks. In a function whose nodes are marked for recomputation, what is saved is
// the carry.
#pragma once

#include <functional>
#include <map>

#include "ir/rewrite.hpp"
#include "ops/control.hpp"

namespace tenon::core {

// The backward pass of a node that runs trips and saves what that pass reads.
//
//   carry     the gradients of `carry`, then sums of the gradients of `captured`
//   xs        the entries of `sources`
//   captured  the operands `reads` of the node's captured ones
//   stacked   the gradients of `slices`
struct BackwardTrips {
  enum class From : uint8_t { saved, slice, gradient };
  struct Source {
    From from;
    uint32_t index;  // an output of the node; an entry of its xs; an output whose gradient it is
  };
  FunctionAttr function;
  std::vector<uint32_t> carry, captured, slices;  // by position in their lists
  std::vector<Source> sources;
  std::vector<uint32_t> reads;
};
using SavedTrips = std::map<NodeId, BackwardTrips>;

// From losses back to wrt, through the nodes before `end`.
struct Way {
  NodeId end = 0;
  std::vector<Value> losses, wrt;
};
using FindWay = std::function<Way(const Graph&)>;

// The paths of a way.
struct Path {
  std::vector<bool> depends;  // by value: a float that depends on a wrt through floats
  std::vector<bool> nodes;    // reaches a loss through dependent values
};

// In grad.cpp, as the two after it.
Path find_path(const Graph& graph, const Way& way);
// Decomposes what has no gradient and lies on the way, which is found again after each change.
void lower_way(Graph& graph, const FindWay& find, ValueMap* map);
// Writes gradients behind the nodes there are; one value per wrt. seeds: gradients of the losses,
// absent where none comes. kept: by value, see kept_values. The way is lowered and its trips saved.
// cut: of a wrt that reaches the losses, but only through ops without a gradient.
enum class Cut : bool { is_zero, is_refused };
std::vector<Value> walk_back(Graph& graph, NodeId end, std::span<const Value> losses,
                             std::span<const Value> seeds, std::span<const Value> wrt,
                             std::vector<bool> kept, const SavedTrips& saved, Cut cut);

// Expands requests for gradients inside functions, also inside their functions. The graph's own
// stay. Functions are bound.
Graph expand_in_functions(const Graph& graph);

// Makes nodes on the way that run trips save what their backward pass reads: outputs behind those
// they had. saved: by node of the new graph.
Graph save_trips(const Graph& graph, const Way& way, SavedTrips* saved, ValueMap* map);

// Gradient rules, for a node of the walk.
void through_branch(Grad& grad, const NodeInfo& node, const Control& control);
void through_trips(Grad& grad, const Control& control, const BackwardTrips& backward);

}  // namespace tenon::core
