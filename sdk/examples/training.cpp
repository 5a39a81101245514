// SPDX-License-Identifier: Apache-2.0
// A training loop of your own. The update rule (momentum) is written in ops; the host draws batches and sets the
// learning rate; a second executable measures on the same weights; the weights are saved and loaded.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include <tenon/tenon.hpp>

namespace {

using tenon::Value;

constexpr int64_t kWidth = 32, kArms = 3;
constexpr int kSteps = 600;

struct Batch {
  std::vector<float> points;  // [n, 2]
  std::vector<int64_t> arms;  // [n]
};

double uniform(std::mt19937& random) { return random() / 4294967296.0; }

// Points on three arms of a spiral.
Batch draw(std::mt19937& random, int64_t n) {
  Batch b;
  for (int64_t i = 0; i < n; ++i) {
    const auto arm = static_cast<int64_t>(uniform(random) * kArms);
    const double radius = 0.2 + 0.8 * uniform(random);
    const double angle = 4 * radius + 2 * M_PI * static_cast<double>(arm) / kArms + 0.15 * uniform(random);
    b.points.push_back(static_cast<float>(radius * std::cos(angle)));
    b.points.push_back(static_cast<float>(radius * std::sin(angle)));
    b.arms.push_back(arm);
  }
  return b;
}

// Two layers. Both graphs call this, so both name the same weights of the store.
struct Model {
  std::vector<std::pair<std::string, Value>> weights{};
  Value logits{};

  Model(tenon::Graph& g, Value points) {
    const Value w1 = weight(g, "w1", {2, kWidth}), b1 = weight(g, "b1", {kWidth});
    const Value w2 = weight(g, "w2", {kWidth, kWidth}), b2 = weight(g, "b2", {kWidth});
    const Value w3 = weight(g, "w3", {kWidth, kArms}), b3 = weight(g, "b3", {kArms});
    const Value h1 = g.linear(points, w1, {.act = "tanh", .bias = b1});
    const Value h2 = g.linear(h1, w2, {.act = "tanh", .bias = b2});
    logits = g.linear(h2, w3, {.bias = b3});
  }

 private:
  Value weight(tenon::Graph& g, const std::string& name, std::vector<int64_t> dims) {
    const Value v = g.weight(name, {tenon::f32, std::move(dims)});
    weights.emplace_back(name, v);
    return v;
  }
};

// n is a symbol: the batch may have another size in each run.
tenon::Graph training_graph() {
  tenon::Graph g("train");
  const int64_t n = g.symbol("n");
  const Value points = g.input("points", {tenon::f32, {n, 2}}), arms = g.input("arms", {tenon::i64, {n}});
  const Value rate = g.input("rate", {tenon::f32, {}});
  const Model model(g, points);
  const Value loss = g.cross_entropy(model.logits, arms);
  g.output("loss", loss);

  std::vector<Value> wrt;
  for (const auto& [name, w] : model.weights) wrt.push_back(w);
  const std::vector<Value> gradients = g.gradients(loss, wrt);
  for (size_t k = 0; k < wrt.size(); ++k) {
    const auto& [name, w] = model.weights[k];
    const Value speed = g.state(name + ".speed", g.type(w));
    const Value next = 0.9 * speed + gradients[k];
    g.update(speed, next);
    g.update(w, w - rate * next);
  }
  return g;
}

// The share of points whose arm was found.
tenon::Graph evaluation_graph() {
  tenon::Graph g("evaluate");
  const int64_t n = g.symbol("n");
  const Value points = g.input("points", {tenon::f32, {n, 2}}), arms = g.input("arms", {tenon::i64, {n}});
  const Value guess = g.argmax(Model(g, points).logits);
  g.output("right", g.mean(g.cast(g.eq(guess, arms), tenon::f32)));
  return g;
}

void set_batch(tenon::Context& run, const Batch& b) {
  const auto n = static_cast<int64_t>(b.arms.size());
  run.set("points", {n, 2}, b.points);
  run.set("arms", {n}, b.arms);
}

float measure(const tenon::Executable& evaluate, const Batch& b) {
  tenon::Context run(evaluate);
  set_batch(run, b);
  run.run();
  return run.get_scalar<float>("right");
}

}  // namespace

int main() try {
  const tenon::Runtime runtime;
  const tenon::Graph train = training_graph(), test = evaluation_graph();
  std::mt19937 random(1);

  tenon::Store store(runtime);
  for (const auto& w : train.named(TENON_SPACE_WEIGHT)) {
    const tenon::TensorType type = train.type(w.value);
    const double bound = type.dims.size() == 1 ? 0 : std::sqrt(6.0 / static_cast<double>(type.dims[0] + type.dims[1]));
    std::vector<float> content(static_cast<size_t>(type.elements()));
    for (float& x : content) x = static_cast<float>(bound * (2 * uniform(random) - 1));
    store.set(TENON_SPACE_WEIGHT, w.name, type.dims, content);
  }
  store.add_missing(train);  // the speeds, all zero

  const tenon::Executable step(runtime, train, store), evaluate(runtime, test, store);
  const Batch held_out = draw(random, 500);
  tenon::Context run(step);
  for (int k = 0; k < kSteps; ++k) {
    set_batch(run, draw(random, 64));
    run.set("rate", static_cast<float>(0.1 * (1 + std::cos(M_PI * k / kSteps)) / 2));
    run.run();
    if ((k + 1) % 150 == 0)
      std::printf("step %d: loss %.4f, held-out accuracy %.3f\n", k + 1, run.get_scalar<float>("loss"),
                  measure(evaluate, held_out));
  }
  const float accuracy = measure(evaluate, held_out);

  const std::filesystem::path file = std::filesystem::temp_directory_path() /
                                     ("tenon-arms-" + std::to_string(std::random_device{}()) + ".safetensors");
  store.save(TENON_SPACE_WEIGHT, file.string());
  tenon::Store loaded(runtime);
  loaded.load(TENON_SPACE_WEIGHT, file.string());
  const float again = measure(tenon::Executable(runtime, test, loaded), held_out);
  std::filesystem::remove(file);
  return accuracy > 0.95f && again == accuracy ? 0 : 1;
} catch (const std::exception& e) {
  std::fprintf(stderr, "training: %s\n", e.what());
  return 1;
}
