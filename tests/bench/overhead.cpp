// SPDX-License-Identifier: Apache-2.0
// What one run costs beside its kernels: a graph of one node over 4 elements, and one of 100 small
// products with weights that the device may keep in a layout of its own; run and run_async with
// wait, less the same region called through the plugin's own slot. Prints medians; a test runs it
// only to see that it works, for times are no test.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "exec/context.hpp"
#include "ops/build.hpp"

using namespace tenon::core;
using Clock = std::chrono::steady_clock;

namespace {

// The bodies by turns, so that all meet the same machine.
std::vector<double> medians_us(int count, const std::vector<std::function<void()>>& bodies) {
  std::vector<std::vector<double>> times(bodies.size());
  for (int i = -count / 10 - 1; i < count; ++i)
    for (size_t b = 0; b < bodies.size(); ++b) {
      const auto start = Clock::now();
      bodies[b]();
      const std::chrono::duration<double, std::micro> took = Clock::now() - start;
      if (i >= 0) times[b].push_back(took.count());
    }
  std::vector<double> medians;
  for (std::vector<double>& t : times) {
    std::nth_element(t.begin(), t.begin() + count / 2, t.end());
    medians.push_back(t[static_cast<size_t>(count / 2)]);
  }
  return medians;
}

Graph one_node() {
  Graph g;
  const Type type{kF32, {4}};
  Builder b(g);
  const Value x = g.input("x", type);
  g.output("y", b.plus(x, x));
  return g;
}

constexpr int kProducts = 100, kRows = 8, kWidth = 64;

std::string weight_name(int k) { return "w" + std::to_string(k); }

Graph products() {
  Graph g;
  Builder b(g);
  const Type square{kF32, {kWidth, kWidth}};
  Value y = g.input("x", {kF32, {kRows, kWidth}});
  for (int k = 0; k < kProducts; ++k) y = b.matmul(y, g.weight(weight_name(k), square, false));
  g.output("y", y);
  return g;
}

// Each keeps the first element of a row.
void set_weights(Store& store) {
  std::vector<float> w(kWidth * kWidth);
  w[0] = 1;
  for (int k = 0; k < kProducts; ++k)
    store.set(Space::weight, weight_name(k), {kF32, {kWidth, kWidth}}, std::as_bytes(std::span(w)));
}

// The kernels through the plugin's slot alone.
std::shared_ptr<Instance> kernels(Device& device, const Plan& plan) {
  const auto& program = plan.regions.at(0).program;
  Binding binding;
  const auto zeros = [&](uint64_t size) {
    const auto buffer = device.buffer(std::max<uint64_t>(size, 1));
    const std::vector<std::byte> content(buffer->size());
    buffer->write(0, content.data(), content.size());
    return Slot{buffer, 0};
  };
  for (const auto& value : program->values()) binding.values.push_back(zeros(value.size));
  for (const auto& step : program->steps()) binding.scratch.push_back(zeros(step.scratch));
  return device.instantiate(program, binding);
}

// Is the first element of y as expected?
bool measure(const std::shared_ptr<Runtime>& runtime, const ExecutableOptions& options,
             const char* what, Graph graph, std::vector<float> x, float expected, int count) {
  const auto store = std::make_shared<Store>();
  set_weights(*store);
  const auto executable = std::make_shared<Executable>(runtime, std::move(graph), store, options);
  Context context(executable);
  context.set("x", executable->graph().type(executable->graph().inputs()[0]),
              std::as_bytes(std::span(x)));
  const auto bound = executable->plan_for({});
  const auto alone = kernels(*bound->plan.devices[0], bound->plan);
  const auto async = [&] {
    context.run_async();
    context.wait();
  };
  const std::vector<double> us =
      medians_us(count, {[&] { alone->run(1); }, [&] { context.run(); }, async});
  std::vector<float> y(x.size());
  context.get("y", y.data(), y.size() * sizeof(float));
  std::printf("%s on %s, medians\n", what, bound->plan.devices[0]->info().id.c_str());
  std::printf("  kernels through their slot %8.2f us\n", us[0]);
  std::printf("  run                        %8.2f us   over the kernels %8.2f us\n", us[1],
              us[1] - us[0]);
  std::printf("  run_async and wait         %8.2f us   over the kernels %8.2f us\n", us[2],
              us[2] - us[0]);
  return y[0] == expected;
}

int measure_all(const char* plugin, int count, const ExecutableOptions& how) {
  Host::Options options;
  options.plugin_files = {plugin};
  options.use_builtin_dir = options.use_environment = false;
  const auto runtime = std::make_shared<Runtime>(options);
  std::vector<float> x(kRows * kWidth, 0.0f);
  x[0] = 3;
  const bool one = measure(runtime, how, "one node", one_node(), {1, 2, 3, 4}, 2, count);
  const bool many = measure(runtime, how, "100 products", products(), x, 3, count / 10);
  return one && many ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s PLUGIN_FILE [RUNS [stream|graph]]\n", argv[0]);
    return 2;
  }
  ExecutableOptions options;
  if (argc > 3)
    options.plan.exec_mode = argv[3] == std::string("graph") ? TENON_EXEC_GRAPH : TENON_EXEC_STREAM;
  try {
    return measure_all(argv[1], argc > 2 ? std::max(std::atoi(argv[2]), 10) : 20000, options);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
