// SPDX-License-Identifier: Apache-2.0
// tenon bench: times a graph file, or the three language models that the project compares itself
// by.
#include <algorithm>
#include <chrono>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/lm/model.hpp"
#include "cli/lm/random.hpp"
#include "cli/source.hpp"

namespace tenon::cli {
namespace {

struct Size {
  std::string_view name;
  lm::Config config;
  int64_t batch;
};
const std::vector<Size>& sizes() {
  static const std::vector<Size> all = {
      {"lm_s",
       {.dim = 128, .layers = 4, .heads = 4, .kv_heads = 2, .ffn = 344, .context = 128},
       16},
      {"lm_m", {.dim = 256, .layers = 6, .heads = 8, .kv_heads = 4, .ffn = 688, .context = 256}, 8},
      {"lm_l",
       {.dim = 512, .layers = 8, .heads = 8, .kv_heads = 4, .ffn = 1376, .context = 512},
       4},
  };
  return all;
}

struct Timing {
  std::string name;
  double median_us = 0, best_us = 0;
  int64_t runs = 0;
  double tokens_per_second = 0;  // 0: not a language model
};

Timing time_runs(const std::string& name, double seconds, const auto& body) {
  using Clock = std::chrono::steady_clock;
  for (int i = 0; i < 2; ++i) body();
  std::vector<double> times;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  while (times.size() < 3 || (Clock::now() < end && times.size() < 10000)) {
    const auto start = Clock::now();
    body();
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  std::sort(times.begin(), times.end());
  return {name, times[times.size() / 2], times.front(), static_cast<int64_t>(times.size()), 0};
}

// Content that no kernel finds special: floats in (-1, 1), integers 0.
std::vector<std::byte> content(const TensorType& type) {
  std::vector<std::byte> bytes(type.bytes());
  if (type.dtype == f32) {
    auto* at = reinterpret_cast<float*>(bytes.data());
    for (int64_t i = 0; i < type.elements(); ++i)
      at[i] = static_cast<float>(2 * lm::uniform(1, static_cast<uint64_t>(i)) - 1);
  }
  return bytes;
}

void fill(Store& store, const Graph& graph) {
  for (const auto& w : graph.named(TENON_SPACE_WEIGHT)) {
    const TensorType type = graph.type(w.value);
    const auto bytes = content(type);
    store.set(TENON_SPACE_WEIGHT, w.name, type, bytes.data(), bytes.size());
  }
  store.add_missing(graph);
}

Timing bench_lm(const Runtime& runtime, const Size& size, bool train, const std::string& device,
                double seconds) {
  Store store(runtime);
  for (const lm::WeightSpec& w : lm::weight_specs(size.config)) {
    std::vector<float> values(static_cast<size_t>(TensorType(f32, w.dims).elements()), 1.0f);
    if (w.init == lm::WeightSpec::Init::normal)
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<float>(w.scale * (2 * lm::uniform(1, i) - 1) * 1.7);
    store.set(TENON_SPACE_WEIGHT, w.name, w.dims, values);
  }
  const Graph graph = train ? lm::train_graph(size.config, {.batch = size.batch})
                            : lm::decode_graph(size.config, {.temperature = 0});
  store.add_missing(graph);
  const int64_t half = size.config.context / 2;
  const Executable executable(runtime, graph, store, {.device = device});
  Context run(executable);
  if (train) {
    std::vector<int32_t> tokens(static_cast<size_t>(size.batch * (size.config.context + 1)));
    for (size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = static_cast<int32_t>(lm::mix(2, i) % 256);
    run.set("tokens", {size.batch, size.config.context + 1}, tokens);
    run.set("lr", 1e-3f);
  }
  const auto body = [&] {
    // Decoding is timed in the middle of the context, as the peer does.
    if (!train) store.set<int64_t>(TENON_SPACE_STATE, "length", {1}, {half});
    run.run();
  };
  Timing t =
      time_runs(std::string(size.name) + (train ? "_train_step" : "_decode_token"), seconds, body);
  t.tokens_per_second =
      1e6 / t.median_us * static_cast<double>(train ? size.batch * size.config.context : 1);
  return t;
}

Timing bench_graph(const Runtime& runtime, const std::string& what, const Args& args,
                   double seconds) {
  Graph graph = graph_from(what, args.text("--part", "decode"));
  Store store(runtime);
  fill(store, graph);
  const Executable executable(runtime, graph, store, {.device = device_of(args)});
  Context run(executable);
  std::map<int64_t, int64_t> numbers;  // symbolic dim -> number
  for (const auto& [name, number] : bindings_from(args)) numbers[graph.symbol(name)] = number;
  for (const auto& in : graph.named(TENON_SPACE_INPUT)) {
    TensorType type = graph.type(in.value);
    for (int64_t& d : type.dims) {
      if (d >= 0) continue;
      const auto found = numbers.find(d);
      if (found == numbers.end())
        throw UsageError("input '" + in.name + "' has a symbol that --bind gives no number");
      d = found->second;
    }
    const auto bytes = content(type);
    run.set(in.name, type, bytes.data(), bytes.size());
  }
  return time_runs(what, seconds, [&] { run.run(); });
}

int bench(const Args& args) {
  const Runtime runtime = make_runtime(args);
  const double seconds = args.number("--seconds", 3, 0.01, 3600);
  std::vector<Timing> timings;
  if (!args.words().empty()) {
    timings.push_back(bench_graph(runtime, args.words()[0], args, seconds));
  } else {
    const std::string only = args.text("--only");
    for (const Size& size : sizes())
      for (const bool train : {true, false}) {
        const std::string name = std::string(size.name) + (train ? "_train_step" : "_decode_token");
        if (name.find(only) == std::string::npos) continue;
        timings.push_back(bench_lm(runtime, size, train, device_of(args), seconds));
      }
    if (timings.empty()) throw UsageError("--only " + only + ": no case has that in its name");
  }
  if (args.has("--json")) {
    nlohmann::json j = nlohmann::json::array();
    for (const Timing& t : timings)
      j.push_back({{"name", t.name},
                   {"median_us", t.median_us},
                   {"best_us", t.best_us},
                   {"runs", t.runs},
                   {"tokens_per_second", t.tokens_per_second}});
    std::cout << j.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
    return 0;
  }
  for (const Timing& t : timings) {
    std::printf("%-22s median %11.1f us  best %11.1f us  %6lld runs", t.name.c_str(), t.median_us,
                t.best_us, static_cast<long long>(t.runs));
    if (t.tokens_per_second > 0) std::printf("  %9.0f tokens/s", t.tokens_per_second);
    std::printf("\n");
  }
  return 0;
}

}  // namespace

Command bench_command() {
  return {
      .name = "bench",
      .summary = "time a graph, or the three reference language models",
      .usage = "[MODEL_DIR | GRAPH_FILE] [options]",
      .options = {{"--only", "TEXT",
                   "of the language models, those with TEXT in their name: lm_s_train_step ..."},
                  {"--seconds", "X", "per case (default 3)"},
                  {"--part", "NAME",
                   "of a model folder: train, eval, decode or prefill (default decode)"},
                  {"--bind", "NAME=N", "a number for a symbol of the graph; repeatable", true},
                  {"--json", "", "as JSON"}},
      .examples = "  tenon bench --only lm_m_train\n  tenon bench failing.tng --seconds 1\n",
      .words = 1,
      .run = bench};
}

}  // namespace tenon::cli
