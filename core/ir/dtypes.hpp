// SPDX-License-Identifier: Apache-2.0
// The dtypes of values whose types depend on symbols.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "ir/graph.hpp"

namespace tenon::core {

// Shape rules need numbers, but dtypes do not depend on them. So this keeps a copy of what the
// values asked for are computed from, in which every symbol has the same number. A number that a
// node refuses is replaced by the next one.
class DTypes {
 public:
  // NONE if every number is refused by some node before the value. The graph must be the one of all
  // other calls.
  DType of(const Graph& graph, Value value);

 private:
  void follow(const Graph& graph, Value value);
  void copy_node(const Graph& graph, NodeId node);
  void forget();

  std::optional<Graph> copy_;
  std::vector<Value> now_;          // by value: its copy, absent if there is none
  std::map<NodeId, NodeId> nodes_;  // to the copies
  size_t number_ = 0;               // index of the number in the list of those to try
};

}  // namespace tenon::core
