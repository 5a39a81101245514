// SPDX-License-Identifier: Apache-2.0
// async_runs PROCESSES early|late: asynchronous runs of two contexts on four computing threads,
// under a limit of processes that is set before the runtime is made, or after. Prints "ok" or the
// error. few_threads.py runs it.
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "tenon/tenon.hpp"

using namespace tenon;

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const auto processes = static_cast<rlim_t>(std::atoi(argv[1]));
  const auto limit = [&](std::string_view when) {
    const rlimit most{processes, processes};
    if (when == argv[2] && setrlimit(RLIMIT_NPROC, &most) != 0) std::exit(3);
  };
  try {
    limit("early");
    RuntimeOptions options;
    options.threads = 4;
    const Runtime runtime(options);
    limit("late");
    Graph graph("async");
    const Value x = graph.input("x", {f32, {512, 512}});
    graph.output("y", graph.add(op::softmax{.x = x}));
    const Store store(runtime);
    const Executable executable(runtime, graph, store, {.device = "cpu:0"});
    Context first(executable), second(executable);
    const std::vector<float> ones(512 * 512, 1);
    first.set("x", {512, 512}, ones);
    second.set("x", {512, 512}, ones);
    for (int i = 0; i < 20; ++i) {
      first.run_async();
      second.run_async();
      first.wait();
      second.wait();
      first.run();
    }
    std::puts(first.get<float>("y")[0] == 1.0f / 512 ? "ok" : "wrong");
  } catch (const Error& e) {
    std::puts(e.what());
  }
}
