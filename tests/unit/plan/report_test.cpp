// SPDX-License-Identifier: Apache-2.0
// Which nodes a report tells of when passes went over the legal graph.
#include "plan/report.hpp"

#include "ir/graphs.hpp"

using namespace tenon::core;

namespace {

NodeReport told(std::string name, NodeVerdict verdict, std::string note = "") {
  return {.name = name, .op = "old " + name, .verdict = verdict, .note = std::move(note)};
}

std::string shown(const LegalGraph& legal) {
  std::string text;
  for (const NodeReport& r : legal.reports)
    text += cat(text.empty() ? "" : " | ", r.name, ": ", r.op, " ", verdict_name(r.verdict),
                r.note.empty() ? "" : " (", r.note, r.note.empty() ? "" : ")");
  return text;
}

}  // namespace

TEST_SUITE("plan/report") {
  TEST_CASE("settle: joined nodes get reports, native ones that went into them lose theirs") {
    LegalGraph legal;
    legal.graph = graph_of(R"(graph { input x: f32[2] a = unary(x) {kind="exp"} @ "first"
      b = unary(a) {kind="neg"} @ "second" c = unary(b) {kind="log"} @ "third"
      d = unary(c) {kind="sin"} @ "fourth" output "d" = d })");
    legal.reports = {told("native-gone", NodeVerdict::native), told("kept", NodeVerdict::native),
                     told("lowered", NodeVerdict::decomposed, "as it was"),
                     told("lowered-gone", NodeVerdict::decomposed),
                     told("fallen", NodeVerdict::fallback)};
    const uint32_t sources[] = {1, 2, kNone, 2};
    for (NodeId n = 0; n < 4; ++n) {
      Marks marks;
      marks.source = sources[n];
      legal.graph.set_marks(n, marks);
    }
    legal.graph.set_note(0, "joined: something");
    legal.graph.set_note(1, "joined: its parts");
    legal.graph.set_note(2, "joined: of several");
    legal.graph.set_note(3, "joined: its parts");
    settle_reports(legal);
    CHECK(shown(legal) ==
          "kept: unary native (joined: something) | "
          "lowered: old lowered decomposed (as it was; joined: its parts) | "
          "third: unary native (joined: of several) | lowered-gone: old lowered-gone decomposed | "
          "fallen: old fallen fallback");
    const uint32_t expected[] = {0, 1, 2, 1};
    for (NodeId n = 0; n < 4; ++n) CHECK(legal.graph[n].source == expected[n]);
  }
}
