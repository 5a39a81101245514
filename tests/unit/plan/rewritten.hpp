// SPDX-License-Identifier: Apache-2.0
// What tests of passes that join nodes share: a device's answer, and a rewritten graph that must be
// as good as the one it came from.
#pragma once

#include <doctest/doctest.h>

#include <functional>
#include <string_view>
#include <vector>

#include "ir/graphs.hpp"
#include "ir/verify.hpp"
#include "plan/rewrite/claims.hpp"

namespace tenon::core {

// Of a device that claims every node, or none. asked counts the queries.
inline Query answering(bool native, int* asked = nullptr) {
  return [=](const Graph& graph, uint32_t) {
    if (asked) ++*asked;
    CHECK(graph.node_count() == 1);
    Verdict v;
    v.native = native;
    if (!native) v.reason = TENON_REASON_OP, v.text = "not this one";
    return std::vector<Verdict>{v};
  };
}

// The pass's graph of these statements: it verifies, and outputs and updates are as they were.
inline Graph rewritten(std::string_view statements,
                       const std::function<Graph(const Graph&)>& pass) {
  const Graph g = graph_of(cat("graph { ", statements, " }"));
  Graph r = pass(g);
  CHECK_NOTHROW(verify(r));
  REQUIRE(r.outputs().size() == g.outputs().size());
  for (size_t k = 0; k < g.outputs().size(); ++k)
    CHECK(r.type(r.outputs()[k].value) == g.type(g.outputs()[k].value));
  REQUIRE(r.updates().size() == g.updates().size());
  return r;
}

}  // namespace tenon::core
