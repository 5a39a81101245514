// SPDX-License-Identifier: Apache-2.0
// The cases of tenon bench: graphs with generated contents, and the ceilings of the device.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cli/command.hpp"

namespace tenon::cli {

struct Timing {
  std::string name;
  double median_us = 0, best_us = 0;
  int64_t runs = 0;
  double tokens_per_second = 0;  // 0: not a language model
  double bytes = 0, flops = 0;   // per run, see tenon_executable_report
  std::string fallback{};        // nodes that do not run on the device, with reasons; empty: none

  double gigabytes_per_second() const { return bytes / median_us * 1e-3; }
  double gigaflops() const { return flops / median_us * 1e-3; }
};

// Warms up, then runs for `seconds`, and at least three times.
Timing time_runs(const std::string& name, double seconds, const std::function<void()>& body);

// Adds bytes and flops of a run, and its fallbacks.
void add_cost(Timing& timing, const Executable& executable,
              const std::vector<std::pair<std::string, int64_t>>& symbols = {});

// The values of inputs. Without a range, floats are standard normal and integers 0. Weights are
// normal and small.
using Ranges = std::map<std::string, std::pair<double, double>, std::less<>>;
// Parses "--fill NAME=LOW:HIGH": uniform in [LOW, HIGH).
Ranges ranges_from(const Args& args, const Graph& graph);

// Weights that the store lacks get generated contents.
Timing bench_graph(const Runtime& runtime, Graph graph, Store& store, const std::string& name,
                   const Args& args, double seconds);

// Measured with tenon: reading and writing one tensor of 16 and of 128 MiB, and the product of two
// 2048 x 2048 matrices of f32. If the device is calibrated, the last two come from there.
struct Ceilings {
  double copy_16mib = 0, copy_128mib = 0;  // GB/s
  double matmul = 0;                       // GFLOP/s
  bool calibrated = false;
};
Ceilings measure_ceilings(const Runtime& runtime, const Args& args);

}  // namespace tenon::cli
