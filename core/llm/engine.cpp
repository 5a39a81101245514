// SPDX-License-Identifier: Apache-2.0
// Loads a model, compiles a graph for each number of tokens that a step reads, and runs them.
#include "llm/engine.hpp"

#include <algorithm>
#include <bit>
#include <map>
#include <optional>
#include <set>

#include "llm/embedding.hpp"
#include "llm/engine_parts.hpp"

namespace tenon::llm {

Engine::Engine(const Runtime& runtime, const std::string& model, const EngineOptions& options) {
  const bool on_cpu = runs_on_cpu(runtime, options.device);
  ModelFiles files = open_model(model, {.on_cpu = on_cpu, .compute = options.compute});
  parts_ =
      std::make_unique<Parts>(runtime, std::move(files.config), std::move(files.tensors), options);
  Parts& p = *parts_;
  p.longest_step = on_cpu ? kLongestOnCpu : kLongestElsewhere;
  if (options.slots < 1 || options.slots > 1 << 16)
    throw Error(TENON_INVALID_ARGUMENT,
                "engine: expected 1 to 65536 slots, got " + std::to_string(options.slots));
  p.context = options.context > 0 ? options.context : std::min<int64_t>(p.config.context, 4096);
  if (p.context > p.config.context)
    throw Error(TENON_INVALID_ARGUMENT, "engine: expected a context of at most " +
                                            std::to_string(p.config.context) +
                                            ", the model's own, got " + std::to_string(p.context));
  p.options.compute = activations_of(p.config, {.on_cpu = on_cpu, .compute = options.compute});
  if (options.cache == TENON_DTYPE_NONE) {
    const bool half = options.compute == TENON_DTYPE_NONE && on_cpu && p.config.dtype != f32;
    p.options.cache = half ? tenon_dtype{f16} : p.options.compute;
  }
  if (in_blocks(p.options.cache) && !p.config.attends())
    throw Error(TENON_UNSUPPORTED,
                "engine: a cache of " + std::string(sdk::dtype_name(p.options.cache)) +
                    " (--cache): expected a model with keys and values; '" +
                    std::string(p.config.architecture->model_type) + "' has none");
  const bool must_be_invariant = options.batch_invariant.value_or(false) && !on_cpu;
  if (options.products == Products::device)
    p.options.products = on_cpu              ? Products::int8
                         : must_be_invariant ? Products::f32
                                             : Products::compute;
  if (!options.candidates) p.options.candidates = !on_cpu;
  if (!options.stack_weights) p.options.stack_weights = !on_cpu;
  if (options.cache_tokens != 0 && options.cache_tokens < p.context)
    throw Error(TENON_INVALID_ARGUMENT,
                "engine: expected a cache of at least " + std::to_string(p.context) +
                    " tokens, the context, got " + std::to_string(options.cache_tokens));
  if (options.cache_tokens > options.slots * p.context)
    throw Error(TENON_INVALID_ARGUMENT,
                "engine: expected a cache of at most " + std::to_string(options.slots * p.context) +
                    " tokens, slots * context, got " + std::to_string(options.cache_tokens));
  if (options.cache_blocks.value_or(false) && p.config.recurrent())
    throw Error(TENON_UNSUPPORTED,
                "engine: a cache of blocks: '" + std::string(p.config.architecture->model_type) +
                    "' is recurrent, so each slot has one state; expected a model without states");
  const Parts::Key first{1, 1, false, p.config.headless};
  try {
    // Names and checks all weights before any content is read.
    p.make_cache(on_cpu, first);
    p.weights.check_unused(
        [&](const std::string& name) { return is_harmless_tensor(name, p.config); });
  } catch (const Error& e) {
    throw Error(e.code(), model + ": " + e.what());
  }
  if (must_be_invariant && options.products == Products::compute && p.weights.has_blocks())
    throw Error(
        TENON_INVALID_ARGUMENT,
        "engine: batch_invariant: expected products of f32, got compute, which rounds weights "
        "where rows are many");
  if (!options.batch_invariant) p.options.batch_invariant = p.can_be_batch_invariant();
  if (p.adapters) {
    p.adapters->check_used();
    p.adapters->load(p.store);
  }
  p.weights.load(p.store);
  p.step_logits.emplace(runtime, p.store, p.config.vocab);
  p.runner(first);
}

Engine::~Engine() = default;
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&&) noexcept = default;

const ModelConfig& Engine::config() const { return parts_->config; }
int64_t Engine::context() const { return parts_->context; }
int64_t Engine::slots() const { return parts_->options.slots; }
int64_t Engine::longest_step() const { return parts_->longest_step; }
uint64_t Engine::weight_bytes() const { return parts_->weights.bytes(); }

int64_t Engine::cache_tokens() const { return parts_->cache->shape().rows(); }
int64_t Engine::block() const { return parts_->cache->shape().block; }

int64_t Engine::length(int64_t slot) const {
  parts_->check_slot(slot);
  return parts_->cache->length(slot);
}

void Engine::clear(int64_t slot) {
  parts_->check_slot(slot);
  parts_->cache->truncate(slot, 0);
}

bool Engine::truncate(int64_t slot, int64_t length) {
  parts_->check_slot(slot);
  const int64_t now = parts_->cache->length(slot);
  if (length < 0 || length > now)
    throw Error(TENON_INVALID_ARGUMENT, "engine: slot " + std::to_string(slot) + " has " +
                                            std::to_string(now) + " tokens, cannot keep " +
                                            std::to_string(length));
  const bool can = length == now || length == 0 || !parts_->config.recurrent();
  parts_->copy(parts_->cache->truncate(slot, can ? length : 0));
  return can;
}

int64_t Engine::reuse(int64_t slot, std::span<const int64_t> tokens) {
  parts_->check_slot(slot);
  if (tokens.empty())
    throw Error(TENON_INVALID_ARGUMENT, "engine: expected at least one token to begin with");
  try {
    parts_->copy(parts_->cache->reuse(slot, tokens));
  } catch (...) {
    parts_->cache->truncate(slot, 0);  // rows may be missing
    throw;
  }
  return parts_->cache->length(slot);
}

bool Engine::has_room(std::span<const Growth> growths) const {
  int64_t blocks = 0;
  for (const Growth& g : growths) {
    parts_->check_slot(g.slot);
    blocks += std::max<int64_t>(parts_->cache->needed(g.slot, g.tokens), 0);
  }
  return blocks <= parts_->cache->available();
}

// Gives `take` each run, the sequences in it, and the rows of its results that pieces have.
void Engine::read(
    std::span<const Piece> pieces, bool candidates,
    const std::function<bool(int64_t read, int64_t total)>& progress,
    const std::function<void(Context& run, int64_t batch, std::span<const Row> rows)>& take) {
  Parts& p = *parts_;
  p.check(pieces);
  std::vector<size_t> single;  // pieces of one token
  for (size_t i = 0; i < pieces.size(); ++i)
    if (pieces[i].tokens.size() == 1) single.push_back(i);
  const auto read_alone = [&](size_t i) {
    const Piece& piece = pieces[i];
    Context* run = p.read({piece.slot, piece.tokens, piece.scale}, candidates, progress);
    if (!run) throw Error(TENON_CANCELLED, "engine: the step was cancelled");
    const Row row{i, 0};
    take(*run, 1, {&row, 1});
  };
  // Single tokens come last: the end of a prompt may be one token, and take their context.
  for (size_t i = 0; i < pieces.size(); ++i)
    if (pieces[i].tokens.size() > 1) read_alone(i);
  if (single.size() == 1) read_alone(single[0]);
  if (single.size() < 2) return;
  if (progress && !progress(0, static_cast<int64_t>(single.size())))
    throw Error(TENON_CANCELLED, "engine: the step was cancelled");
  // With slots of their own memory, all take part, and those without a piece count no token.
  const bool in_blocks = p.cache->shape().block > 0;
  int64_t batch = p.options.slots;
  std::vector<Parts::Part> together(in_blocks ? 0 : static_cast<size_t>(batch));
  for (size_t i = 0; i < together.size(); ++i) together[i].slot = static_cast<int64_t>(i);
  std::vector<Row> rows;
  for (const size_t i : single) {
    const Parts::Part part{pieces[i].slot, pieces[i].tokens, pieces[i].scale};
    rows.push_back({i, in_blocks ? together.size() : static_cast<size_t>(part.slot)});
    if (in_blocks)
      together.push_back(part);
    else
      together[rows.back().row] = part;
  }
  if (in_blocks)
    batch = std::min<int64_t>(batch, static_cast<int64_t>(std::bit_ceil(together.size())));
  take(p.run(together, {batch, 1, false, false, candidates}), batch, rows);
}

std::vector<Engine::Next> Engine::step(
    std::span<const Piece> pieces, bool want_logits,
    const std::function<bool(int64_t read, int64_t total)>& progress) {
  std::vector<Next> out(pieces.size());
  const auto take = [&](Context& run, int64_t, std::span<const Row> rows) {
    const auto tokens = run.get<int64_t>("token");
    auto logits = want_logits ? run.get<float>("logits") : std::vector<float>();
    const auto vocab = static_cast<size_t>(config().vocab);
    for (const Row& r : rows) {
      Next& to = out[r.piece];
      to.token = tokens[r.row];
      if (want_logits && logits.size() == vocab)
        to.logits = std::move(logits);
      else if (want_logits)
        to.logits.assign(logits.begin() + static_cast<ptrdiff_t>(r.row * vocab),
                         logits.begin() + static_cast<ptrdiff_t>((r.row + 1) * vocab));
    }
  };
  read(pieces, false, progress, take);
  return out;
}

std::vector<NextLogits> Engine::next_logits(
    std::span<const Piece> pieces,
    const std::function<bool(int64_t read, int64_t total)>& progress) {
  Parts& p = *parts_;
  std::vector<NextLogits> out(pieces.size());
  const auto take = [&](Context& run, int64_t batch, std::span<const Row> rows) {
    if (pieces[rows[0].piece].tokens.size() > 1) {  // the next piece may take the same context
      const auto kept = std::make_shared<const std::vector<float>>(run.get<float>("logits"));
      out[rows[0].piece].all = [kept] { return std::span(*kept); };
      return;
    }
    std::vector<float> scales(static_cast<size_t>(batch), 1);
    std::vector<size_t> wanted;
    for (const Row& r : rows) {
      scales[r.row] = pieces[r.piece].scale;
      if (pieces[r.piece].all) wanted.push_back(r.row);
    }
    p.step_logits->take(run, std::move(scales), *p.options.candidates, std::move(wanted));
    for (const Row& r : rows) out[r.piece] = p.step_logits->row(r.row);
  };
  read(pieces, *p.options.candidates, progress, take);
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
  try {
    p.read_rows(0, tokens, false, progress, [&](std::span<const float> logits) {
      out.insert(out.end(), logits.begin(), logits.end());
    });
  } catch (...) {
    clear(0);
    throw;
  }
  clear(0);
  return out;
}

void Engine::hidden(const Piece& piece, const std::function<void(std::span<const float>)>& take,
                    const std::function<bool(int64_t read, int64_t total)>& progress) {
  parts_->check({&piece, 1});
  parts_->read_rows(piece.slot, piece.tokens, true, progress, take);
}

Finish Engine::generate(const std::vector<int64_t>& prompt, const GenerateOptions& options,
                        const std::function<bool(int64_t)>& callback) {
  Parts& p = *parts_;
  if (options.kept == 0) clear(0);
  if (options.kept != p.cache->length(0))
    throw Error(TENON_INVALID_ARGUMENT,
                "engine: slot 0 has read " + std::to_string(p.cache->length(0)) +
                    " tokens, but the prompt keeps " + std::to_string(options.kept));
  const auto size = static_cast<int64_t>(prompt.size());
  if (size <= options.kept)
    throw Error(TENON_INVALID_ARGUMENT, "engine: expected a prompt of more than " +
                                            std::to_string(options.kept) + " tokens, got " +
                                            std::to_string(size));
  for (const int64_t token : prompt) p.check_token(token);
  p.check_prompt(size);
  Sampler sampler(options.sampling, p.config.vocab);
  if (options.tokens <= 0) return Finish::length;
  for (const int64_t token : prompt) sampler.accept(token);
  const std::span<const int64_t> unread =
      std::span(prompt).subspan(static_cast<size_t>(options.kept));
  Context* run = p.read({0, unread}, false, options.progress);
  if (!run) return Finish::stopped;
  const bool plain = takes_most_likely(options.sampling);  // then the logits stay on the device
  const bool candidates = !plain && *p.options.candidates;
  for (int64_t i = 0;; ++i) {
    int64_t token = 0;
    if (plain) {
      token = run->get<int64_t>("token")[0];
    } else {
      p.step_logits->take(*run, {sampler.scale()}, candidates && i > 0);
      token = sampler.sample(p.step_logits->row(0)).token;
    }
    sampler.accept(token);
    if (!callback(token)) return Finish::stopped;
    const auto ends = [token](const std::vector<int64_t>& list) {
      return std::ranges::find(list, token) != list.end();
    };
    if (options.stop_at_end && (ends(p.config.end_tokens) || ends(options.end_tokens)))
      return Finish::end_token;
    if (i + 1 >= options.tokens) return Finish::length;
    if (p.cache->length(0) >= p.context) return Finish::context_full;
    const Parts::Part part{0, {&token, 1}, sampler.scale()};
    run = &p.run({&part, 1}, {1, 1, false, false, candidates});
  }
}

}  // namespace tenon::llm
