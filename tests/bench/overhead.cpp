// SPDX-License-Identifier: Apache-2.0
// What one run costs beside its kernel: a graph of one node over 4 elements, run and run_async with
// wait, less the same node called through the plugin's own slot. Prints medians; a test runs it
// only to see that it works, for times are no test.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "exec/context.hpp"
#include "ops/build.hpp"

using namespace tenon::core;
using Clock = std::chrono::steady_clock;

namespace {

double median_us(int count, const auto& body) {
  for (int i = 0; i < count / 10 + 1; ++i) body();
  std::vector<double> times;
  times.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    const auto start = Clock::now();
    body();
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  std::nth_element(times.begin(), times.begin() + count / 2, times.end());
  return times[static_cast<size_t>(count / 2)];
}

Graph one_node() {
  Graph g;
  const Type type{kF32, {4}};
  Builder b(g);
  const Value x = g.input("x", type);
  g.output("y", b.plus(x, x));
  return g;
}

// The kernel through the plugin's slot alone.
double kernel_us(Device& device, const Plan& plan, int count) {
  const auto buffer = device.buffer(4096);
  const std::vector<std::byte> zeros(4096);
  buffer->write(0, zeros.data(), zeros.size());
  const auto& program = plan.regions.at(0).program;
  Binding binding;
  for (size_t i = 0; i < program->values().size(); ++i) binding.values.push_back({buffer, 256 * i});
  binding.scratch.resize(program->steps().size());
  const auto instance = device.instantiate(program, binding);
  return median_us(count, [&] { instance->run(1); });
}

int measure(const char* plugin, int count) {
  Host::Options options;
  options.plugin_files = {plugin};
  options.use_builtin_dir = options.use_environment = false;
  const auto runtime = std::make_shared<Runtime>(options);
  const auto executable = std::make_shared<Executable>(
      runtime, one_node(), std::make_shared<Store>(), ExecutableOptions{});
  Context context(executable);
  const float x[4] = {1, 2, 3, 4};
  context.set("x", {kF32, {4}}, std::as_bytes(std::span(x)));
  const auto bound = executable->plan_for({});
  const double kernel = kernel_us(*bound->plan.devices[0], bound->plan, count);
  const double run = median_us(count, [&] { context.run(); });
  const double async = median_us(count, [&] {
    context.run_async();
    context.wait();
  });
  float y[4] = {};
  context.get("y", y, sizeof y);
  std::printf("%-24s median\n", bound->plan.devices[0]->info().id.c_str());
  std::printf("  kernel through its slot %8.2f us\n", kernel);
  std::printf("  run                     %8.2f us   over the kernel %8.2f us\n", run, run - kernel);
  std::printf("  run_async and wait      %8.2f us   over the kernel %8.2f us\n", async,
              async - kernel);
  return y[0] == 2 && y[3] == 8 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s PLUGIN_FILE [RUNS]\n", argv[0]);
    return 2;
  }
  try {
    return measure(argv[1], argc > 2 ? std::max(std::atoi(argv[2]), 10) : 20000);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
