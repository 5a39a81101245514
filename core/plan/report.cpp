// SPDX-License-Identifier: Apache-2.0
// Converts notes and verdicts of nodes to a report.
#include "plan/report.hpp"

#include "ops/cost.hpp"
#include "ops/record.hpp"
#include "plan/rewrite/join.hpp"

namespace tenon::core {
namespace {

class Settler {
 public:
  explicit Settler(LegalGraph& legal) : legal_(legal), now_(legal.reports.size(), kNone) {}

  void run() {
    std::vector<bool> used(now_.size());
    for (NodeId n = 0; n < legal_.graph.node_count(); ++n)
      if (const uint32_t s = legal_.graph[n].source; s != kNone) used[s] = true;
    for (uint32_t s = 0; s < used.size(); ++s)
      if (!used[s] && legal_.reports[s].verdict != NodeVerdict::native) gone_.push_back(s);
    for (NodeId n = 0; n < legal_.graph.node_count(); ++n) settle(n);
    keep_gone(kNone);
    legal_.reports = std::move(reports_);
  }

 private:
  void settle(NodeId n) {
    const NodeInfo& node = legal_.graph[n];
    Marks marks = node;
    if (marks.source == kNone) {
      marks.source = static_cast<uint32_t>(reports_.size());
      reports_.push_back(report_of(legal_.graph, node));
    } else {
      marks.source = report_for(marks.source, node);
    }
    legal_.graph.set_marks(n, marks);
  }

  uint32_t report_for(uint32_t source, const NodeInfo& node) {
    if (now_[source] == kNone) {
      keep_gone(source);
      now_[source] = keep(source);
    }
    NodeReport& r = reports_[now_[source]];
    if (r.verdict == NodeVerdict::native) r.op = node.op->name(), r.note = node.note;
    append_note(r.note, node.note);
    return now_[source];
  }

  uint32_t keep(uint32_t source) {
    reports_.push_back(std::move(legal_.reports[source]));
    return static_cast<uint32_t>(reports_.size() - 1);
  }
  // Keeps the reports of removed nodes before this one.
  void keep_gone(uint32_t before) {
    for (; next_ < gone_.size() && gone_[next_] < before; ++next_) keep(gone_[next_]);
  }

  LegalGraph& legal_;
  std::vector<uint32_t> now_;   // old report -> new one
  std::vector<uint32_t> gone_;  // old reports to keep whose nodes are gone; ascending
  size_t next_ = 0;             // of gone_
  std::vector<NodeReport> reports_;
};

}  // namespace

std::string_view verdict_name(NodeVerdict v) {
  constexpr std::string_view names[] = {"native", "decomposed", "fallback", "refused"};
  return names[static_cast<size_t>(v)];
}

std::string node_name(const Graph& graph, const NodeInfo& node) {
  std::string name = node.provenance;
  for (Value v : node.outputs)
    if (name.empty() && v) name = graph[v].name.empty() ? cat("%", v.id) : graph[v].name;
  return name;
}

NodeReport report_of(const Graph& graph, const NodeInfo& node) {
  return {.name = node_name(graph, node),
          .provenance = node.provenance,
          .op = std::string(node.op->name()),
          .note = node.note,
          .flops = product_flops(graph, node),
          .device = node.device};
}

void settle_reports(LegalGraph& legal) { Settler(legal).run(); }

}  // namespace tenon::core
