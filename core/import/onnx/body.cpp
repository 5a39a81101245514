// SPDX-License-Identifier: Apache-2.0
// Writes subgraphs as functions, or in place.
#include "import/onnx/body.hpp"

#include <set>

namespace tenon::core::onnx {
namespace {

// Names that the graph reads but does not define, in the order of reading.
void add_free(const Graph& graph, const std::set<std::string, std::less<>>& outer,
              std::vector<std::string>& out, int depth) {
  if (depth > kMostDepth) fail(Code::unsupported, "subgraphs more than ", kMostDepth, " deep");
  std::set<std::string, std::less<>> own = outer;
  for (const ValueInfo& v : graph.inputs) own.insert(v.name);
  for (const Tensor& t : graph.initializers) own.insert(t.name);
  for (const auto& [name, t] : graph.sparse_initializers) own.insert(name);
  const auto read = [&](const std::string& name) {
    if (!name.empty() && !own.contains(name)) out.push_back(name);
  };
  for (const Node& n : graph.nodes) {
    for (const std::string& name : n.inputs) read(name);
    for (const Attribute& a : n.attributes)
      if (a.g) add_free(*a.g, own, out, depth + 1);
    for (const std::string& name : n.outputs) own.insert(name);
  }
  for (const ValueInfo& v : graph.outputs) read(v.name);
}

}  // namespace

Captured captured_by(Call& call, std::initializer_list<const Graph*> graphs) {
  std::vector<std::string> names;
  for (const Graph* g : graphs) add_free(*g, {}, names, 0);
  std::set<std::string> seen;
  Captured out;
  for (const std::string& name : names) {
    if (!seen.insert(name).second) continue;
    const Item* item = call.scope.find(name);
    if (!item) continue;  // the node that reads it reports that
    if (item->refused)
      throw Refused{
          Code::unsupported,
          cat("'", name, "', which its subgraph reads, comes from a node that is refused")};
    if (item->list)
      throw Refused{Code::unsupported, cat("its subgraph reads the sequence '", name, "'")};
    if (item->known) {
      Item copy = *item;
      copy.value = {};
      copy.tensor = nullptr;
      out.known.emplace_back(name, std::move(copy));
    } else {
      out.values.emplace_back(name, call.scope.value(name));
    }
  }
  return out;
}

Body::Body(Call& call, const Graph& graph, const Captured& captured)
    : b(this->graph, call.b.provenance),
      call_(call),
      from_(graph),
      refusals_(call.scope.all.refusals.size()),
      scope_(call.scope.all, b) {
  scope_.opsets = call.scope.opsets;
  scope_.arguments = call.scope.arguments;
  scope_.where = cat(call.scope.where, name_of(call.node), "/");
  for (const auto& [name, item] : captured.known) scope_.set(name, item);
}

Value Body::input(const Type& type) {
  if (next_ >= from_.inputs.size())
    call_.wrong("its subgraph has ", from_.inputs.size(), " inputs, expected more");
  Item item;
  item.value = graph.input(cat("in", graph.inputs().size()), type);
  scope_.set(from_.inputs[next_++].name, item);
  return item.value;
}

void Body::known_input(Known content) {
  if (next_ >= from_.inputs.size())
    call_.wrong("its subgraph has ", from_.inputs.size(), " inputs, expected more");
  Item item;
  item.known = std::make_shared<const Known>(std::move(content));
  scope_.set(from_.inputs[next_++].name, std::move(item));
}

void Body::run(const Captured& captured) {
  if (next_ != from_.inputs.size())
    call_.wrong("its subgraph has ", from_.inputs.size(), " inputs, expected ", next_);
  Translation& all = call_.scope.all;
  if (all.depth >= kMostDepth) call_.refuse("subgraphs more than ", kMostDepth, " deep");
  for (const auto& [name, value] : captured.values) {
    Item item;
    item.value = graph.input(cat("in", graph.inputs().size()), call_.b.type(value));
    scope_.set(name, item);
  }
  scope_.add_initializers(from_);
  ++all.depth;
  scope_.run(from_.nodes);
  --all.depth;
  for (const ValueInfo& o : from_.outputs) {
    const Item* item = scope_.find(o.name);
    if (!item) call_.wrong("its subgraph does not give its output '", o.name, "'");
    if (item->refused) throw Refused{Code::unsupported, "a node of its subgraph is refused"};
  }
}

const Item& Body::output(size_t k) const { return *scope_.find(from_.outputs[k].name); }
Value Body::output_value(size_t k) { return scope_.value(from_.outputs[k].name); }

std::vector<Item> run_in_place(Call& call, const Graph& graph, std::vector<Item> inputs) {
  Translation& all = call.scope.all;
  if (all.depth >= kMostDepth) call.refuse("subgraphs more than ", kMostDepth, " deep");
  if (inputs.size() != graph.inputs.size())
    call.wrong("its subgraph has ", graph.inputs.size(), " inputs, expected ", inputs.size());
  Scope inner(all, call.b, &call.scope);
  inner.opsets = call.scope.opsets;
  inner.arguments = call.scope.arguments;
  inner.where = cat(call.scope.where, name_of(call.node), "/");
  for (size_t k = 0; k < inputs.size(); ++k) inner.set(graph.inputs[k].name, std::move(inputs[k]));
  inner.add_initializers(graph);
  ++all.depth;
  inner.run(graph.nodes);
  --all.depth;
  std::vector<Item> out;
  for (const ValueInfo& o : graph.outputs) {
    const Item* item = inner.find(o.name);
    if (!item) call.wrong("its subgraph does not give its output '", o.name, "'");
    out.push_back(*item);
  }
  return out;
}

}  // namespace tenon::core::onnx
