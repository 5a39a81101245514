// SPDX-License-Identifier: Apache-2.0
// An app that adds an op of its own and trains through it: softcap.hpp has the op. No plugin has a kernel for it, so
// tenon writes it in its own ops.
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include <tenon/tenon.hpp>

#include "softcap.hpp"

namespace {

using tenon::Value;

constexpr int64_t kRows = 64, kWidth = 8;
constexpr double kCap = 2;

// The loss of y = softcap(points · w) against what another w gives, and a training step.
tenon::Graph training_graph() {
  tenon::Graph g("own op");
  const Value points = g.input("points", {tenon::f32, {kRows, kWidth}});
  const Value wanted = g.input("wanted", {tenon::f32, {kRows, 1}});
  const Value rate = g.input("rate", {tenon::f32, {}});
  const Value w = g.weight("w", {tenon::f32, {kWidth, 1}});
  const Value y = g.add(my::softcap{.cap = kCap, .x = g.matmul(points, w)}, "cap");
  const Value loss = g.mean(g.square(y - wanted));
  g.output("loss", loss);
  g.minimize(loss, {.learning_rate = rate, .weight_decay = 0});
  return g;
}

}  // namespace

int main() try {
  tenon::register_op(tenon::op_desc<my::softcap, my::kSoftcap>());

  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> points(kRows * kWidth), wanted(kRows), w(kWidth), hidden(kWidth);
  for (float& x : points) x = normal(random);
  for (float& x : hidden) x = normal(random);
  for (int64_t i = 0; i < kRows; ++i) {
    double sum = 0;
    for (int64_t k = 0; k < kWidth; ++k) sum += points[i * kWidth + k] * hidden[k];
    wanted[i] = static_cast<float>(kCap * std::tanh(sum / kCap));
  }

  const tenon::Runtime runtime;
  const tenon::Graph graph = training_graph();
  tenon::Store store(runtime);
  store.set(TENON_SPACE_WEIGHT, "w", {kWidth, 1}, w);  // zeros
  store.add_missing(graph);
  const tenon::Executable train(runtime, graph, store);
  tenon::Context run(train);
  run.set("points", {kRows, kWidth}, points);
  run.set("wanted", {kRows, 1}, wanted);
  run.set("rate", 0.05f);
  float loss = 0;
  for (int step = 1; step <= 400; ++step) {
    run.run();
    loss = run.get_scalar<float>("loss");
    if (step == 1 || step % 100 == 0) std::printf("step %d: loss %.6f\n", step, loss);
  }

  // The text of a graph names the op with its domain, and reads back.
  const std::string text = graph.print();
  const bool same =
      text.find("my:softcap(") != std::string::npos && tenon::Graph::parse(text).print() == text;
  return loss < 1e-4f && same ? 0 : 1;
} catch (const std::exception& e) {
  std::fprintf(stderr, "own_op: %s\n", e.what());
  return 1;
}
