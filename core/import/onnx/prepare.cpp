// SPDX-License-Identifier: Apache-2.0
// Removes what nothing reads, and moves large constants to the initializers.
#include "import/onnx/prepare.hpp"

#include <map>
#include <set>

namespace tenon::core::onnx {
namespace {

using Names = std::set<std::string, std::less<>>;

// All names that a graph and its subgraphs read. Names of subgraphs may hide outer ones; then a name
// counts as read too often, which keeps a node that is not needed.
void add_reads(const Graph& graph, Names& reads) {
  for (const ValueInfo& v : graph.outputs) reads.insert(v.name);
  for (const Node& n : graph.nodes) {
    reads.insert(n.inputs.begin(), n.inputs.end());
    for (const Attribute& a : n.attributes)
      if (a.g) add_reads(*a.g, reads);
  }
}

void remove_unread(Graph& graph) {
  Names reads;
  for (const ValueInfo& v : graph.outputs) reads.insert(v.name);
  std::vector<Node> kept;
  for (size_t k = graph.nodes.size(); k-- > 0;) {
    Node& n = graph.nodes[k];
    bool needed = false;
    for (std::string& o : n.outputs)
      if (reads.contains(o) && !o.empty())
        needed = true;
      else
        o.clear();
    if (!needed) continue;
    while (!n.outputs.empty() && n.outputs.back().empty()) n.outputs.pop_back();
    reads.insert(n.inputs.begin(), n.inputs.end());
    for (const Attribute& a : n.attributes)
      if (a.g) add_reads(*a.g, reads);
    kept.push_back(std::move(n));
  }
  graph.nodes.assign(std::make_move_iterator(kept.rbegin()), std::make_move_iterator(kept.rend()));
  // An input with a default goes with it: without the default, it would have to be given.
  Names unread;
  for (const Tensor& t : graph.initializers)
    if (!reads.contains(t.name)) unread.insert(t.name);
  std::erase_if(graph.inputs, [&](const ValueInfo& v) { return unread.contains(v.name); });
  std::erase_if(graph.initializers, [&](const Tensor& t) { return unread.contains(t.name); });
}

class Hoist {
 public:
  explicit Hoist(Graph& top) : top_(top) {
    for (const ValueInfo& v : top.inputs) taken_.insert(v.name);
    for (const Tensor& t : top.initializers) taken_.insert(t.name);
    for (const Node& n : top.nodes) taken_.insert(n.outputs.begin(), n.outputs.end());
  }

  // renamed: names of outer graphs that have another name now.
  void run(Graph& graph, std::map<std::string, std::string> renamed) {
    const bool inner = &graph != &top_;
    for (const ValueInfo& v : graph.inputs) renamed.erase(v.name);
    if (inner) {
      std::vector<Tensor> kept;
      for (Tensor& t : graph.initializers) {
        renamed.erase(t.name);
        if (is_large(t))
          renamed[t.name] = move_up(t.name, t);
        else
          kept.push_back(std::move(t));
      }
      graph.initializers = std::move(kept);
    }
    std::vector<Node> nodes;
    for (Node& n : graph.nodes) {
      if (const Tensor* t = large_constant(n)) {
        const std::string name = n.outputs[0];
        renamed.erase(name);
        const std::string now = inner ? move_up(name, *t) : add(name, *t);
        if (now != name) renamed[name] = now;
        continue;
      }
      for (std::string& i : n.inputs)
        if (const auto at = renamed.find(i); at != renamed.end()) i = at->second;
      for (Attribute& a : n.attributes)
        if (a.g) {
          auto copy = std::make_shared<Graph>(*a.g);
          run(*copy, renamed);
          a.g = std::move(copy);
        }
      for (const std::string& o : n.outputs) renamed.erase(o);
      nodes.push_back(std::move(n));
    }
    graph.nodes = std::move(nodes);
    if (inner)
      for (ValueInfo& v : graph.outputs)
        if (const auto at = renamed.find(v.name); at != renamed.end()) v.name = at->second;
  }

 private:
  static const Tensor* large_constant(const Node& n) {
    if (n.op != "Constant" || !(n.domain.empty() || n.domain == "ai.onnx") || n.outputs.empty())
      return nullptr;
    for (const Attribute& a : n.attributes)
      if (a.name == "value" && a.t && a.refers_to.empty() && is_large(*a.t)) return a.t.get();
    return nullptr;
  }
  std::string add(const std::string& name, const Tensor& t) {
    top_.initializers.push_back(t);
    top_.initializers.back().name = name;
    return name;
  }
  std::string move_up(const std::string& name, const Tensor& t) {
    std::string now = name;
    while (!taken_.insert(now).second) now += "'";
    return add(now, t);
  }

  Graph& top_;
  Names taken_;
};

}  // namespace

bool is_large(const Tensor& t) {
  return t.dtype != TENON_DTYPE_NONE && (!can_be_known(t.dtype) || count_of(t.dims) > kMostSmall);
}

Model prepared(const Model& model) {
  Model out = model;
  Hoist(out.graph).run(out.graph, {});
  remove_unread(out.graph);
  return out;
}

}  // namespace tenon::core::onnx
