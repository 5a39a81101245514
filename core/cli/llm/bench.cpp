// SPDX-License-Identifier: Apache-2.0
// tenon llm bench: speed of a language model, without a tokenizer: random tokens, any device.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/command.hpp"
#include "cli/llm/options.hpp"
#include "cli/terminal.hpp"
#include "llm/tune/random.hpp"

namespace tenon::cli {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct Sizes {
  int64_t prefill, decode, batch, depth, repeat;
};

Sizes sizes_of(const Args& args) {
  constexpr int64_t kMost = int64_t{1} << 24;
  const Sizes s{.prefill = args.integer("--prefill", 512, 0, kMost),
                .decode = args.integer("--decode", 128, 0, kMost),
                .batch = args.integer("--batch", 1, 1, 1 << 16),
                .depth = args.integer("--depth", 0, 0, kMost),
                .repeat = args.integer("--repeat", 5, 1, 1 << 20)};
  if (s.prefill + s.decode == 0)
    throw UsageError("--prefill and --decode are both 0; expected one of them above 0");
  return s;
}

// One kind of work: so many tokens for each sequence, once without counting, then repeatedly.
struct Result {
  std::string name;
  int64_t tokens = 0;             // of all sequences
  double first = 0;               // seconds of the first run, which also compiles
  std::vector<double> seconds{};  // of the other runs, in ascending order
  double median() const {
    return (seconds[(seconds.size() - 1) / 2] + seconds[seconds.size() / 2]) / 2;
  }
  double rate(double time) const { return static_cast<double>(tokens) / std::max(time, 1e-9); }
};

class Bench {
 public:
  Bench(llm::Engine& engine, const Sizes& sizes) : engine_(engine), sizes_(sizes) {}

  // The prompts of all sequences, read one after the other.
  Result prefill() {
    return measured("prefill", sizes_.prefill, [&] { read(sizes_.prefill); });
  }
  // All sequences grow by a token in each step.
  Result decode() {
    return measured("decode", sizes_.decode, [&] {
      for (int64_t i = 0; i < sizes_.decode; ++i) read(1);
    });
  }

 private:
  template <class Work>
  Result measured(const std::string& name, int64_t tokens, const Work& work) {
    Result out{.name = name, .tokens = tokens * sizes_.batch};
    for (int64_t i = 0; i <= sizes_.repeat; ++i) {
      for (int64_t slot = 0; slot < sizes_.batch; ++slot) engine_.clear(slot);
      if (sizes_.depth > 0) read(sizes_.depth);
      const Clock::time_point start = Clock::now();
      work();
      const double time = seconds_since(start);
      if (i == 0)
        out.first = time;
      else
        out.seconds.push_back(time);
    }
    std::ranges::sort(out.seconds);
    return out;
  }

  void read(int64_t tokens) {
    std::vector<llm::Engine::Piece> pieces(static_cast<size_t>(sizes_.batch));
    for (size_t slot = 0; slot < pieces.size(); ++slot) {
      pieces[slot].slot = static_cast<int64_t>(slot);
      for (int64_t i = 0; i < tokens; ++i) pieces[slot].tokens.push_back(random_token());
    }
    engine_.step(pieces, false);
  }
  int64_t random_token() {
    return static_cast<int64_t>(llm::mix(1, drawn_++) %
                                static_cast<uint64_t>(engine_.config().vocab));
  }

  llm::Engine& engine_;
  Sizes sizes_;
  uint64_t drawn_ = 0;
};

// The most memory that the process has had.
uint64_t peak_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

void print(const Result& r, int64_t batch) {
  const double steps = static_cast<double>(r.tokens) / static_cast<double>(batch);
  std::printf("%-8s %6lld tokens  median %10.2f tokens/s  best %10.2f tokens/s", r.name.c_str(),
              static_cast<long long>(r.tokens), r.rate(r.median()), r.rate(r.seconds[0]));
  if (r.name == "decode")
    std::printf("  %9.3f ms per step\n", r.median() / steps * 1e3);
  else
    std::printf("  %9.3f ms\n", r.median() * 1e3);
  std::fflush(stdout);
}

nlohmann::json json_of(const Result& r) {
  return {{"tokens", r.tokens},
          {"tokens_per_second", r.rate(r.median())},
          {"best_tokens_per_second", r.rate(r.seconds[0])},
          {"median_seconds", r.median()},
          {"first_seconds", r.first},
          {"seconds", r.seconds}};
}

std::vector<Option> bench_options() {
  std::vector<Option> options = with_engine_options({
      {.name = "--prefill",
       .value = "N",
       .help = "tokens of a prompt that is read; 0: none",
       .otherwise = "512"},
      {.name = "--decode",
       .value = "N",
       .help = "tokens that are decoded one by one; 0: none",
       .otherwise = "128"},
      {.name = "--batch",
       .value = "N",
       .help = "sequences; decoding reads a token of each in one step",
       .otherwise = "1"},
      {.name = "--depth",
       .value = "N",
       .help = "tokens that each sequence has before the measurement",
       .otherwise = "0"},
      {.name = "--repeat",
       .value = "N",
       .help = "runs that are counted, after a first one that compiles",
       .otherwise = "5"},
      {.name = "--cache-memory",
       .value = "KIND",
       .help = "memory of keys and values: blocks of a pool, or a part for each sequence",
       .otherwise = "blocks on the cpu, and elsewhere with several sequences if the device reads "
                    "them in place",
       .choices = {"blocks", "slots"}},
      {.name = "--json", .help = "print JSON"},
      trace_option(),
  });
  for (Option& o : options)
    if (o.name == "--context") o.otherwise = "what the measurement needs";
  return options;
}

int bench(const Args& args) {
  const std::string& model = model_of(args);
  const Sizes sizes = sizes_of(args);
  llm::EngineOptions options = engine_options(args, sizes.batch);
  const int64_t needed = sizes.depth + std::max(sizes.prefill, sizes.decode);
  if (options.context == 0) options.context = std::max<int64_t>(needed, 2);
  if (const std::string memory = args.text("--cache-memory"); !memory.empty())
    options.cache_blocks = memory == "blocks";
  if (options.context < needed)
    throw UsageError("--context " + std::to_string(options.context) +
                     ": expected room for --depth and --prefill or --decode, " +
                     std::to_string(needed) + " tokens");
  const Runtime& runtime = open_runtime(args);
  const Clock::time_point start = Clock::now();
  llm::Engine engine(runtime, model, options);
  const double load = seconds_since(start);
  TraceFile trace(runtime, args);
  const bool as_json = args.has("--json");
  const std::string type(engine.config().architecture->model_type);
  if (!as_json) {
    std::printf("model    %s, %s of weights\n", type.c_str(),
                size_text(engine.weight_bytes()).c_str());
    std::printf("load     %.3f s\n", load);
    std::fflush(stdout);
  }
  nlohmann::json json = {{"model", model},
                         {"model_type", type},
                         {"device", options.device},
                         {"batch", sizes.batch},
                         {"depth", sizes.depth},
                         {"context", options.context},
                         {"cache_block", engine.block()},
                         {"weight_bytes", engine.weight_bytes()},
                         {"load_seconds", load}};
  Bench work(engine, sizes);
  const auto show = [&](const Result& r) {
    if (as_json)
      json[r.name] = json_of(r);
    else
      print(r, sizes.batch);
  };
  if (sizes.prefill > 0) show(work.prefill());
  if (sizes.decode > 0) show(work.decode());
  trace.save();
  const uint64_t peak = peak_resident_bytes();
  json["peak_resident_bytes"] = peak;
  if (as_json)
    std::cout << json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
  else
    std::printf("memory   %s at most, on the host\n", size_text(peak).c_str());
  return 0;
}

}  // namespace

Command llm_bench_command() {
  return {.name = "llm bench",
          .summary = "time a language model: loading, reading prompts, decoding",
          .usage = "MODEL [options]",
          .options = bench_options(),
          .examples =
              "tenon llm bench Llama-3.2-1B --device cpu --threads 2\n"
              "tenon llm bench model.gguf --device cuda --batch 8 --depth 1024 --json\n",
          .words = 1,
          .completes = Completes::file,
          .run = bench};
}

}  // namespace tenon::cli
