// SPDX-License-Identifier: Apache-2.0
// A graph for a bucket: numbers of symbols are rounded up, and the graph is changed so that the
// padding changes no result.
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
  std::vector<Lengths> outputs{};  // of the graph's; numbers by position in `numbers`
};

// Binds `graph` to `sizes` and makes its results right for all numbers of the symbols in `padded`
// from 1 to the size. The elements of an input behind its number must be copies of the last one
// before them, along each padded axis. In an output, what is behind the number has no meaning.
//
// What depends on a symbol is found by comparison: the graph is bound a second time for each padded
// symbol, with another size. Where a length differs, the axis is padded. Ops say by a rule of their
// record what they need; an op without one is decomposed. Refuses (unsupported) by name: an op that
// nothing of this suits, and a graph that takes no other size than this one.
PaddedGraph pad_to_buckets(const Graph& graph, const std::map<std::string, int64_t>& sizes,
                           const std::vector<std::string>& padded);

}  // namespace tenon::core
