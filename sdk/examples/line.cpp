// SPDX-License-Identifier: Apache-2.0
// The program of the main README: fits a line. A test compares the two.
#include <tenon/tenon.hpp>

int main() {
  tenon::Runtime runtime;                                  // loads the plugins
  tenon::Graph g("line");
  auto x = g.input("x", {tenon::f32, {4, 2}});
  auto t = g.input("t", {tenon::f32, {4, 1}});
  auto w = g.weight("w", {tenon::f32, {2, 1}});
  tenon::Value error = g.matmul(x, w) - t;
  tenon::Value loss = g.mean(g.square(error));
  g.output("loss", loss);
  g.minimize(loss, {.learning_rate = g.scalar(0.1f)});     // gradients, AdamW, updates: all in the graph

  tenon::Store store(runtime);                             // named weights and state
  store.set<float>(TENON_SPACE_WEIGHT, "w", {2, 1}, {0, 0});
  store.add_missing(g);                                    // the optimizer's moments
  tenon::Executable step(runtime, g, store);               // compiled for the best device
  tenon::Context run(step);                                // one run in flight
  run.set<float>("x", {4, 2}, {1, 0, 0, 1, 1, 1, 2, 1});
  run.set<float>("t", {4, 1}, {2, -1, 1, 3});
  for (int i = 0; i < 100; ++i) run.run();
  return run.get_scalar<float>("loss") < 0.5f ? 0 : 1;
}
