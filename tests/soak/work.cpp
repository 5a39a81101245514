// SPDX-License-Identifier: Apache-2.0
// The kinds of work that the soak repeats.
#include "work.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <stdexcept>

#include "cli/lm/checkpoint.hpp"
#include "cli/lm/model.hpp"

namespace tenon::soak {
namespace {

void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what + " is wrong");
}

const char* const kDevices[] = {"cpu:0", "template:0", "adversary:0"};

// ---- Runs: y = 3 x, and the sums of softmax rows, with a number of rows that changes

Graph rows_graph() {
  Graph g("rows");
  const int64_t n = g.symbol("n");
  const Value x = g.input("x", {f32, {n, 8}}), w = g.weight("w", {f32, {8, 8}});
  const Value h = g.add(op::matmul{.a = x, .b = w});
  g.output("sum", g.add(op::reduce{.kind = "sum", .axes = {1}, .x = g.add(op::softmax{.x = h})}));
  g.output("h", h);
  return g;
}
void set_rows_weight(Store& store) {
  std::vector<float> threes(64);
  for (size_t i = 0; i < 8; ++i) threes[9 * i] = 3;
  store.set(TENON_SPACE_WEIGHT, "w", {8, 8}, threes);
}
void run_rows(Context& context, int seed, bool async) {
  const int64_t rows = 1 + seed % 7;
  std::vector<float> x(static_cast<size_t>(rows * 8));
  for (size_t k = 0; k < x.size(); ++k)
    x[k] = static_cast<float>((seed + static_cast<int>(k)) % 13);
  context.set("x", {rows, 8}, x);
  if (async) {
    context.run_async();
    context.wait();
  } else {
    context.run();
  }
  const auto h = context.get<float>("h"), sum = context.get<float>("sum");
  require(h.size() == x.size() && sum.size() == static_cast<size_t>(rows), "a shape");
  for (size_t k = 0; k < x.size(); ++k) require(h[k] == 3 * x[k], "a product");
  for (const float s : sum) require(std::abs(s - 1) < 1e-5f, "a softmax");
}

// A context of its own on an executable that others run as well.
std::function<void()> runs(std::shared_ptr<Executable> executable, int seed) {
  auto context = std::make_shared<Context>(*executable);
  return [executable, context, i = seed]() mutable {
    run_rows(*context, i, i % 2);
    ++i;
  };
}

// ---- Compiles: a chain of another length and width each time

std::function<void()> compiles(const Runtime& runtime) {
  return [&runtime, i = 0]() mutable {
    const int64_t width = 1 + i % 37;
    Graph g("chain");
    Value v = g.input("x", {f32, {width}});
    for (int k = 0; k < i % 11; ++k)
      v = g.add(op::binary{.kind = "add", .a = v, .b = g.scalar(2.0f)});
    g.output("y", g.add(op::unary{.kind = "neg", .x = v}));
    Store store(runtime);
    const Executable executable(runtime, g, store, {.device = kDevices[i % 3]});
    Context context(executable);
    context.set("x", std::vector<float>(static_cast<size_t>(width), 5.0f));
    context.run();
    const auto y = context.get<float>("y");
    require(y == std::vector<float>(static_cast<size_t>(width),
                                    -5.0f - 2.0f * static_cast<float>(i % 11)),
            "a chain");
    ++i;
  };
}

// ---- Hosts: plugins loaded and shut down

void one_host() {
  const Runtime runtime(runtime_options());
  require(runtime.devices().size() >= 4, "the number of devices");
  Store store(runtime);
  set_rows_weight(store);
  for (const char* device : kDevices) {
    const Executable executable(runtime, rows_graph(), store, {.device = device});
    Context context(executable);
    run_rows(context, 4, true);
  }
}

// ---- Stores: saved and loaded

std::function<void()> stores(const Runtime& runtime, const std::string& file) {
  return [&runtime, file, i = 0]() mutable {
    Store store(runtime), again(runtime);
    std::vector<float> content(static_cast<size_t>(1 + i * 977 % 50'000));
    for (size_t k = 0; k < content.size(); ++k)
      content[k] = static_cast<float>(i) + static_cast<float>(k);
    store.set(TENON_SPACE_WEIGHT, "a", {static_cast<int64_t>(content.size())}, content);
    store.set<int64_t>(TENON_SPACE_WEIGHT, "b", {2}, {i, -i});
    store.save(TENON_SPACE_WEIGHT, file);
    again.load(TENON_SPACE_WEIGHT, file);
    require(again.get<float>(TENON_SPACE_WEIGHT, "a") == content, "a stored weight");
    require(again.get<int64_t>(TENON_SPACE_WEIGHT, "b") == std::vector<int64_t>{i, -i},
            "a stored weight");
    ++i;
  };
}

// ---- Resumes: a model is trained from a checkpoint to the next, each time from its files alone

constexpr int64_t kBatch = 2;
const lm::Config kModel{
    .vocab = 256, .dim = 16, .layers = 1, .heads = 2, .kv_heads = 1, .ffn = 24, .context = 8};

void first_weights(Store& store) {
  for (const lm::WeightSpec& w : lm::weight_specs(kModel)) {
    std::vector<float> values(static_cast<size_t>(TensorType(f32, w.dims).elements()), 1.0f);
    if (w.init == lm::WeightSpec::Init::normal) {
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<float>(w.scale * std::sin(static_cast<double>(i * i + 1)));
    }
    store.set(TENON_SPACE_WEIGHT, w.name, w.dims, values);
  }
}

float train_step(const Runtime& runtime, const Graph& graph, Store& store, int64_t step) {
  const Executable executable(runtime, graph, store, {.device = "cpu:0"});
  Context context(executable);
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < kBatch * (kModel.context + 1); ++i)
    tokens.push_back(static_cast<int32_t>((i * i + 7 * step) % 97));
  context.set("tokens", {kBatch, kModel.context + 1}, tokens);
  context.set("lr", 1e-2f);
  context.run();
  return context.get_scalar<float>("loss");
}

constexpr int64_t kSteps = 6;

std::function<void()> resumes(const Runtime& runtime, const std::string& folder) {
  auto graph = std::make_shared<Graph>(lm::train_graph(kModel, {.batch = kBatch}));
  std::vector<float> expected;
  {
    Store store(runtime);
    first_weights(store);
    store.add_missing(*graph);
    for (int64_t s = 0; s < kSteps; ++s) expected.push_back(train_step(runtime, *graph, store, s));
  }
  return [&runtime, folder, graph, expected, step = int64_t{0}]() mutable {
    Store store(runtime);
    lm::TrainingState state;
    state.total_steps = kSteps;
    state.batch = kBatch;
    if (step == 0) {
      first_weights(store);
      store.add_missing(*graph);
    } else {
      require(lm::load_model(folder, store).dim == kModel.dim, "the stored config");
      state = lm::load_training(folder, store);
      require(state.done_steps == step, "the stored step");
    }
    const float loss = train_step(runtime, *graph, store, step);
    require(loss == expected[static_cast<size_t>(step)], "a resumed loss");
    state.losses.emplace_back(step, loss);
    state.done_steps = ++step;
    if (step == kSteps) step = 0;
    lm::save_checkpoint(folder, kModel, state, store);
  };
}

// ---- Faults: calls of plugins fail, on a runtime of their own

std::function<void()> faults() {
  auto runtime = std::make_shared<Runtime>(runtime_options());
  return [runtime, i = uint64_t{0}]() mutable {
    const char* device = kDevices[i % 3];
    Store store(*runtime);
    set_rows_weight(store);
    runtime->set_fault(
        {.nth = 1 + i * 7 % 40,
         .code = i % 2 ? tenon_code{TENON_DEVICE_LOST} : tenon_code{TENON_OUT_OF_MEMORY}});
    try {
      const Executable executable(*runtime, rows_graph(), store, {.device = device});
      Context context(executable);
      for (int k = 0; k < 5; ++k) run_rows(context, k, k % 2);
    } catch (const Error& e) {
      require(std::string(e.what()).find("fault asked for") != std::string::npos, e.what());
    }
    runtime->lift_fault();
    const Executable executable(*runtime, rows_graph(), store, {.device = device});
    Context context(executable);
    run_rows(context, 3, false);
    ++i;
  };
}

}  // namespace

RuntimeOptions runtime_options() {
  return {.plugin_dirs = {TENON_TEST_PLUGINS}, .threads = 2, .use_environment = false};
}

std::vector<Work> all_work(const Runtime& runtime, const std::string& folder) {
  std::vector<Work> all;
  auto store = std::make_shared<Store>(runtime);
  set_rows_weight(*store);
  for (const char* device : kDevices) {
    auto executable = std::make_shared<Executable>(runtime, rows_graph(), *store,
                                                   ExecutableOptions{.device = device});
    for (int k = 0; k < 2; ++k)
      all.push_back({std::string("runs on ") + device, runs(executable, 3 * k)});
  }
  all.push_back({"compiles", compiles(runtime)});
  all.push_back({"loads of plugins", one_host});
  all.push_back({"stores saved and loaded", stores(runtime, folder + "/store.safetensors")});
  all.push_back({"resumes", resumes(runtime, folder + "/model")});
  all.push_back({"faults", faults()});
  return all;
}

}  // namespace tenon::soak
