// SPDX-License-Identifier: Apache-2.0
// Shared by passes that replace several nodes by one: the body, and the names, marks and notes of
// the replaced nodes.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.hpp"
#include "ir/rewrite.hpp"

namespace tenon::core {

// The names of the joined nodes ("binary mul + reduce"), and the first provenance among them.
struct Parts {
  std::string names, provenance;
};
Parts parts_of(const Graph& g, std::span<const NodeId> nodes);
// The notes of a raised node and of a product that reads a half begin so.
inline constexpr std::string_view kRaisedNote = "raised to ", kHalfNote = "reads a half: ";
// The note of the joined node: such notes of its parts, then its own.
std::string joined_note(const Graph& g, std::span<const NodeId> nodes, const std::string& note);
// The marks that all nodes have in common. A mark that differs is set to "several".
Marks marks_of(const Graph& g, std::span<const NodeId> nodes);

// Appends a note to those of earlier passes. A pass that runs twice adds its note once. Empty notes
// are ignored.
void add_note(Graph& g, NodeId n, const std::string& note);
void append_note(std::string& notes, const std::string& note);

// The graph with joined nodes in the place of their parts. joined: by the node in whose place it is put
// by emit(rewriter, join). Other nodes are copied with their notes, unless they are taken.
template <class Joins, class Emit>
Graph with_joined(const Graph& g, const Joins& joined, const std::vector<bool>& taken,
                  const std::vector<std::string>& notes, Emit emit) {
  Rewriter rw(g);
  for (NodeId n = 0; n < g.node_count(); ++n)
    if (const auto found = joined.find(n); found != joined.end())
      emit(rw, found->second);
    else if (!taken[n])
      add_note(rw.to, rw.copy(n), notes[n]);
  return rw.finish();
}

// True if v is a constant of one element; a body contains such constants.
bool is_number(const Graph& g, Value v);

// The nodes as steps of a body, in their order. Equal ones are one step.
struct StepsOf {
  FunctionAttr body;
  std::vector<Value> inputs;  // values of g, in the order of their first use
};
StepsOf steps_of(const Graph& g, std::span<const NodeId> nodes, std::span<const Value> outputs);

}  // namespace tenon::core
