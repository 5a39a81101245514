// SPDX-License-Identifier: Apache-2.0
// The model of a graph: names, inputs, outputs, and the list of refused nodes.
#include "export/export.hpp"

#include <algorithm>
#include <optional>
#include <set>

#include "export/file.hpp"
#include "export/trial.hpp"
#include "export/walk.hpp"
#include "import/onnx/write.hpp"
#include "ir/rewrite.hpp"
#include "ops/build.hpp"
#include "ops/record.hpp"

namespace tenon::core::onnx {

core::Graph part_of(const core::Graph& graph, const std::vector<std::string>& outputs) {
  std::vector<Value> wanted;
  for (const std::string& name : outputs) {
    const auto at = std::ranges::find(graph.outputs(), name, &Output::name);
    if (at == graph.outputs().end())
      fail(Code::not_found, "export: the graph has no output '", name, "'");
    wanted.push_back(at->value);
  }
  const std::vector<bool> needed = needed_for(graph, wanted);
  core::Graph part;
  part.name = graph.name;
  for (const std::string& symbol : graph.symbols()) part.symbol(symbol);
  Copier copy(graph, part);
  for (Value v : graph.inputs())
    if (needed[v.id]) copy.set(v, part.input(graph[v].name, graph.type(v)));
  for (Value v : graph.weights())
    if (needed[v.id]) copy.set(v, part.weight(graph[v].name, graph.type(v), graph[v].trainable));
  for (Value v : graph.states())
    if (needed[v.id]) copy.set(v, part.state(graph[v].name, graph.type(v)));
  for (const NodeId n : copy.makers_of(wanted)) copy.copy(n);
  for (size_t k = 0; k < outputs.size(); ++k) part.output(outputs[k], copy(wanted[k]));
  return part;
}

// ---- the model

namespace {

std::string text_of(const NodeInfo& node) {
  return cat(node.provenance.empty() ? "" : cat("'", node.provenance, "' "), "(", node.op->name(),
             ")");
}

// ---- what is read

void add_names(const Graph& g, std::set<std::string>& names) {
  for (const ValueInfo& v : g.outputs) names.insert(v.name);
  for (const Node& n : g.nodes) {
    names.insert(n.inputs.begin(), n.inputs.end());
    for (const Attribute& a : n.attributes)
      if (a.g) add_names(*a.g, names);
  }
}
std::set<std::string> names_read(const Graph& g) {
  std::set<std::string> names;
  add_names(g, names);
  return names;
}

// Rules write more than is read in the end.
void drop_unread(Graph& g) {
  std::set<std::string> names;
  for (const ValueInfo& v : g.outputs) names.insert(v.name);
  std::vector<Node> kept;
  for (auto n = g.nodes.rbegin(); n != g.nodes.rend(); ++n) {
    if (std::ranges::none_of(n->outputs, [&](auto& s) { return names.contains(s); })) continue;
    names.insert(n->inputs.begin(), n->inputs.end());
    for (const Attribute& a : n->attributes)
      if (a.g) add_names(*a.g, names);
    kept.push_back(std::move(*n));
  }
  std::ranges::reverse(kept);
  g.nodes = std::move(kept);
}

class Export {
 public:
  explicit Export(const core::Graph& graph) : given_(graph), trial_(trial_of(graph)) {}

  ExportedModel model() {
    if (!given_.updates().empty())
      fail(Code::unsupported, "export: the graph updates '",
           given_[given_.updates()[0].target].name,
           "', and an ONNX model changes nothing; hint: name the outputs to export");
    take_names();
    write_nodes();
    give_outputs();
    ExportedModel out;
    out.model.ir_version = 10;
    out.model.producer = "tenon";
    out.model.opsets[""] = kExportOpset;
    Graph& g = out.model.graph;
    g.name = given_.name.empty() ? "graph" : given_.name;
    g.nodes = std::move(emitter_.nodes);
    g.inputs = std::move(inputs_);
    g.outputs = std::move(outputs_);
    drop_unread(g);
    const std::set<std::string> read = names_read(g);
    for (Emitter::Constant& c : emitter_.constants)
      if (read.contains(c.name)) out.constants.push_back(std::move(c));
    return out;
  }

 private:
  // Names of inputs and outputs are kept; those of weights as far as they are free.
  void take_names() {
    const core::Graph& g = trial_.graph;
    view_.refs.resize(g.value_count());
    for (const Output& o : g.outputs()) emitter_.unique(o.name);
    for (Value v : g.inputs()) {
      const std::string& name = g[v].name;
      const auto same = std::ranges::find(g.outputs(), name, &Output::name);
      if (same == g.outputs().end())
        emitter_.unique(name);
      else if (same->value != v)
        fail(Code::unsupported, "export: an input and an output have the name '", name,
             "', which ONNX does not allow");
      view_.refs[v.id] = {name, g.type(v).dtype};
      inputs_.push_back(value_info(name, v));
    }
    for (const std::vector<Value>* values : {&g.weights(), &g.states()})
      for (Value v : *values) {
        const core::ValueInfo& info = g[v];
        const std::string name = emitter_.unique(info.name);
        view_.refs[v.id] = {name, info.type.dtype};
        emitter_.constants.push_back(
            {.name = name, .type = info.type, .space = info.space, .stored = info.name});
      }
  }

  ValueInfo value_info(const std::string& name, Value v) const {
    const Type& type = trial_.graph.type(v);
    ValueInfo out{.name = name,
                  .kind = ValueInfo::Kind::tensor,
                  .element = element_of_dtype(type.dtype),
                  .dtype = type.dtype};
    out.dims.emplace();
    for (int k = 0; k < type.shape.rank(); ++k) out.dims->push_back(trial_.dim_of(v, k));
    return out;
  }

  void write_nodes() {
    const core::Graph& g = trial_.graph;
    std::vector<Value> wanted;
    for (const Output& o : g.outputs()) wanted.push_back(o.value);
    const std::vector<bool> needed = needed_for(g, wanted);
    std::vector<std::string> refused;
    Walk walk{emitter_};
    for (NodeId n = 0; n < g.node_count(); ++n) {
      const NodeInfo& node = g[n];
      if (std::ranges::none_of(node.outputs, [&](Value v) { return v && needed[v.id]; })) continue;
      emitter_.begin(node.provenance.empty() ? node.op->name() : node.provenance);
      const size_t mark = emitter_.nodes.size();
      try {
        walk.write_node(view_, n);
      } catch (const NoForm& e) {
        refused.push_back(cat(text_of(node), ": ", e.reason));
        emitter_.nodes.resize(mark);
        // Readers are looked at all the same.
        for (Value v : node.outputs)
          if (v) view_.refs[v.id] = {"refused", g.type(v).dtype};
      }
    }
    if (refused.empty()) return;
    std::string text =
        cat("export: ", refused.size(),
            refused.size() == 1 ? " node has no form in ONNX:" : " nodes have no form in ONNX:");
    for (const std::string& r : refused) text += cat("\n  ", r);
    fail(Code::unsupported, text);
  }

  // A value gets the name of its output, if a node of the model gives it and it has no other.
  void give_outputs() {
    const core::Graph& g = trial_.graph;
    std::set<std::string> made;
    for (const Node& n : emitter_.nodes) made.insert(n.outputs.begin(), n.outputs.end());
    std::map<std::string, std::string> now;
    std::vector<std::pair<Ref, std::string>> copies;
    const NodeInfo none{};
    Walk walk{emitter_};
    Call call(walk, emitter_, view_, none);
    for (const Output& o : g.outputs()) {
      outputs_.push_back(value_info(o.name, o.value));
      const Ref r = call.in(o.value);
      if (r.name == o.name) continue;  // an input
      if (made.contains(r.name) && now.emplace(r.name, o.name).second) continue;
      copies.emplace_back(r, o.name);
    }
    for (auto& [r, name] : copies)
      emitter_.nodes.push_back(
          {.name = name, .op = "Identity", .inputs = {r.name}, .outputs = {name}});
    rename(emitter_.nodes, now);
  }

  static void rename(std::vector<Node>& nodes, const std::map<std::string, std::string>& now) {
    const auto change = [&](std::vector<std::string>& names) {
      for (std::string& s : names)
        if (const auto at = now.find(s); at != now.end()) s = at->second;
    };
    for (Node& n : nodes) {
      change(n.inputs);
      change(n.outputs);
      if (const auto at = now.find(n.name); at != now.end()) n.name = at->second;
      for (Attribute& a : n.attributes) {
        if (!a.g) continue;
        Graph inner = *a.g;
        rename(inner.nodes, now);
        a.g = std::make_shared<const Graph>(std::move(inner));
      }
    }
  }

  const core::Graph& given_;
  const Trial trial_;
  Emitter emitter_{};
  View view_{trial_.graph, trial_.other ? &*trial_.other : nullptr};
  std::vector<ValueInfo> inputs_{}, outputs_{};
};

// A graph that is nothing but a model of ONNX, whose inputs have symbols: its own nodes.
std::optional<ExportedModel> given_model(const core::Graph& g) {
  if (!g.updates().empty() || g.symbols().empty()) return {};
  std::vector<Value> wanted;
  for (const Output& o : g.outputs()) wanted.push_back(o.value);
  const std::vector<bool> needed = needed_for(g, wanted);
  std::optional<NodeId> only;
  for (NodeId n = 0; n < g.node_count(); ++n) {
    if (std::ranges::none_of(g[n].outputs, [&](Value v) { return v && needed[v.id]; })) continue;
    if (only || g[n].op->domain != "tenon" || g[n].op->name() != "onnx") return {};
    only = n;
  }
  if (!only) return {};
  const NodeInfo& node = g[*only];
  const auto n = decode<op::onnx>(node);
  ExportedModel out{.model = read_base64(n.model)};
  Graph& m = out.model.graph;
  const std::vector<ValueInfo> inputs = std::move(m.inputs);
  m.inputs.clear();
  std::set<std::string> taken;
  for (size_t k = 0; k < inputs.size(); ++k) {
    const ValueInfo& v = inputs[k];
    taken.insert(v.name);
    if (k < n.xs.size()) {
      if (g[n.xs[k]].space != Space::input || g[n.xs[k]].name != v.name) return {};
      m.inputs.push_back(v);
      continue;
    }
    const core::ValueInfo& weight = g[n.weights.at(k - n.xs.size())];
    if (weight.space != Space::weight) return {};
    out.constants.push_back(
        {.name = v.name, .type = weight.type, .space = weight.space, .stored = weight.name});
  }
  for (const Node& made : m.nodes) taken.insert(made.outputs.begin(), made.outputs.end());
  for (const Tensor& t : m.initializers) taken.insert(t.name);
  std::vector<ValueInfo> outputs;
  for (const Output& o : g.outputs()) {
    const auto at = std::ranges::find(node.outputs, o.value);
    if (at == node.outputs.end()) return {};
    ValueInfo v = m.outputs.at(static_cast<size_t>(at - node.outputs.begin()));
    if (v.name != o.name) {
      if (!taken.insert(o.name).second) return {};
      m.nodes.push_back(
          {.name = o.name, .op = "Identity", .inputs = {v.name}, .outputs = {o.name}});
      v.name = o.name;
    }
    outputs.push_back(std::move(v));
  }
  const bool all = outputs.size() >= m.outputs.size();
  m.outputs = std::move(outputs);
  if (all) return out;
  drop_unread(m);
  const std::set<std::string> read = names_read(m);
  const auto unread = [&](const auto& named) { return !read.contains(named.name); };
  std::erase_if(m.inputs, unread);
  std::erase_if(m.initializers, unread);
  std::erase_if(m.sparse_initializers, [&](const auto& t) { return !read.contains(t.first); });
  std::erase_if(out.constants, unread);
  return out;
}

}  // namespace

void export_model(const core::Graph& graph, const std::string& path, bool beside,
                  const ContentOf& content) {
  if (graph.outputs().empty())
    fail(Code::invalid_argument, "export: the graph has no outputs, and an ONNX model needs one");
  if (const auto given = given_model(graph)) return write_file(*given, path, beside, content);
  write_file(Export(graph).model(), path, beside, content);
}

}  // namespace tenon::core::onnx
