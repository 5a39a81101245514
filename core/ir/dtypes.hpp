// SPDX-License-Identifier: Apache-2.0
// The dtypes of values whose types depend on symbols.
#pragma once

#include <optional>

#include "ir/graph.hpp"

namespace tenon::core {

// Shape rules need numbers, but dtypes do not depend on them. So this keeps a copy of the graph in
// which every symbol has the same number, and adds to it what the graph has gained since the last
// call. A number that a node refuses is replaced by the next one.
class DTypes {
 public:
  // NONE if no number was right for all nodes up to the value. The graph must be the one of all
  // other calls.
  DType of(const Graph& graph, Value value);

 private:
  void follow(const Graph& graph, Value value);
  std::optional<Graph> copy_;
  size_t number_ = 0;  // index of the number in the list of those to try
};

}  // namespace tenon::core
