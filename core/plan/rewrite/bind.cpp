// SPDX-License-Identifier: Apache-2.0
// Replaces symbols by numbers and infers every type.
#include "plan/rewrite/bind.hpp"

#include <algorithm>

namespace tenon::core {
namespace {

std::string known_symbols(const Graph& graph) {
  std::string text;
  for (const std::string& s : graph.symbols()) text += cat(text.empty() ? "" : ", ", "'", s, "'");
  return text.empty() ? "none" : text;
}

void check_symbols(const Graph& graph, const std::map<std::string, int64_t>& symbols) {
  for (const auto& [name, number] : symbols) {
    if (std::find(graph.symbols().begin(), graph.symbols().end(), name) == graph.symbols().end())
      fail(Code::invalid_argument, "bind: the graph has no symbol '", name, "'; it has ",
           known_symbols(graph));
    if (number < 0)
      fail(Code::invalid_argument, "bind: symbol '", name, "': expected a number >= 0, got ",
           number);
  }
}

Type bound_type(const Graph& graph, Value input, const std::map<std::string, int64_t>& symbols) {
  Type type = graph.type(input);
  for (int i = 0; i < type.shape.rank(); ++i) {
    if (!is_symbol(type.shape[i])) continue;
    const std::string name(graph.symbol_name(type.shape[i]));
    const auto found = symbols.find(name);
    if (found == symbols.end())
      fail(Code::invalid_argument, "bind: symbol '", name, "', a dim of input '", graph[input].name,
           "', has no number");
    type.shape[i] = found->second;
  }
  return type;
}

}  // namespace

Graph bind(const Graph& graph, const std::map<std::string, int64_t>& symbols, ValueMap* map) {
  check_symbols(graph, symbols);
  std::vector<Type> types;
  for (Value v : graph.inputs()) types.push_back(bound_type(graph, v, symbols));
  Rewriter rewriter(graph, types);
  for (NodeId n = 0; n < graph.node_count(); ++n) rewriter.copy(n);
  Graph bound = rewriter.finish();
  if (map) *map = rewriter.values();
  return bound;
}

}  // namespace tenon::core
