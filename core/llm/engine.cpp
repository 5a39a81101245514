// SPDX-License-Identifier: Apache-2.0
// Loads a model, compiles a graph for each number of tokens that a step reads, and runs them.
#include "llm/engine.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "llm/arch/step.hpp"
#include "llm/model_files.hpp"

namespace tenon::llm {
namespace {

// Tokens of a step. A graph is compiled for each number that is used.
constexpr int64_t kTimes[] = {1, 4, 8, 16, 32, 64, 128, 256, 512};

}  // namespace

struct Engine::Parts {
  struct Runner {
    std::unique_ptr<Executable> executable;
    std::unique_ptr<Context> context;
  };
  struct Key {
    int64_t batch, time;
    bool all_logits;
    auto operator<=>(const Key&) const = default;
  };

  Parts(const Runtime& r, ModelConfig c, TensorSource tensors, const EngineOptions& o)
      : runtime(r), config(std::move(c)), weights(std::move(tensors)), store(r), options(o) {
    if (!o.adapters.empty()) adapters.emplace(o.adapters, config);
  }

  const Runtime& runtime;
  ModelConfig config;
  Weights weights;
  Store store;
  EngineOptions options;
  std::optional<Adapters> adapters;
  int64_t context = 0;
  std::vector<int64_t> lengths;  // of the sequences
  std::map<Key, Runner> runners;

  // dequant_matmul's attribute `compute`.
  std::string block_product() const {
    if (options.products == Products::int8) return "int8";
    return std::string(options.products == Products::compute ? sdk::dtype_name(options.compute)
                                                             : "f32");
  }
  StepShape shape(const Key& key) {
    return {.slots = options.slots,
            .capacity = context,
            .batch = key.batch,
            .time = key.time,
            .all_logits = key.all_logits,
            .compute = options.compute,
            .cache = options.cache,
            .block_product = block_product(),
            .lora = adapters ? &*adapters : nullptr};
  }
  Runner& runner(const Key& key) {
    Runner& r = runners[key];
    if (r.context) return r;
    const Graph graph = step_graph(config, shape(key), weights);
    store.add_missing(graph);
    ExecutableOptions executable = options.executable;
    executable.device = options.device;
    r.executable = std::make_unique<Executable>(runtime, graph, store, executable);
    r.context = std::make_unique<Context>(*r.executable);
    return r;
  }

  // The time of the next step of a sequence that has `left` tokens to read.
  int64_t next_time(int64_t left) const {
    int64_t time = 1;
    for (const int64_t t : kTimes) {
      // The rest of a prompt is padded if it fills three quarters of a step. Recurrent models read no
      // padding.
      if (t <= left || (!config.recurrent() && 4 * left >= 3 * t)) time = t;
    }
    return time;
  }

  void check_token(int64_t token) const {
    if (token < 0 || token >= config.vocab)
      throw Error(TENON_INVALID_ARGUMENT, "engine: expected token ids from 0 to " +
                                              std::to_string(config.vocab - 1) + ", got " +
                                              std::to_string(token));
  }
  void check_slot(int64_t slot) const {
    if (slot < 0 || slot >= options.slots)
      throw Error(TENON_INVALID_ARGUMENT, "engine: expected a slot from 0 to " +
                                              std::to_string(options.slots - 1) + ", got " +
                                              std::to_string(slot));
  }
  void check_room(int64_t slot, int64_t more) const {
    const int64_t length = lengths[static_cast<size_t>(slot)];
    if (more > context - length)
      throw Error(TENON_INVALID_ARGUMENT, "engine: slot " + std::to_string(slot) +
                                              " has room for " + std::to_string(context - length) +
                                              " more tokens, got " + std::to_string(more) +
                                              "; hint: a larger context");
  }

  void check(std::span<const Piece> pieces) const {
    std::set<int64_t> slots;
    for (const Piece& piece : pieces) {
      check_slot(piece.slot);
      if (!slots.insert(piece.slot).second)
        throw Error(TENON_INVALID_ARGUMENT,
                    "engine: slot " + std::to_string(piece.slot) + " comes twice in a step");
      if (piece.tokens.empty())
        throw Error(TENON_INVALID_ARGUMENT, "engine: expected at least one token in each piece");
      for (const int64_t token : piece.tokens) check_token(token);
      check_room(piece.slot, static_cast<int64_t>(piece.tokens.size()));
    }
  }

  // Runs a step for one sequence.
  Context& run_one(int64_t slot, std::span<const int64_t> tokens, int64_t time, bool all_logits) {
    Context& run = *runner({1, time, all_logits}).context;
    std::vector<int64_t> padded(tokens.begin(), tokens.end());
    padded.resize(static_cast<size_t>(time), 0);
    int64_t& length = lengths[static_cast<size_t>(slot)];
    run.set("tokens", {1, time}, padded);
    run.set("past", std::vector<int64_t>{length});
    run.set("count", std::vector<int64_t>{static_cast<int64_t>(tokens.size())});
    if (options.slots > 1) run.set("slot", std::vector<int64_t>{slot});
    run.run();
    length += static_cast<int64_t>(tokens.size());
    return run;
  }

  // Reads the tokens step by step. Returns the context of the last one, or nothing if `progress`
  // stopped it.
  Context* read(int64_t slot, std::span<const int64_t> tokens,
                const std::function<bool(int64_t, int64_t)>& progress) {
    const auto total = static_cast<int64_t>(tokens.size());
    Context* last = nullptr;
    for (int64_t at = 0; at < total;) {
      if (progress && !progress(at, total)) return nullptr;
      const int64_t time = next_time(total - at), count = std::min(time, total - at);
      last = &run_one(slot, tokens.subspan(static_cast<size_t>(at), static_cast<size_t>(count)),
                      time, false);
      at += count;
    }
    return last;
  }
};

Engine::Engine(const Runtime& runtime, const std::string& model, const EngineOptions& options) {
  // GPUs have no kernel for products of experts in blocks.
  ModelFiles files = open_model(model, runs_on_cpu(runtime, options.device));
  parts_ =
      std::make_unique<Parts>(runtime, std::move(files.config), std::move(files.tensors), options);
  Parts& p = *parts_;
  if (options.slots < 1 || options.slots > 1 << 16)
    throw Error(TENON_INVALID_ARGUMENT,
                "engine: expected 1 to 65536 slots, got " + std::to_string(options.slots));
  p.context = options.context > 0 ? options.context : std::min<int64_t>(p.config.context, 4096);
  if (p.context > p.config.context)
    throw Error(TENON_INVALID_ARGUMENT, "engine: expected a context of at most " +
                                            std::to_string(p.config.context) +
                                            ", the model's own, got " + std::to_string(p.context));
  const bool on_cpu = runs_on_cpu(runtime, options.device);
  if (options.compute == TENON_DTYPE_NONE)
    p.options.compute = on_cpu ? tenon_dtype{f32} : p.config.dtype;
  if (options.cache == TENON_DTYPE_NONE) {
    const bool half = options.compute == TENON_DTYPE_NONE && on_cpu && p.config.dtype != f32;
    p.options.cache = half ? tenon_dtype{f16} : p.options.compute;
  }
  if (options.products == Products::device)
    p.options.products = on_cpu ? Products::int8 : Products::compute;
  p.lengths.assign(static_cast<size_t>(options.slots), 0);
  try {
    // Names and checks all weights before any content is read.
    step_graph(p.config, p.shape({1, 1, false}), p.weights);
    p.weights.check_unused(
        [&](const std::string& name) { return is_harmless_tensor(name, p.config); });
  } catch (const Error& e) {
    throw Error(e.code(), model + ": " + e.what());
  }
  if (p.adapters) {
    p.adapters->check_used();
    p.adapters->load(p.store);
  }
  p.weights.load(p.store);
  p.runner({1, 1, false});
}

Engine::~Engine() = default;
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&&) noexcept = default;

const ModelConfig& Engine::config() const { return parts_->config; }
int64_t Engine::context() const { return parts_->context; }
int64_t Engine::slots() const { return parts_->options.slots; }
uint64_t Engine::weight_bytes() const { return parts_->weights.bytes(); }

int64_t Engine::length(int64_t slot) const {
  parts_->check_slot(slot);
  return parts_->lengths[static_cast<size_t>(slot)];
}

void Engine::clear(int64_t slot) {
  parts_->check_slot(slot);
  parts_->lengths[static_cast<size_t>(slot)] = 0;
}

bool Engine::truncate(int64_t slot, int64_t length) {
  parts_->check_slot(slot);
  int64_t& now = parts_->lengths[static_cast<size_t>(slot)];
  if (length < 0 || length > now)
    throw Error(TENON_INVALID_ARGUMENT, "engine: slot " + std::to_string(slot) + " has " +
                                            std::to_string(now) + " tokens, cannot keep " +
                                            std::to_string(length));
  const bool can = length == now || length == 0 || !parts_->config.recurrent();
  now = can ? length : 0;
  return can;
}

std::vector<Engine::Next> Engine::step(
    std::span<const Piece> pieces, bool want_logits,
    const std::function<bool(int64_t read, int64_t total)>& progress) {
  Parts& p = *parts_;
  p.check(pieces);
  std::vector<size_t> single;  // pieces of one token
  for (size_t i = 0; i < pieces.size(); ++i)
    if (pieces[i].tokens.size() == 1) single.push_back(i);
  std::vector<Next> out(pieces.size());
  const auto take = [&](Next& to, const std::vector<int64_t>& tokens,
                        const std::vector<float>& logits, size_t row) {
    const auto vocab = static_cast<size_t>(p.config.vocab);
    to.token = tokens[row];
    if (want_logits)
      to.logits.assign(logits.begin() + static_cast<ptrdiff_t>(row * vocab),
                       logits.begin() + static_cast<ptrdiff_t>((row + 1) * vocab));
  };
  const auto results = [&](Context& run) {
    return std::pair(run.get<int64_t>("token"),
                     want_logits ? run.get<float>("logits") : std::vector<float>());
  };
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].tokens.size() == 1 && single.size() > 1) continue;
    Context* run = p.read(pieces[i].slot, pieces[i].tokens, progress);
    if (!run) throw Error(TENON_CANCELLED, "engine: the step was cancelled");
    const auto [tokens, logits] = results(*run);
    take(out[i], tokens, logits, 0);
  }
  if (single.size() < 2) return out;
  if (progress && !progress(0, static_cast<int64_t>(single.size())))
    throw Error(TENON_CANCELLED, "engine: the step was cancelled");
  // All slots take part; those without a piece count no token.
  const int64_t batch = p.options.slots;
  std::vector<int64_t> tokens(static_cast<size_t>(batch), 0), counts(tokens);
  for (const size_t i : single) {
    const auto slot = static_cast<size_t>(pieces[i].slot);
    tokens[slot] = pieces[i].tokens[0], counts[slot] = 1;
  }
  Context& run = *p.runner({batch, 1, false}).context;
  run.set("tokens", {batch, 1}, tokens);
  run.set("past", p.lengths);
  run.set("count", counts);
  run.run();
  const auto [next, logits] = results(run);
  for (const size_t i : single) {
    const auto slot = static_cast<size_t>(pieces[i].slot);
    ++p.lengths[slot];
    take(out[i], next, logits, slot);
  }
  return out;
}

std::vector<float> Engine::all_logits(
    const std::vector<int64_t>& tokens,
    const std::function<bool(int64_t read, int64_t total)>& progress) {
  Parts& p = *parts_;
  clear(0);
  for (const int64_t token : tokens) p.check_token(token);
  p.check_room(0, static_cast<int64_t>(tokens.size()));
  std::vector<float> out;
  const std::span<const int64_t> all(tokens);
  try {
    for (size_t at = 0; at < tokens.size();) {
      const auto left = static_cast<int64_t>(tokens.size() - at);
      if (progress && !progress(static_cast<int64_t>(at), static_cast<int64_t>(tokens.size())))
        throw Error(TENON_CANCELLED, "engine: reading was cancelled");
      const int64_t time = p.next_time(left), count = std::min(time, left);
      Context& run = p.run_one(0, all.subspan(at, static_cast<size_t>(count)), time, true);
      const std::vector<float> logits = run.get<float>("logits");
      out.insert(out.end(), logits.begin(),
                 logits.begin() + static_cast<ptrdiff_t>(count * p.config.vocab));
      at += static_cast<size_t>(count);
    }
  } catch (...) {
    clear(0);
    throw;
  }
  clear(0);
  return out;
}

Finish Engine::generate(const std::vector<int64_t>& prompt, const GenerateOptions& options,
                        const std::function<bool(int64_t)>& callback) {
  Parts& p = *parts_;
  if (options.kept == 0) clear(0);
  if (options.kept != p.lengths[0])
    throw Error(TENON_INVALID_ARGUMENT, "engine: slot 0 has read " + std::to_string(p.lengths[0]) +
                                            " tokens, but the prompt keeps " +
                                            std::to_string(options.kept));
  const auto size = static_cast<int64_t>(prompt.size());
  if (size <= options.kept)
    throw Error(TENON_INVALID_ARGUMENT, "engine: expected a prompt of more than " +
                                            std::to_string(options.kept) + " tokens, got " +
                                            std::to_string(size));
  for (const int64_t token : prompt) p.check_token(token);
  p.check_room(0, size - options.kept);
  Sampler sampler(options.sampling, p.config.vocab);
  if (options.tokens <= 0) return Finish::length;
  for (const int64_t token : prompt) sampler.accept(token);
  Context* run =
      p.read(0, std::span(prompt).subspan(static_cast<size_t>(options.kept)), options.progress);
  if (!run) return Finish::stopped;
  const bool plain = takes_most_likely(options.sampling);  // then the logits stay on the device
  for (int64_t i = 0;; ++i) {
    const int64_t token =
        plain ? run->get<int64_t>("token")[0] : sampler.sample(run->get<float>("logits")).token;
    sampler.accept(token);
    if (!callback(token)) return Finish::stopped;
    const auto ends = [token](const std::vector<int64_t>& list) {
      return std::ranges::find(list, token) != list.end();
    };
    if (options.stop_at_end && (ends(p.config.end_tokens) || ends(options.end_tokens)))
      return Finish::end_token;
    if (i + 1 >= options.tokens) return Finish::length;
    if (p.lengths[0] >= p.context) return Finish::context_full;
    run = &p.run_one(0, {&token, 1}, 1, false);
  }
}

}  // namespace tenon::llm
