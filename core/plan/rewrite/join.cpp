// SPDX-License-Identifier: Apache-2.0
// Asks the device about a joined node, and puts it in the place of its parts.
#include "plan/rewrite/join.hpp"

#include <algorithm>
#include <unordered_map>

#include "ir/rewrite.hpp"
#include "ops/fused.hpp"
#include "ops/record.hpp"
#include "plan/rewrite/key.hpp"

namespace tenon::core {

Parts parts_of(const Graph& g, std::span<const NodeId> nodes) {
  Parts parts;
  for (NodeId n : nodes) {
    parts.names += cat(parts.names.empty() ? "" : " + ", g[n].op->name());
    if (const AttrValue* kind = g[n].attr("kind"))
      parts.names += cat(" ", std::get<std::string>(*kind));
    if (parts.provenance.empty()) parts.provenance = g[n].provenance;
  }
  return parts;
}

std::string joined_note(const Graph& g, std::span<const NodeId> nodes, const std::string& note) {
  constexpr std::string_view kBetween = "; ";
  std::string notes;
  for (NodeId n : nodes) {
    std::string_view left = g[n].note;
    while (!left.empty()) {
      const std::string_view one = left.substr(0, left.find(kBetween));
      left.remove_prefix(std::min(left.size(), one.size() + kBetween.size()));
      if (one.starts_with(kRaisedNote) || one.starts_with(kHalfNote))
        append_note(notes, std::string(one));
    }
  }
  append_note(notes, note);
  return notes;
}

Marks marks_of(const Graph& g, std::span<const NodeId> nodes) {
  Marks marks = g[nodes[0]];
  marks.recompute = segment_of(g, nodes);
  for (NodeId n : nodes) {
    if (g[n].source != marks.source) marks.source = kNone;
    marks.pinned |= g[n].pinned;
  }
  return marks;
}

void append_note(std::string& notes, const std::string& note) {
  if (note.empty() || cat("; ", notes, "; ").find(cat("; ", note, "; ")) != std::string::npos)
    return;
  notes = notes.empty() ? note : cat(notes, "; ", note);
}

void add_note(Graph& g, NodeId n, const std::string& note) {
  std::string notes = g[n].note;
  append_note(notes, note);
  g.set_note(n, std::move(notes));
}

bool is_number(const Graph& g, Value v) {
  return g[v].space == Space::constant && g.type(v).shape.elements() == 1 &&
         tenon_dtype_bits(g.type(v).dtype) >= 8;
}

StepsOf steps_of(const Graph& g, std::span<const NodeId> nodes, std::span<const Value> outputs) {
  const auto body = std::make_shared<Graph>();
  StepsOf out{body, {}};
  std::unordered_map<uint32_t, Value> now, rounded;
  const auto read = [&](Value v) -> Value {
    if (!v) return {};
    Value& in = now[v.id];
    if (!in && is_number(g, v)) in = body->constant(g.type(v), g[v].data);
    if (!in) {
      in = body->input(std::to_string(out.inputs.size()), g.type(v));
      out.inputs.push_back(v);
    }
    if ((*body)[in].space != Space::node) return in;
    Value& r = rounded[v.id];
    return r ? r : r = rounded_step(*body, in);
  };
  std::unordered_map<std::string, Value> made;
  for (NodeId n : nodes) {
    const Value y = g[n].outputs[0];
    std::vector<Value> operands;
    for (Value v : g[n].operands) operands.push_back(read(v));
    std::string key;
    append_key(key, g[n].op);
    for (Value v : operands) append_key(key, v.id);
    for (const Attr& a : g[n].attrs) append_key(key, a);
    const auto same = made.find(key);
    if (same != made.end() && std::ranges::find(outputs, y) == outputs.end()) {
      now[y.id] = same->second;
      continue;
    }
    const NodeId step =
        body->add_node(*g[n].op, {std::move(operands), g[n].lists}, g[n].attrs, {true});
    made[std::move(key)] = now[y.id] = (*body)[step].outputs[0];
  }
  for (Value v : outputs) body->output(std::to_string(body->outputs().size()), now[v.id]);
  return out;
}

}  // namespace tenon::core
