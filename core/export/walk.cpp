// SPDX-License-Identifier: Apache-2.0
// Writes each node by its rule, or else its decomposition.
#include "export/walk.hpp"

#include <algorithm>
#include <optional>

#include "ir/rewrite.hpp"
#include "ops/control.hpp"
#include "ops/lower.hpp"

namespace tenon::core::onnx {

// ---- Call

Ref Call::in(Value v) const {
  if (!v) return {};
  Ref& r = view_.refs[v.id];
  if (!r) {
    const core::ValueInfo& info = view_.graph[v];
    check(info.space == Space::constant, "export: value ", v.id, " is read before it is written");
    r = e.constant(info.type, info.data, info.name);
  }
  return r;
}

int64_t Call::dim(Value v, int axis) const {
  const int64_t d = view_.graph.type(v).shape[axis];
  return view_.other && view_.other->type(v).shape[axis] != d ? -1 : d;
}

bool Call::is_known(Value v) const {
  return !view_.other || view_.other->type(v).shape == view_.graph.type(v).shape;
}

Ints Call::dims(Value v, std::string_view operand) const {
  if (!is_known(v)) refuse("the dims of ", operand, " are known only when the model runs");
  const Shape& s = view_.graph.type(v).shape;
  return {s.begin(), s.end()};
}

Ref Call::length(Value v, int axis) const { return lengths(v, axis, axis + 1); }

Ref Call::lengths(Value v, int first, int last) const {
  Ints known;
  for (int k = first; k < last && dim(v, k) >= 0; ++k) known.push_back(dim(v, k));
  if (known.size() == static_cast<size_t>(last - first)) return e.ints(known);
  return e.add("Shape", {in(v)}, {attribute("start", first), attribute("end", last)});
}

void Call::out(size_t k, const Ref& r) const {
  if (!wants(k)) return;
  const Value v = node.outputs[k];
  check(r.dtype == dtype(v), "export: ", node.op->name(), " gives output ", k, " as ",
        dtype_name(r.dtype), ", expected ", dtype_name(dtype(v)));
  view_.refs[v.id] = r;
}

const ExportRule* find_export_rule(std::string_view op) {
  static const auto table = [] {
    std::map<std::string_view, const ExportRule*> rules;
#define TENON_EXPORT_ADD(family) \
  for (const ExportRule& r : family##_export_rules()) rules[r.op] = &r;
    TENON_EXPORT_RULES(TENON_EXPORT_ADD)
#undef TENON_EXPORT_ADD
    return rules;
  }();
  const auto at = table.find(op);
  return at == table.end() ? nullptr : at->second;
}

// ---- Walk

namespace {

// A node alone, in a graph: its decomposition over inputs of the operands' types.
struct Piece {
  core::Graph graph{};
  std::vector<Value> results{};
};

std::optional<Piece> lowered(const core::Graph& graph, const NodeInfo& node) {
  Piece piece;
  NodeInfo now = node;
  for (size_t k = 0; k < now.operands.size(); ++k) {
    Value& v = now.operands[k];
    if (v) v = piece.graph.input(cat("x", k), graph.type(v));
  }
  Builder b(piece.graph, node.provenance);
  if (!lower_into(b, now, piece.results)) return {};
  return piece;
}

// Are these the same nodes, whatever the sizes of their values are?
bool has_same_form(const core::Graph& a, const core::Graph& b) {
  if (a.node_count() != b.node_count() || a.value_count() != b.value_count()) return false;
  for (uint32_t k = 0; k < a.value_count(); ++k) {
    const core::ValueInfo &p = a[Value{k}], &q = b[Value{k}];
    if (p.space != q.space) return false;
    if (p.space == Space::constant && (p.type != q.type || *p.data != *q.data)) return false;
  }
  for (NodeId n = 0; n < a.node_count(); ++n) {
    const NodeInfo &p = a[n], &q = b[n];
    if (p.op != q.op || p.operands != q.operands || p.lists != q.lists || p.outputs != q.outputs)
      return false;
    if (!std::ranges::equal(p.attrs, q.attrs, [](const Attr& x, const Attr& y) {
          return x.name == y.name && x.value == y.value;
        }))
      return false;
  }
  return true;
}

}  // namespace

void Walk::write_node(View& view, NodeId id) {
  const NodeInfo& node = view.graph[id];
  const size_t mark = emitter.nodes.size();
  std::string reason;
  if (node.op->domain == "tenon")
    if (const ExportRule* rule = find_export_rule(node.op->name())) {
      try {
        Call call(*this, emitter, view, node);
        rule->write(call);
        return;
      } catch (const NoForm& e) {
        reason = e.reason;
        emitter.nodes.resize(mark);
      }
    }
  if (node.op->meta()) throw NoForm{cat("it needs numbers for the symbols of the graph")};
  const std::string only = reason.empty() ? "ONNX has no op for it" : reason;
  std::optional<Piece> piece = lowered(view.graph, node);
  if (!piece) throw NoForm{only};
  std::optional<Piece> other;
  if (view.other) {
    try {
      other = lowered(*view.other, (*view.other)[id]);
    } catch (const Error&) {  // its parts have too many elements for these numbers
    }
    if (!other || !has_same_form(piece->graph, other->graph))
      throw NoForm{cat(only, ", and its decomposition depends on sizes that only the run knows")};
  }
  View inner{piece->graph, other ? &other->graph : nullptr,
             std::vector<Ref>(piece->graph.value_count())};
  Call call(*this, emitter, view, node);
  size_t next = 0;
  for (Value v : node.operands)
    if (v) inner.refs[piece->graph.inputs()[next++].id] = call.in(v);
  std::vector<Value> wanted = piece->results;
  std::erase_if(wanted, [](Value v) { return !v; });
  try {
    write_needed(inner, wanted);
  } catch (const NoForm& e) {
    throw NoForm{reason.empty() ? e.reason : cat(reason, "; ", e.reason)};
  }
  Call inside(*this, emitter, inner, node);
  for (size_t k = 0; k < piece->results.size(); ++k)
    if (call.wants(k)) call.out(k, inside.in(piece->results[k]));
}

void Walk::write_needed(View& view, std::span<const Value> results) {
  const std::vector<bool> needed = needed_for(view.graph, results);
  for (NodeId n = 0; n < view.graph.node_count(); ++n) {
    const NodeInfo& node = view.graph[n];
    if (std::ranges::none_of(node.outputs, [&](Value v) { return v && needed[v.id]; })) continue;
    try {
      write_node(view, n);
    } catch (const NoForm& e) {
      throw NoForm{cat("needs ", node.op->name(), ": ", e.reason)};
    }
  }
}

std::vector<Ref> write_function(Call& c, const FunctionAttr& function,
                                const std::vector<Type>& types, const std::vector<Type>& others,
                                const std::vector<Ref>& operands) {
  const FunctionAttr bound = bound_function(function, types);
  const FunctionAttr other = c.other() ? bound_function(function, others) : nullptr;
  View view{*bound, other.get(), std::vector<Ref>(bound->value_count())};
  for (size_t k = 0; k < operands.size(); ++k) view.refs[bound->inputs()[k].id] = operands[k];
  std::vector<Value> results;
  for (const Output& o : bound->outputs()) results.push_back(o.value);
  c.walk.write_needed(view, results);
  Call inside(c.walk, c.e, view, c.node);
  std::vector<Ref> out;
  for (Value v : results) out.push_back(inside.in(v));
  return out;
}

}  // namespace tenon::core::onnx
