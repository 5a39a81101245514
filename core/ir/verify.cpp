// SPDX-License-Identifier: Apache-2.0
// Checks the invariants of a graph.
#include "ir/verify.hpp"

#include <set>

#include "ops/record.hpp"

namespace tenon::core {
namespace {

class Verifier {
 public:
  explicit Verifier(const Graph& graph) : g_(graph) {}

  void run() {
    for (uint32_t v = 0; v < g_.value_count(); ++v) check_value({v});
    for (NodeId n = 0; n < g_.node_count(); ++n) check_node(n);
    check_list(Space::input, g_.inputs());
    check_list(Space::weight, g_.weights());
    check_list(Space::state, g_.states());
    check_outputs();
    check_updates();
  }

 private:
  std::string value_text(Value v) const {
    return g_[v].name.empty() ? cat("value ", v.id) : cat("value ", v.id, " '", g_[v].name, "'");
  }
  std::string node_text(NodeId n) const {
    const NodeInfo& node = g_[n];
    return cat("node ", n, ", ", node.op ? node.op->name() : "?",
               node.provenance.empty() ? std::string() : cat(" '", node.provenance, "'"));
  }
  template <class... Parts>
  [[noreturn]] static void bad(const Parts&... parts) {
    fail(Code::invalid_argument, "graph: ", parts...);
  }

  void check_value(Value v) const {
    const ValueInfo& info = g_[v];
    if (info.space == Space::node) {
      if (info.node >= g_.node_count()) bad(value_text(v), ": its node does not exist");
      const NodeInfo& maker = g_[info.node];
      if (info.output >= maker.outputs.size() || maker.outputs[info.output] != v)
        bad(value_text(v), ": ", node_text(info.node), " does not make it");
      return;
    }
    if (info.node != kNone) bad(value_text(v), ": is made by no node and names one");
    if (!tenon_dtype_known(info.type.dtype)) bad(value_text(v), ": has no dtype");
    if (is_blocks(info.type.dtype)) want_whole_blocks(info.type, cat("graph: ", value_text(v)));
    for (Dim d : info.type.shape) {
      if (!is_symbol(d)) continue;
      if (info.space != Space::input) bad(value_text(v), ": only inputs may have symbolic dims");
      if (static_cast<size_t>(~d) >= g_.symbols().size())
        bad(value_text(v), ": a dim is no symbol of the graph");
    }
    if ((info.space == Space::constant) != bool(info.data))
      bad(value_text(v),
          info.data ? ": has content and is no constant" : ": a constant without content");
    if (info.data && info.data->size() != type_bytes(info.type))
      bad(value_text(v), ": ", info.type.text(), " takes ", type_bytes(info.type),
          " bytes, its content has ", info.data->size());
  }

  void check_node(NodeId id) const {
    const NodeInfo& node = g_[id];
    if (!node.op) bad(node_text(id), ": has no op");
    for (size_t k = 0; k < node.operands.size(); ++k) {
      const Value v = node.operands[k];
      if (!v) continue;
      const std::string_view name = node.op->schema->operand_name(k, node.lists);
      if (v.id >= g_.value_count()) bad(node_text(id), ": operand ", name, " does not exist");
      if (g_[v].space == Space::node && g_[v].node >= id)
        bad(node_text(id), ": operand ", name, " is made after it, by ", node_text(g_[v].node));
    }
    for (uint32_t k = 0; k < node.outputs.size(); ++k) {
      const Value v = node.outputs[k];
      if (!v) continue;
      if (v.id >= g_.value_count() || g_[v].node != id || g_[v].output != k)
        bad(node_text(id), ": output ", node.op->schema->output_name(k), " is not its own");
    }
    check_entry(node, node_text(id));
    for (const Attr& a : node.attrs)
      if (const auto* body = std::get_if<FunctionAttr>(&a.value)) {
        if (!*body) bad(node_text(id), ": attribute ", a.name, " is empty");
        Verifier(**body).run();
      }
    check_types(node, node_text(id));
  }

  void check_types(const NodeInfo& node, const std::string& who) const {
    if (!operands_typed(g_, node)) {
      if (node.op->meta()) return;
      for (Value v : node.outputs)
        if (v && g_.type(v).dtype != TENON_DTYPE_NONE)
          bad(who, ": has a type before its operands have theirs");
      return;
    }
    const size_t count = std::max(output_count(*node.op), node.outputs.size());
    const std::vector<Type> types = infer_types(g_, node, count);
    for (size_t k = 0; k < node.outputs.size(); ++k)
      if (node.outputs[k] && g_.type(node.outputs[k]) != types[k])
        bad(who, ": output ", node.op->schema->output_name(k), ": expected ", types[k].text(),
            ", got ", g_.type(node.outputs[k]).text());
  }

  void check_list(Space space, const std::vector<Value>& list) const {
    std::set<std::string_view> names;
    for (Value v : list) {
      if (v.id >= g_.value_count() || g_[v].space != space)
        bad("a named value is in the list of another space");
      if (g_[v].name.empty()) bad(value_text(v), ": its name is empty");
      if (!names.insert(g_[v].name).second) bad(value_text(v), ": its name is used twice");
      if (g_.find(space, g_[v].name) != v) bad(value_text(v), ": is not found by its name");
    }
  }

  void check_outputs() const {
    std::set<std::string_view> names;
    for (const Output& o : g_.outputs()) {
      if (o.name.empty() || !names.insert(o.name).second)
        bad("output '", o.name, "': name empty or used twice");
      if (o.value.id >= g_.value_count()) bad("output '", o.name, "' does not exist");
      if (is_blocks(g_.type(o.value).dtype))
        bad("output '", o.name, "': is ", g_.type(o.value).text());
    }
  }

  void check_updates() const {
    std::set<Value> targets;
    for (const Update& u : g_.updates()) {
      if (u.target.id >= g_.value_count() || u.value.id >= g_.value_count())
        bad("an update does not exist");
      const ValueInfo& t = g_[u.target];
      if (t.space != Space::weight && t.space != Space::state)
        bad("update of ", value_text(u.target), ": is neither a weight nor state");
      if (!targets.insert(u.target).second)
        bad("update of ", value_text(u.target), " stands twice");
      const Type& given = g_.type(u.value);
      if (given.dtype != TENON_DTYPE_NONE && given.shape.numeric() && given != t.type)
        bad("update of ", value_text(u.target), ": expected ", t.type.text(), ", got ",
            given.text());
    }
  }

  static void check_entry(const NodeInfo& node, const std::string& who);

  const Graph& g_;
};

// Checks number of operands and attributes against ops.def, in the form that Graph::add_node
// produces.
void Verifier::check_entry(const NodeInfo& node, const std::string& who) {
  size_t operand = 0, output = 0, attr = 0, list = 0;
  bool output_list = false;
  auto has = [](const std::vector<Value>& list, size_t k) { return k < list.size() && list[k]; };
  for (const OpPart& p : node.op->schema->parts()) {
    switch (p.kind) {
      case OpPart::Kind::operand:
        if (!has(node.operands, operand)) bad(who, ": operand ", p.name, " is missing");
        [[fallthrough]];
      case OpPart::Kind::optional_operand:
        ++operand;
        break;
      case OpPart::Kind::operand_list:
      case OpPart::Kind::optional_list:
        if (list == node.lists.size()) bad(who, ": the size of list ", p.name, " is missing");
        for (const size_t end = operand + node.lists[list++]; operand < end; ++operand)
          if (!has(node.operands, operand)) bad(who, ": an entry of list ", p.name, " is missing");
        break;
      case OpPart::Kind::output:
        if (!has(node.outputs, output)) bad(who, ": output ", p.name, " is missing");
        [[fallthrough]];
      case OpPart::Kind::optional_output:
        ++output;
        break;
      case OpPart::Kind::output_list:
        output_list = true;
        break;
      case OpPart::Kind::attr:
        if (attr < node.attrs.size() && node.attrs[attr].name == p.name) {
          if (node.attrs[attr].value.index() + 1 != p.attr_type)
            bad(who, ": attribute ", p.name, " has the wrong type");
          ++attr;
        }
        break;
      default:
        break;
    }
  }
  if (node.operands.size() > operand || list != node.lists.size())
    bad(who, ": has too many operands");
  if (node.outputs.size() > output && !output_list) bad(who, ": has too many outputs");
  if (attr != node.attrs.size())
    bad(who, ": attribute ", node.attrs[attr].name, " is unknown or out of order");
}

}  // namespace

void verify(const Graph& graph) { Verifier(graph).run(); }

}  // namespace tenon::core
