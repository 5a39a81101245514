// SPDX-License-Identifier: Apache-2.0
// The table of forms, and the walk that applies it. A later round sees what an earlier one made.
#include "plan/rewrite/raise.hpp"

#include <algorithm>
#include <span>

#include "ir/rewrite.hpp"
#include "ops/record.hpp"
#include "plan/rewrite/join.hpp"
#include "plan/rewrite/raise_match.hpp"

namespace tenon::core {
namespace {

struct Found {
  std::string_view form;
  Raised raised;
  std::vector<NodeId> nodes;
};

struct Row {
  std::string_view form;
  Form find;
};

// Each round tries its forms in their order at every node.
constexpr Row kFirst[] = {
    {"softmax", raise_softmax}, {"log softmax", raise_log_softmax}, {"gelu", raise_gelu},
    {"sigmoid", raise_sigmoid}, {"layer_norm", raise_layer_norm},   {"rms_norm", raise_rms_norm}};
constexpr Row kSecond[] = {{"silu", raise_silu},
                           {"scaled norm", raise_scaled_norm},
                           {"cross_entropy", raise_cross_entropy},
                           {"attention", raise_attention}};
constexpr Row kThird[] = {{"scaled norm", raise_scaled_norm},  // the offset, after the scale
                          {"attention layout", raise_attention_layout}};
constexpr std::span<const Row> kRounds[] = {kFirst, kSecond, kThird};

// The list in the header names exactly the forms of the rounds.
constexpr bool is_listed(std::string_view form) {
  return std::ranges::find(kRaiseForms, form) != std::end(kRaiseForms);
}
constexpr bool is_tried(std::string_view form) {
  return std::ranges::any_of(kRounds, [&](std::span<const Row> rows) {
    return std::ranges::any_of(rows, [&](const Row& row) { return row.form == form; });
  });
}
static_assert(std::ranges::all_of(kRaiseForms, is_tried));
static_assert(std::ranges::all_of(kRounds, [](std::span<const Row> rows) {
  return std::ranges::all_of(rows, is_listed, &Row::form);
}));

// The new nodes since `from` carry what the old ones were known by.
void label(Graph& to, NodeId from, const Graph& g, const Found& found) {
  const std::string note = joined_note(
      g, found.nodes, cat(kRaisedNote, found.form, ": ", parts_of(g, found.nodes).names));
  Marks marks = marks_of(g, found.nodes);
  marks.clone = g[found.nodes.back()].clone;
  for (NodeId n = from; n < to.node_count(); ++n) {
    to.set_marks(n, marks);
    to.set_note(n, note);
  }
}

Graph rewrite(const Graph& g, const std::unordered_map<NodeId, Found>& at,
              const std::vector<bool>& gone) {
  Rewriter rw(g);
  for (NodeId n = 0; n < g.node_count(); ++n) {
    const auto found = at.find(n);
    if (found == at.end()) {
      if (!gone[n]) rw.copy(n);
      continue;
    }
    const NodeId before = rw.to.node_count();
    Builder b(rw.to, g[n].provenance);
    for (NodeId part : found->second.nodes)
      if (b.provenance.empty()) b.provenance = g[part].provenance;
    const Value made = found->second.raised.build(b, rw.map(found->second.raised.operands));
    label(rw.to, before, g, found->second);
    rw.replace(g[n].outputs[0], made);
  }
  return rw.finish();
}

// Its nodes are free, on one device, and it reads nothing of itself.
bool can_stand(const Graph& g, const Found& found, const std::vector<bool>& gone) {
  for (NodeId part : found.nodes)
    if (gone[part] || g[part].device != g[found.nodes[0]].device) return false;
  for (Value v : found.raised.operands)
    if (v && g[v].space == Space::node &&
        std::binary_search(found.nodes.begin(), found.nodes.end(), g[v].node))
      return false;
  return true;
}

// One round; nothing when it found nothing. Says at a node why it was left as it is.
std::optional<Graph> raise_once(Graph& g, std::span<const Row> rows) {
  Matcher m(g);
  std::unordered_map<NodeId, Found> at;
  std::vector<bool> gone(g.node_count());
  // Larger matches end later: from the end, so that a part does not hide the whole.
  for (NodeId n = g.node_count(); n-- > 0;) {
    if (gone[n] || g[n].outputs.size() != 1 || !g[n].outputs[0]) continue;
    for (const Row& row : rows) {
      m.begin(n);
      auto raised = row.find(m, g[n].outputs[0]);
      if (!raised) continue;
      Found found{row.form, std::move(*raised), m.nodes()};
      if (!can_stand(g, found, gone)) continue;
      if (!m.closed()) {
        if (g[n].note.empty())
          g.set_note(n,
                     cat("not raised to ", row.form, ": a value in between is read by others too"));
        continue;
      }
      for (NodeId part : found.nodes) gone[part] = true;
      at.emplace(n, std::move(found));
      break;
    }
  }
  if (at.empty()) return {};
  return rewrite(g, at, gone);
}

}  // namespace

Graph raise(Graph g) {
  for (const std::span<const Row> rows : kRounds)
    if (auto raised = raise_once(g, rows)) g = std::move(*raised);
  return g;
}

}  // namespace tenon::core
