// SPDX-License-Identifier: Apache-2.0
// A host app in C++20: builds a graph, trains a few steps, reads outputs, and meets an error.
#include <cstdio>

#include <tenon/tenon.hpp>

int main() try {
  tenon::Runtime runtime;
  tenon::Graph g("line");
  const auto x = g.input("x", {tenon::f32, {4, 2}});
  const auto t = g.input("t", {tenon::f32, {4, 1}});
  const auto w = g.weight("w", {tenon::f32, {2, 1}});
  const tenon::Value y = g.add(tenon::op::matmul{.a = x, .b = w});
  const tenon::Value d = g.add(tenon::op::binary{.kind = "sub", .a = y, .b = t});
  const tenon::Value loss = g.add(
      tenon::op::reduce{.kind = "mean", .x = g.add(tenon::op::unary{.kind = "square", .x = d})});
  g.output("loss", loss);
  g.output("y", y);
  g.minimize(loss, {.learning_rate = g.input("lr", {tenon::f32, {}}), .weight_decay = 0});

  tenon::Store store(runtime);
  store.set<float>(TENON_SPACE_WEIGHT, "w", {2, 1}, {0, 0});
  store.add_missing(g);
  const tenon::Executable step(runtime, g, store);
  tenon::Context run(step);
  run.set<float>("x", {4, 2}, {1, 0, 0, 1, 1, 1, 2, 1});
  run.set<float>("t", {4, 1}, {2, -1, 1, 3});
  run.set("lr", 0.05f);
  for (int i = 0; i < 500; ++i) run.run();
  const auto weights = store.get<float>(TENON_SPACE_WEIGHT, "w");
  std::printf("host.cpp: loss %g, w = %g %g\n", run.get_scalar<float>("loss"), weights[0],
              weights[1]);
  const bool learned = run.get_scalar<float>("loss") < 1e-3f && run.get<float>("y").size() == 4;

  try {
    run.set<float>("x", {3, 2}, {1, 2, 3, 4, 5, 6});
    return 1;
  } catch (const tenon::Error& e) {
    const std::string text = e.what();
    std::printf("host.cpp: as expected: %s\n", e.what());
    return learned && e.code() == TENON_SHAPE_MISMATCH && text.find("'x'") != std::string::npos ? 0
                                                                                                : 1;
  }
} catch (const std::exception& e) {
  std::fprintf(stderr, "host.cpp: %s\n", e.what());
  return 1;
}
