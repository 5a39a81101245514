// SPDX-License-Identifier: Apache-2.0
// Trains a model of an ONNX file. The program writes a small network for pictures to a file, reads the file with
// trainable weights, trains it with AdamW on pictures that it draws (discs, squares, triangles, crosses), measures it on
// others, and writes the trained model.
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

constexpr int64_t kSide = 16, kShapes = 4, kBatch = 32, kHeldOut = 256;
constexpr int kSteps = 300;

double uniform(std::mt19937& random, double low, double high) {
  return low + (high - low) * random() / 4294967296.0;
}
float normal(std::mt19937& random) {
  return static_cast<float>(std::sqrt(-2 * std::log(uniform(random, 1e-9, 1))) *
                            std::cos(2 * M_PI * uniform(random, 0, 1)));
}

// ---- pictures

struct Pictures {
  std::vector<float> pixels;    // [n, 1, kSide, kSide]
  std::vector<int64_t> shapes;  // [n]
};

// Is the point in the shape? The shape has a radius of 1 around the origin.
bool is_inside(int64_t shape, double x, double y) {
  switch (shape) {
    case 0:
      return x * x + y * y < 1;
    case 1:
      return std::max(std::abs(x), std::abs(y)) < 0.85;
    case 2:
      return y < 0.8 && y > 2 * std::abs(x) - 1;
    default:
      return std::max(std::abs(x), std::abs(y)) < 1 && std::min(std::abs(x), std::abs(y)) < 0.3;
  }
}

Pictures draw(std::mt19937& random, int64_t count) {
  Pictures out;
  for (int64_t i = 0; i < count; ++i) {
    const auto shape = static_cast<int64_t>(uniform(random, 0, kShapes));
    const double radius = uniform(random, 4, 6.5), left = uniform(random, radius, kSide - radius),
                 top = uniform(random, radius, kSide - radius), light = uniform(random, 0.7, 1.3);
    for (int64_t row = 0; row < kSide; ++row)
      for (int64_t column = 0; column < kSide; ++column) {
        const double x = (static_cast<double>(column) + 0.5 - left) / radius,
                     y = (static_cast<double>(row) + 0.5 - top) / radius;
        const double noise = 0.2 * normal(random);
        out.pixels.push_back(static_cast<float>((is_inside(shape, x, y) ? light : 0) + noise));
      }
    out.shapes.push_back(shape);
  }
  return out;
}

// ---- the model

// Writes the network with random weights. Its batch is a dim with a name.
void write_model(const tenon::Runtime& runtime, const std::string& path, std::mt19937& random) {
  tenon::Store store(runtime);
  tenon::Graph g("shapes");
  const auto weight = [&](const std::string& name, std::vector<int64_t> dims) {
    int64_t fan_in = 1;
    for (size_t k = 1; k < dims.size(); ++k) fan_in *= dims[k];
    tenon::Tensor content(tenon::TensorType(tenon::f32, dims));
    for (float& v : content.values<float>())
      v = dims.size() == 1 ? 0 : normal(random) * std::sqrt(2 / static_cast<float>(fan_in));
    store.set(TENON_SPACE_WEIGHT, name, content);
    return g.weight(name, {tenon::f32, std::move(dims)});
  };
  const Value x = g.input("picture", {tenon::f32, {g.symbol("batch"), 1, kSide, kSide}});
  Value h = g.conv(x, weight("conv1.weight", {8, 1, 3, 3}),
                   {.pads = {1, 1, 1, 1}, .act = "relu", .bias = weight("conv1.bias", {8})});
  h = g.maxpool2d(h, {.kernel = {2, 2}});
  h = g.conv(h, weight("conv2.weight", {16, 8, 3, 3}),
             {.pads = {1, 1, 1, 1}, .act = "relu", .bias = weight("conv2.bias", {16})});
  h = g.maxpool2d(h, {.kernel = {2, 2}});
  h = g.reshape(h, {.shape = {0, -1}});
  h = g.linear(h, weight("head.weight", {kShapes, 16 * kSide * kSide / 16}),
               {.trans_b = true, .bias = weight("head.bias", {kShapes})});
  g.output("scores", h);
  g.save_onnx(path, store);
}

// The model's only input and output, and the right answers.
struct Trained {
  tenon::Graph graph;
  Value scores{}, shapes{};

  Trained(const std::string& path, tenon::Store& store)
      : graph(tenon::Graph::import(path, store, {.trainable = {"conv*", "head.*"}})),
        scores(graph.outputs().at(0).second),
        shapes(graph.input("shapes", {tenon::i64, {graph.symbol("batch")}})) {}
};

void set_pictures(tenon::Context& run, const Pictures& p) {
  const auto n = static_cast<int64_t>(p.shapes.size());
  run.set("picture", {n, 1, kSide, kSide}, p.pixels);
  run.set("shapes", {n}, p.shapes);
}

}  // namespace

int main() try {
  const tenon::Runtime runtime;
  std::mt19937 random(7);
  const std::filesystem::path folder = std::filesystem::temp_directory_path() /
                                       ("tenon_finetune_" + std::to_string(std::random_device()()));
  std::filesystem::create_directories(folder);
  const std::string before = (folder / "shapes.onnx").string(),
                    after = (folder / "trained.onnx").string();
  write_model(runtime, before, random);

  // The store has one set of weights; both graphs use it.
  tenon::Store store(runtime);
  Trained train(before, store);
  tenon::Graph& g = train.graph;
  const Value loss = g.cross_entropy(train.scores, train.shapes);
  g.output("loss", loss);
  g.minimize(loss,
             {.kind = TENON_OPTIMIZER_ADAMW, .learning_rate = g.input("rate", {tenon::f32, {}})});
  store.add_missing(g);
  Trained test(before, store);
  test.graph.output("right",
                    test.graph.mean(test.graph.cast(
                        test.graph.eq(test.graph.argmax(test.scores), test.shapes), tenon::f32)));

  const tenon::Executable step(runtime, g, store), measure(runtime, test.graph, store);
  const Pictures held_out = draw(random, kHeldOut);
  const auto accuracy = [&] {
    tenon::Context run(measure);
    set_pictures(run, held_out);
    run.run();
    return run.get_scalar<float>("right");
  };
  const float guessed = accuracy();
  float first = 0, last = 0;
  tenon::Context run(step);
  for (int i = 0; i < kSteps; ++i) {
    set_pictures(run, draw(random, kBatch));
    run.set("rate", static_cast<float>(3e-3 * (1 - i / static_cast<double>(kSteps))));
    run.run();
    last = run.get_scalar<float>("loss");
    if (i == 0) first = last;
    if (i % 50 == 0) std::printf("step %3d  loss %.3f\n", i, static_cast<double>(last));
  }
  const float learned = accuracy();
  std::printf("loss %.3f -> %.3f\naccuracy on %d other pictures: %.3f -> %.3f\n",
              static_cast<double>(first), static_cast<double>(last), static_cast<int>(kHeldOut),
              static_cast<double>(guessed), static_cast<double>(learned));

  // The trained model, as other programs read it: its own output alone.
  g.save_onnx(after, store, {.outputs = {"scores"}});
  tenon::Store again(runtime);
  const Trained reread(after, again);
  const bool same = again.get<float>(TENON_SPACE_WEIGHT, "conv2.weight") ==
                    store.get<float>(TENON_SPACE_WEIGHT, "conv2.weight");
  std::printf("the file of the trained model has %s weights\n", same ? "the trained" : "other");
  std::filesystem::remove_all(folder);
  return last < 0.5f * first && learned > 0.9f && same ? 0 : 1;
} catch (const tenon::Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
