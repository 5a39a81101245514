// SPDX-License-Identifier: Apache-2.0
// Axes that are longer than what they hold: numbers of symbols are rounded up, and ops such as
// non_zero have results whose extent only the run tells. The graph is changed so that padding changes
// no result.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ir/rewrite.hpp"
#include "ops/padded.hpp"

namespace tenon::core {

struct PaddedGraph {
  Graph graph{};
  // Inputs that the pass adds, i64 []: the number of each padded symbol in a run.
  struct Number {
    std::string symbol, input;
  };
  std::vector<Number> numbers{};
  // Outputs that the pass adds, i64 []: extents that the lengths of other outputs depend on. Absent
  // ones are empty.
  std::vector<std::string> extents{};
  // Of the outputs of the graph as it was given. A number is a position in `numbers`, or behind them
  // in `extents`.
  std::vector<Lengths> outputs{};
};

bool has_extents(const Graph& graph);

// Binds `graph` to `sizes` and makes its results right for all numbers of the symbols in `padded`
// from 1 to the size, and for all extents. The elements of an input behind its number must be copies
// of the last one before them, along each padded axis: then no op fails on them that would not fail
// on that one. In an output, what is behind the number or the extent has no meaning.
//
// Requests for gradients stay: padding has no part in what is differentiated. Constants that count
// elements, as the divisor of a mean, become numbers of the run.
//
// What depends on a symbol or an extent is found by comparison: the graph is made once more for each
// of them, with another size. Where a length differs, the axis is padded. Ops say by a rule of their
// record what they need; an op without one is decomposed. Refuses (unsupported) by name: an op that
// nothing of this suits, and a graph that takes no other size than this one.
PaddedGraph pad_to_buckets(const Graph& graph, const std::map<std::string, int64_t>& sizes,
                           const std::vector<std::string>& padded);

}  // namespace tenon::core
