// SPDX-License-Identifier: Apache-2.0
// tenon llm run: continues a prompt with a language model of a Hugging Face folder.
#include <chrono>
#include <cmath>
#include <iostream>

#include "cli/command.hpp"
#include "cli/interrupt.hpp"
#include "cli/modes.hpp"
#include "cli/progress.hpp"
#include "cli/terminal.hpp"
#include "llm/engine.hpp"

namespace tenon::cli {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

const std::vector<Option>& run_options() {
  static const std::vector<Option> options = {
      {.name = "--ids", .value = "N,...", .help = "prompt as token ids, as the model counts them"},
      {.name = "--tokens", .value = "N", .help = "most tokens to generate", .otherwise = "256"},
      {.name = "--greedy", .help = "always select the most likely token"},
      {.name = "--temperature",
       .value = "X",
       .help = "sampling temperature; 0 is --greedy",
       .otherwise = "0.8"},
      {.name = "--seed", .value = "N", .help = "sampling seed", .otherwise = "0"},
      {.name = "--context",
       .value = "N",
       .help = "most tokens of prompt and answer together",
       .otherwise = "4096, or the model's own limit"},
      {.name = "--compute",
       .value = "DTYPE",
       .help = "dtype of activations and cache",
       .otherwise = "f32 on the cpu, elsewhere that of the weights",
       .choices = {"f32", "f16", "bf16"}},
      {.name = "--ignore-end", .help = "continue after an end token"},
      memory_option(),
      pin_option(),
      exec_option(),
      compile_option(),
      trace_option(),
  };
  return options;
}

std::vector<int64_t> ids_of(const std::string& text) {
  std::vector<int64_t> ids;
  for (const std::string& word : list_of(text)) {
    size_t end = 0;
    int64_t id = -1;
    try {
      id = std::stoll(word, &end);
    } catch (const std::exception&) {
      end = 0;
    }
    if (word.empty() || end != word.size() || id < 0)
      throw UsageError("--ids: expected numbers separated by commas, got '" + word + "'");
    ids.push_back(id);
  }
  return ids;
}

tenon_dtype compute_of(const Args& args) {
  const std::string name = args.text("--compute");
  return name == "f32"    ? tenon_dtype{f32}
         : name == "f16"  ? tenon_dtype{f16}
         : name == "bf16" ? tenon_dtype{bf16}
                          : tenon_dtype{TENON_DTYPE_NONE};
}

int run(const Args& args) {
  if (args.words().empty()) throw UsageError("expected a model folder");
  if (!args.has("--ids")) throw UsageError("--ids is missing; expected the prompt as token ids");
  const std::vector<int64_t> prompt = ids_of(args.text("--ids"));
  if (args.has("--greedy")) args.refuse({"--temperature", "--seed"}, "has no effect with --greedy");
  const InterruptFlag interrupt;
  Progress progress(0, static_cast<int64_t>(prompt.size()));
  llm::GenerateOptions options{
      .tokens = args.integer("--tokens", 256, 0, int64_t{1} << 30),
      .temperature = args.has("--greedy") ? 0 : args.number("--temperature", 0.8, 0, 1e6),
      .seed = static_cast<uint64_t>(args.integer("--seed", 0, 0, INT64_MAX)),
      .stop_at_end = !args.has("--ignore-end"),
      .progress = [&](int64_t read, int64_t) {
        progress.show(read, "tokens of the prompt");
        return !interrupt.raised();
      }};
  const Runtime& runtime = open_runtime(args);
  llm::Engine engine(runtime, args.words()[0],
                     {.device = device_of(args),
                      .context = args.integer("--context", 0, 1, int64_t{1} << 24),
                      .compute = compute_of(args),
                      .executable = executable_options(args)});
  TraceFile trace(runtime, args);
  const Clock::time_point start = Clock::now();
  Clock::time_point first{};
  int64_t generated = 0;
  const llm::Finish finish = engine.generate(prompt, options, [&](int64_t token) {
    if (generated == 0) progress.clear(), first = Clock::now();
    std::cout << (generated > 0 ? "," : "") << token << std::flush;
    ++generated;
    return std::cout && !interrupt.raised();
  });
  progress.clear();
  if (generated > 0) std::cout << "\n" << std::flush;
  if (finish == llm::Finish::context_full)
    std::cerr << "tenon: the context of " << engine.context() << " tokens is full\n";
  if (generated > 0) {
    const double reading = std::chrono::duration<double>(first - start).count();
    std::cerr << counted(prompt.size(), "token") << " read in " << duration_text(reading) << ", "
              << counted(static_cast<uint64_t>(generated), "token") << " generated";
    if (generated > 1)
      std::cerr << ", "
                << std::llround(static_cast<double>(generated - 1) /
                                std::max(seconds_since(first), 1e-9))
                << " tokens/s";
    std::cerr << "\n";
  }
  trace.save();
  return interrupt.raised() ? kInterrupted : 0;
}

}  // namespace

Command llm_run_command() {
  return {.name = "llm run",
          .summary = "continue a prompt with a language model",
          .usage = "MODEL --ids N,... [options]",
          .options = run_options(),
          .examples = "tenon llm run Llama-3.2-1B --ids 128000,791,6864 --tokens 20 --greedy\n",
          .words = 1,
          .completes = Completes::folder,
          .run = run};
}

}  // namespace tenon::cli
