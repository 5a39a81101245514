// SPDX-License-Identifier: Apache-2.0
// tenon lm generate: continues a prompt. A decode step has no input: token, length, random counter
// and cache are state that the graph updates. The host only reads the tokens.
// A model with attention has a cache of its context, which is filled again when it is full. The
// state of a recurrent model has a constant size and no end.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iostream>
#include <map>
#include <memory>
#include <optional>

#include "cli/command.hpp"
#include "cli/input.hpp"
#include "cli/interrupt.hpp"
#include "cli/lm/checkpoint.hpp"
#include "cli/lm/model.hpp"
#include "cli/lm/room.hpp"
#include "cli/modes.hpp"
#include "cli/terminal.hpp"

namespace tenon::cli {
namespace {

using namespace tenon::lm;

const std::vector<Option>& generate_options() {
  static const std::vector<Option> options = {
      {.name = "--model",
       .value = "DIR",
       .help = "model folder written by lm train",
       .completes = Completes::folder},
      {.name = "--prompt", .value = "TEXT", .help = "text to continue [read from standard input]"},
      {.name = "--prompt-file",
       .value = "FILE",
       .help = "read the prompt from FILE (- is standard input); a final newline is removed",
       .completes = Completes::file},
      {.name = "--tokens", .value = "N", .help = "bytes to generate", .otherwise = "256"},
      {.name = "--temperature",
       .value = "X",
       .help = "sampling temperature; 0 always selects the most likely byte",
       .otherwise = "0.8"},
      {.name = "--top-k",
       .value = "N",
       .help = "sample from the N most likely bytes; 0: from all",
       .otherwise = "0"},
      {.name = "--top-p",
       .value = "X",
       .help = "sample from the most likely bytes whose probabilities sum to X",
       .otherwise = "1"},
      {.name = "--seed", .value = "N", .help = "sampling seed", .otherwise = "0"},
      {.name = "--no-room-check", .help = "start even if memory seems insufficient"},
      memory_option(),
      pin_option(),
      exec_option(),
      compile_option(),
      trace_option(),
  };
  return options;
}

class Generator {
 public:
  Generator(const Runtime& runtime, Store& store, const Config& config,
            const SampleOptions& options, ExecutableOptions executable, bool check_room)
      : runtime_(runtime),
        store_(store),
        config_(config),
        options_(options),
        executable_(std::move(executable)),
        check_room_(check_room) {}

  // Reads the tokens so far into the state. Returns the next token, or none after Ctrl-C. Only
  // recurrent models look for Ctrl-C: they read the tokens in pieces.
  std::optional<int64_t> prefill(const std::vector<int64_t>& tokens,
                                 const InterruptFlag& interrupt) {
    return config_.recurrent() ? read_pieces(tokens, interrupt) : fill_cache(tokens);
  }
  // Compiles the decode step, so that a refusal comes before any output.
  void prepare() { runner_for(0); }
  int64_t decode() {
    Runner& runner = runner_for(0);
    runner.context->run();
    return runner.context->get_scalar<int64_t>("token");
  }

 private:
  int64_t fill_cache(const std::vector<int64_t>& tokens) {
    const auto count = static_cast<int64_t>(tokens.size());
    int64_t bucket = std::min<int64_t>(16, config_.context);
    while (bucket < count) bucket = std::min(bucket * 2, config_.context);
    Runner& runner = runner_for(bucket);
    std::vector<int64_t> padded(tokens);
    padded.resize(static_cast<size_t>(bucket), 0);
    runner.context->set("prompt", {1, bucket}, padded);
    runner.context->set("count", std::vector<int64_t>{count});
    runner.context->run();
    return runner.context->get_scalar<int64_t>("token");
  }
  // A piece must have the length of its graph, because padding would change the state. The last
  // few tokens are decode steps that begin with given tokens.
  std::optional<int64_t> read_pieces(const std::vector<int64_t>& tokens,
                                     const InterruptFlag& interrupt) {
    int64_t next = 0;
    const auto size = static_cast<int64_t>(tokens.size());
    for (int64_t at = 0; at < size;) {
      if (interrupt.raised()) return {};
      const int64_t length = size - at >= kLongPiece ? kLongPiece
                             : size - at >= kPiece   ? kPiece
                                                     : 1;
      if (length == 1) {
        store_.set<int64_t>(TENON_SPACE_STATE, "token", {1, 1}, {tokens[static_cast<size_t>(at)]});
        next = decode();
      } else {
        Runner& runner = runner_for(length);
        runner.context->set(
            "prompt", {1, length},
            std::vector<int64_t>(tokens.begin() + at, tokens.begin() + at + length));
        runner.context->run();
        next = runner.context->get_scalar<int64_t>("token");
      }
      at += length;
    }
    return next;
  }

  static constexpr int64_t kLongPiece = 512, kPiece = 16;

  struct Runner {
    std::unique_ptr<Executable> executable;
    std::unique_ptr<Context> context;
  };
  // bucket 0 is the decode step.
  Runner& runner_for(int64_t bucket) {
    Runner& r = runners_[bucket];
    if (!r.context) {
      const Graph graph =
          bucket ? prefill_graph(config_, bucket, options_) : decode_graph(config_, options_);
      store_.add_missing(graph);
      r.executable = std::make_unique<Executable>(runtime_, graph, store_, executable_);
      if (check_room_)
        check_intermediates_fit(
            runtime_, bucket ? "a prompt of " + std::to_string(bucket) + " bytes" : "a decode step",
            r.executable->report());
      r.context = std::make_unique<Context>(*r.executable);
    }
    return r;
  }

  const Runtime& runtime_;
  Store& store_;
  const Config& config_;
  SampleOptions options_;
  ExecutableOptions executable_;
  bool check_room_;
  std::map<int64_t, Runner> runners_;
};

std::string prompt_from(const Args& args) {
  if (args.has("--prompt")) {
    args.refuse({"--prompt-file"}, "--prompt is given already");
    if (args.text("--prompt").empty())
      throw UsageError("--prompt: expected at least one byte, got an empty text");
    return args.text("--prompt");
  }
  if (!args.has("--prompt-file") && is_terminal(STDIN_FILENO))
    throw UsageError("--prompt is missing; expected the text to continue");
  const std::string file = args.text("--prompt-file", "-");
  std::string prompt = read_input(file);
  if (prompt.ends_with('\n')) prompt.pop_back();
  if (prompt.empty())
    throw UsageError((file == "-" ? "standard input" : file) +
                     ": the prompt is empty; expected at least one byte");
  return prompt;
}

// Writes text to standard output; escapes control bytes on a terminal.
class TextOut {
 public:
  void put(std::string_view bytes) {
    for (const char c : bytes) std::cout << (terminal_ ? safe_.add(c) : std::string(1, c));
    std::cout << std::flush;
  }
  void end() { std::cout << safe_.end() << "\n" << std::flush; }

 private:
  bool terminal_ = is_terminal(STDOUT_FILENO);
  SafeText safe_;
};

int generate(const Args& args) {
  if (!args.has("--model")) throw UsageError("--model is missing; expected a model folder");
  const SampleOptions options{.temperature = args.number("--temperature", 0.8, 0, 1e6),
                              .top_k = args.integer("--top-k", 0, 0, 1 << 20),
                              .top_p = args.number("--top-p", 1, 0, 1)};
  if (options.temperature == 0)
    args.refuse({"--top-k", "--top-p", "--seed"},
                "has no effect with --temperature 0, which selects the most likely byte");
  const int64_t count = args.integer("--tokens", 256, 0, 1 << 30);
  const int64_t seed = args.integer("--seed", 0, INT64_MIN, INT64_MAX);
  const std::string prompt = prompt_from(args);

  const Runtime& runtime = open_runtime(args);
  Store store(runtime);
  const bool check_room = !args.has("--no-room-check");
  const std::string folder = args.text("--model");
  const Config config = load_model(folder, store, [&](const Config& c) {
    if (check_room) check_generation_fits(folder, c);
  });
  store.set<int64_t>(TENON_SPACE_STATE, "rng", {2}, {seed, 0});
  Generator generator(runtime, store, config, options, executable_options(args), check_room);

  std::vector<int64_t> tokens;
  for (const char c : prompt) tokens.push_back(static_cast<unsigned char>(c));
  const auto keep_last = [&](int64_t most) {
    if (static_cast<int64_t>(tokens.size()) > most)
      tokens.erase(tokens.begin(), tokens.end() - most);
  };
  generator.prepare();
  TraceFile trace(runtime, args);
  const InterruptFlag interrupt;
  if (!config.recurrent() && static_cast<int64_t>(tokens.size()) > config.context)
    std::cerr << "tenon: the prompt has " << tokens.size() << " bytes; the model sees the last "
              << config.context << "\n";
  TextOut out;
  out.put(prompt);
  int64_t in_cache = 0;                // 0: must be filled
  int64_t generated = 0, decoded = 0;  // prefill generates a token too
  double seconds = 0;                  // of decoding
  for (int64_t i = 0; i < count && !interrupt.raised(); ++i) {
    int64_t next;
    if (in_cache == 0 || (in_cache == config.context && !config.recurrent())) {
      // A full cache restarts with the newer half of its tokens.
      if (!config.recurrent())
        keep_last(in_cache == 0 ? config.context : std::max<int64_t>(config.context / 2, 1));
      const std::optional<int64_t> first = generator.prefill(tokens, interrupt);
      if (!first) break;
      next = *first;
      in_cache = static_cast<int64_t>(tokens.size());
    } else {
      const auto start = std::chrono::steady_clock::now();
      next = generator.decode();
      seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      ++decoded;
      ++in_cache;
    }
    ++generated;
    if (!config.recurrent()) tokens.push_back(next);
    const char byte = static_cast<char>(next);
    out.put({&byte, 1});
    if (!std::cout) break;  // the reader has closed the pipe
  }
  out.end();
  if (generated > 0) std::cerr << counted(static_cast<uint64_t>(generated), "token");
  if (decoded > 0)
    std::cerr << ", " << std::llround(static_cast<double>(decoded) / std::max(seconds, 1e-9))
              << " tokens/s";
  if (generated > 0) std::cerr << "\n";
  trace.save();
  return interrupt.raised() ? kInterrupted : 0;
}

}  // namespace

Command lm_generate_command() {
  return {.name = "lm generate",
          .summary = "continue a prompt with a trained model",
          .usage = "--model DIR [--prompt TEXT] [options]",
          .options = generate_options(),
          .examples =
              "tenon lm generate --model model --prompt 'The licens' --tokens 300\n"
              "tenon lm generate --model model --prompt 'You may' --temperature 0\n"
              "tenon lm generate --model model < beginning.txt\n",
          .run = generate};
}

}  // namespace tenon::cli
