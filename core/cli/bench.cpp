// SPDX-License-Identifier: Apache-2.0
// tenon bench: times an op, a graph file, or the three reference language models.
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/bench_case.hpp"
#include "cli/lm/model.hpp"
#include "cli/modes.hpp"
#include "cli/op_text.hpp"
#include "cli/source.hpp"
#include "llm/tune/random.hpp"

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

Timing bench_lm(const Runtime& runtime, const Size& size, bool train, const Args& args,
                double seconds) {
  Store store(runtime);
  for (const lm::WeightSpec& w : lm::weight_specs(size.config)) {
    std::vector<float> values(static_cast<size_t>(TensorType(f32, w.dims).elements()), 1.0f);
    if (w.init == lm::WeightSpec::Init::normal)
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<float>(w.scale * (2 * llm::uniform(1, i) - 1) * 1.7);
    store.set(TENON_SPACE_WEIGHT, w.name, w.dims, values);
  }
  const Graph graph = train ? lm::train_graph(size.config, {.batch = size.batch})
                            : lm::decode_graph(size.config, {.temperature = 0});
  store.add_missing(graph);
  const int64_t half = size.config.context / 2;
  const Executable executable(runtime, graph, store, executable_options(args));
  Context run(executable);
  if (train) {
    std::vector<int32_t> tokens(static_cast<size_t>(size.batch * (size.config.context + 1)));
    for (size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = static_cast<int32_t>(llm::mix(2, i) % 256);
    run.set("tokens", {size.batch, size.config.context + 1}, tokens);
    run.set("lr", 1e-3f);
  }
  const auto body = [&] {
    // Decoding is timed in the middle of the context, like in the PyTorch benchmark.
    if (!train) store.set<int64_t>(TENON_SPACE_STATE, "length", {1}, {half});
    run.run();
  };
  Timing t =
      time_runs(std::string(size.name) + (train ? "_train_step" : "_decode_token"), seconds, body);
  add_cost(t, executable);
  t.tokens_per_second =
      1e6 / t.median_us * static_cast<double>(train ? size.batch * size.config.context : 1);
  return t;
}

nlohmann::json json_of(const Timing& t) {
  return {{"name", t.name},
          {"median_us", t.median_us},
          {"best_us", t.best_us},
          {"runs", t.runs},
          {"tokens_per_second", t.tokens_per_second},
          {"bytes", t.bytes},
          {"flops", t.flops},
          {"gbytes_per_second", t.gigabytes_per_second()},
          {"gflops_per_second", t.gigaflops()},
          {"fallback", t.fallback}};
}

void print(const Timing& t) {
  std::printf("%-22s median %11.1f us  best %11.1f us  %6lld runs  %8.1f GB/s", t.name.c_str(),
              t.median_us, t.best_us, static_cast<long long>(t.runs), t.gigabytes_per_second());
  if (t.flops > 0) std::printf("  %8.1f GFLOP/s", t.gigaflops());
  if (t.tokens_per_second > 0) std::printf("  %9.0f tokens/s", t.tokens_per_second);
  std::printf("\n");
  std::fflush(stdout);
  if (!t.fallback.empty()) std::cerr << "note: fallback: " << t.fallback << "\n";
}

using Show = std::function<void(const Timing&)>;

void time_cases(const Runtime& runtime, const Args& args, const Show& show) {
  const double seconds = args.number("--seconds", 3, 0.01, 3600);
  if (args.has("--op")) {
    if (!args.words().empty()) throw UsageError("--op: expected no graph beside it");
    args.refuse({"--only"}, "selects language models; it cannot be combined with --op");
    args.refuse({"--part"}, "selects a part of a model folder; it cannot be combined with --op");
    args.refuse({"--bind"}, "sets symbols of a graph; --op has none");
    args.refuse({"--constant"}, "applies to an ONNX model");
    const std::string op = args.text("--op");
    Store store(runtime);
    return show(bench_graph(runtime, graph_of_op(op), store, op, args, seconds));
  }
  if (!args.words().empty()) {
    const std::string& what = args.words()[0];
    args.refuse({"--only"}, "selects language models; it cannot be combined with " + what);
    check_part(args, what);
    Store store(runtime);
    Graph graph = graph_from(what, args.text("--part", "decode"),
                             {.store = &store, .constants = constants_from(args)});
    return show(bench_graph(runtime, std::move(graph), store, what, args, seconds));
  }
  args.refuse({"--part", "--bind", "--constant", "--fill", "--cold"}, "needs a graph or --op");
  const std::string only = args.text("--only");
  bool any = false;
  for (const Size& size : sizes())
    for (const bool train : {true, false}) {
      const std::string name = std::string(size.name) + (train ? "_train_step" : "_decode_token");
      if (name.find(only) == std::string::npos) continue;
      any = true;
      show(bench_lm(runtime, size, train, args, seconds));
    }
  if (!any) throw UsageError("--only " + only + ": expected a part of the name of a case");
}

// A JSON array whose elements are printed immediately.
class JsonList {
 public:
  void add(const nlohmann::json& j) {
    std::cout << (begun_ ? ",\n" : "[\n")
              << j.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << std::flush;
    begun_ = true;
  }
  void end() { std::cout << (begun_ ? "\n]\n" : "[]\n"); }

 private:
  bool begun_ = false;
};

int bench(const Args& args) {
  const Runtime& runtime = open_runtime(args);
  TraceFile trace(runtime, args);
  const bool as_json = args.has("--json");
  JsonList list;
  time_cases(runtime, args, [&](const Timing& t) {
    if (as_json)
      list.add(json_of(t));
    else
      print(t);
  });
  trace.save();  // does not include the ceilings
  if (!args.has("--no-ceilings")) {
    const Ceilings c = measure_ceilings(runtime, args);
    if (as_json)
      list.add({{"name", "ceilings"},
                {"copy_16mib_gbytes_per_second", c.copy_16mib},
                {"copy_128mib_gbytes_per_second", c.copy_128mib},
                {"matmul_gflops_per_second", c.matmul},
                {"calibrated", c.calibrated}});
    else
      std::printf(
          "ceilings: copy %.1f GB/s (16 MiB), %.1f GB/s (128 MiB), f32 matmul %.0f GFLOP/s%s\n",
          c.copy_16mib, c.copy_128mib, c.matmul,
          c.calibrated ? " (the last two as calibrated)" : "");
  }
  if (as_json) list.end();
  return 0;
}

}  // namespace

Command bench_command() {
  return {
      .name = "bench",
      .summary = "time an op, a graph, or the three reference language models",
      .usage = "[MODEL.onnx | MODEL_DIR | GRAPH_FILE] [options]",
      .options =
          {{.name = "--op",
            .value = "TEXT",
            .help = "time one op, written with types for operands: softmax(f32[8,1024]); its "
                    "inputs are in0, in1 ..."},
           {.name = "--fill",
            .value = "NAME=LOW:HIGH",
            .help = "fill an input with uniform numbers (else floats are normal, integers 0); "
                    "repeatable",
            .repeats = true},
           {.name = "--cold",
            .help = "report device time with cold caches (256 MiB are overwritten before each "
                    "run; on a GPU their time is subtracted)"},
           {.name = "--no-ceilings", .help = "do not measure the device's copy and product rates"},
           {.name = "--only",
            .value = "TEXT",
            .help = "only the language models with TEXT in their name: lm_s_train_step ..."},
           {.name = "--seconds", .value = "X", .help = "time per case", .otherwise = "3"},
           part_option(),
           bind_option(),
           constant_option(),
           {.name = "--json", .help = "print JSON"},
           fallback_option(),
           memory_option(),
           pin_option(),
           bucket_option(),
           exec_option(),
           compile_option(),
           trace_option()},
      .examples =
          "tenon bench --only lm_m_train\ntenon bench model.onnx --bind N=1\ntenon bench "
          "failing.tng "
          "--seconds 1\n"
          "tenon bench --op '(v, i) = topk(f32[8,131072]) {k=50}'\n"
          "tenon bench --op 'gather(f32[32768,256], i64[16384])' --fill in1=0:32768\n",
      .words = 1,
      .completes = Completes::file,
      .run = bench};
}

}  // namespace tenon::cli
