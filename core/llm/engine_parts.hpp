// SPDX-License-Identifier: Apache-2.0
// The state of an engine, and the steps that it runs: their inputs, and what the cache holds then.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "llm/arch/step.hpp"
#include "llm/cache_blocks.hpp"
#include "llm/embedding.hpp"
#include "llm/engine.hpp"
#include "llm/sequence_cache.hpp"
#include "llm/step_logits.hpp"

namespace tenon::llm {

// Tokens of a step. A graph is compiled for each number that is used.
inline constexpr int64_t kTimes[] = {1, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048};
// Most tokens of one step. On a GPU, each step of many tokens decodes all weights in blocks, so long
// steps save time. On the cpu nothing is gained beyond 512.
inline constexpr int64_t kLongestOnCpu = 512, kLongestElsewhere = 2048;
// Tokens of a block of the cache: attention on the cpu reads so many keys at a time, and on a GPU
// copies of 32 keys stay within a block.
inline constexpr int64_t kBlock = 96;
inline constexpr int64_t kCopied = 128;  // rows of the cache that one run copies

struct Engine::Parts {
  struct Runner {
    std::unique_ptr<Executable> executable;
    std::unique_ptr<Context> context;
  };
  struct Key {
    int64_t batch, time;
    bool all_logits, hidden = false, candidates = false;
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
  int64_t context = 0, longest_step = kLongestOnCpu;
  std::optional<SequenceCache> cache;
  std::vector<CacheState> states;  // of keys and values
  bool joint_decoding = false;     // StepShape::joint_decoding
  std::map<Key, Runner> runners;
  std::optional<StepLogits> step_logits;  // of the last step for draws
  Runner copier;

  // dequant_matmul's attribute `compute`.
  std::string block_product() const {
    if (options.products == Products::int8) return "int8";
    return std::string(options.products == Products::compute ? sdk::dtype_name(options.compute)
                                                             : "f32");
  }
  StepShape shape(const Key& key) {
    return {.slots = options.slots,
            .capacity = context,
            .block = cache->shape().block,
            .blocks = cache->shape().blocks,
            .batch = key.batch,
            .time = key.time,
            .all_logits = key.all_logits,
            .hidden = key.hidden,
            .candidates = key.candidates,
            .compute = options.compute,
            .cache = options.cache,
            .block_product = block_product(),
            .lora = adapters ? &*adapters : nullptr,
            .stack_weights = *options.stack_weights,
            .joint_decoding = joint_decoding};
  }
  void compile(Runner& r, const Graph& graph) {
    store.add_missing(graph);
    ExecutableOptions executable = options.executable;
    executable.device = options.device;
    executable.batch_invariant = options.batch_invariant.value_or(false);
    r.executable = std::make_unique<Executable>(runtime, graph, store, executable);
    r.context = std::make_unique<Context>(*r.executable);
  }
  // Chooses the memory of keys and values, and names it in `states`.
  void make_cache(bool on_cpu, const Key& first) {
    CacheShape shape_of_cache{
        .slots = options.slots, .context = context, .recurrent = config.recurrent()};
    const bool all = options.cache_tokens == 0 || options.cache_tokens == options.slots * context;
    const auto make = [&](bool blocks) {
      CacheShape& c = shape_of_cache;
      c.block = blocks ? kBlock : 0;
      c.slots = options.slots + (blocks ? kTextSequences : 0);
      c.blocks = !blocks ? 0
                 : all   ? options.slots * c.blocks_of(context)  // a context takes whole blocks
                         : c.blocks_of(options.cache_tokens);
      cache.emplace(c);
      step_graph(config, shape(first), weights, &states);
    };
    const bool quantized = in_blocks(options.cache);
    const auto natively = [&](int64_t block) {
      return attends_natively(runtime, options.device, config,
                              quantized ? options.compute : options.cache, states, block);
    };
    make(!config.recurrent() && options.cache_blocks.value_or(on_cpu));
    if (cache->shape().block == 0 && !config.recurrent() && !options.cache_blocks &&
        (options.slots > 1 || !all) && natively(kBlock))
      make(true);
    if (quantized && !on_cpu && !natively(cache->shape().block))
      throw Error(TENON_UNSUPPORTED,
                  "engine: device '" + options.device + "' has no kernels for a cache of " +
                      std::string(sdk::dtype_name(options.cache)) + " beside activations of " +
                      std::string(sdk::dtype_name(options.compute)) +
                      "; expected a cache of f32, f16 or bf16; hint: a GPU reads it beside "
                      "activations of f16 or bf16 (--compute)");
    // The cpu runs the parts one by one, so it need not be asked.
    joint_decoding =
        !on_cpu && !config.recurrent() && options.cache == options.compute &&
        decodes_natively(runtime, options.device, config, states, cache->shape().block);
    if (cache->shape().block == 0 && !all)
      throw Error(TENON_UNSUPPORTED,
                  "engine: a cache of " + std::to_string(options.cache_tokens) +
                      " tokens: slots of this device and model have memory of their own; expected "
                      "slots * context, " +
                      std::to_string(options.slots * context));
  }
  // Can some device make all of this model batch invariant? Of cuda's kernels, those of halves with heads of
  // at most 128 elements are, and products with blocks that are not rounded.
  bool can_be_batch_invariant() const {
    constexpr int64_t kWidestHead = 128, kElements = 8;
    const bool halves = options.compute == f16 || options.compute == bf16;
    const bool narrow = std::ranges::all_of(states, [](const CacheState& s) {
      return s.type.dims.back() <= kWidestHead && s.type.dims.back() % kElements == 0;
    });
    return halves && narrow && options.cache == options.compute && !config.recurrent() &&
           config.moe.experts == 0 && config.alibi.slopes.empty() && config.latent.kv_rank == 0 &&
           config.altup.streams == 0 &&
           (options.products == Products::f32 || !weights.has_blocks());
  }
  Context& runner(const Key& key) {
    Runner& r = runners[key];
    if (!r.context) compile(r, step_graph(config, shape(key), weights));
    return *r.context;
  }

  // Sequences of a step, in the order of its batch.
  struct Part {
    int64_t slot;
    std::span<const int64_t> tokens;
    float scale = 1;  // of the candidates
  };
  // Runs a step. There may be fewer parts than sequences in its batch.
  Context& run(std::span<const Part> parts, const Key& key) {
    const CacheShape& at = cache->shape();
    for (const Part& p : parts) cache->reserve(p.slot, static_cast<int64_t>(p.tokens.size()));
    Context& run = runner(key);
    const auto batch = static_cast<size_t>(key.batch), time = static_cast<size_t>(key.time);
    const auto table = static_cast<size_t>(at.block > 0 ? at.blocks_of(context) : 0);
    std::vector<int64_t> tokens(batch * time, 0), past(batch, 0), count(batch, 0), slot(batch, 0),
        rows(at.block > 0 ? batch * time : 0, at.rows()), blocks(batch * table, 0);
    for (size_t i = 0; i < parts.size(); ++i) {
      const Part& p = parts[i];
      std::ranges::copy(p.tokens, tokens.begin() + static_cast<ptrdiff_t>(i * time));
      past[i] = cache->length(p.slot), count[i] = static_cast<int64_t>(p.tokens.size());
      slot[i] = p.slot;
      if (at.block == 0) continue;
      for (size_t k = 0; k < p.tokens.size(); ++k)
        rows[i * time + k] = cache->row(p.slot, past[i] + static_cast<int64_t>(k));
      std::ranges::copy(cache->blocks(p.slot), blocks.begin() + static_cast<ptrdiff_t>(i * table));
    }
    run.set("tokens", {key.batch, key.time}, tokens);
    if (key.candidates) {
      std::vector<float> scale(batch, 1);
      for (size_t i = 0; i < parts.size(); ++i) scale[i] = parts[i].scale;
      run.set("scale", scale);
    }
    run.set("past", past);
    run.set("count", count);
    if (at.block > 0) {
      run.set("rows", {key.batch, key.time}, rows);
      run.set("block_table", {key.batch, static_cast<int64_t>(table)}, blocks);
    } else if (key.batch < options.slots) {
      run.set("slot", slot);
    }
    run.run();
    // Texts to embed leave no prefix: it would take the memory of one that a chat comes back to.
    for (const Part& p : parts) cache->append(p.slot, p.tokens, !key.hidden);
    return run;
  }

  void copy(const std::optional<RowCopy>& rows) {
    if (!rows) return;
    if (!copier.context) compile(copier, copy_graph(states, kCopied));
    for (int64_t at = 0; at < rows->count; at += kCopied) {
      std::vector<int64_t> from(kCopied, 0), to(kCopied, cache->shape().rows());
      for (int64_t k = 0; k < std::min(kCopied, rows->count - at); ++k) {
        from[static_cast<size_t>(k)] = rows->from + at + k;
        to[static_cast<size_t>(k)] = rows->to + at + k;
      }
      copier.context->set("from", from);
      copier.context->set("to", to);
      copier.context->run();
    }
  }

  // The time of the next step of a sequence that has `left` tokens to read.
  int64_t next_time(int64_t left) const {
    int64_t time = 1;
    for (const int64_t t : kTimes) {
      if (t > longest_step) break;
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
  std::string context_hint() const {
    return context < config.context
               ? "; hint: a larger context"
               : "; the model's own context is " + std::to_string(config.context);
  }
  void check_prompt(int64_t tokens) const {
    if (tokens > context)
      throw Error(TENON_INVALID_ARGUMENT,
                  "engine: expected a prompt of at most " + std::to_string(context) +
                      " tokens, the context, got " + std::to_string(tokens) + context_hint());
  }
  void check_room(int64_t slot, int64_t more) const {
    const int64_t length = cache->length(slot);
    if (more <= context - length) return;
    throw Error(TENON_INVALID_ARGUMENT,
                "engine: slot " + std::to_string(slot) + ": expected at most " +
                    std::to_string(context - length) + " more tokens, got " + std::to_string(more) +
                    context_hint());
  }

  void check(std::span<const Piece> pieces) const {
    std::set<int64_t> slots;
    int64_t blocks = 0;
    for (const Piece& piece : pieces) {
      check_slot(piece.slot);
      if (!slots.insert(piece.slot).second)
        throw Error(TENON_INVALID_ARGUMENT,
                    "engine: slot " + std::to_string(piece.slot) + " comes twice in a step");
      if (piece.tokens.empty())
        throw Error(TENON_INVALID_ARGUMENT, "engine: expected at least one token in each piece");
      for (const int64_t token : piece.tokens) check_token(token);
      check_room(piece.slot, static_cast<int64_t>(piece.tokens.size()));
      blocks += cache->needed(piece.slot, static_cast<int64_t>(piece.tokens.size()));
    }
    if (blocks > cache->available())
      throw Error(TENON_OUT_OF_MEMORY,
                  "engine: the cache has room for " + std::to_string(cache->shape().rows()) +
                      " tokens; the step needs " + std::to_string(blocks) + " more blocks of " +
                      std::to_string(kBlock) + ", but " + std::to_string(cache->available()) +
                      " are left; hint: a larger cache, or clear slots");
  }

  // Runs a step for one sequence.
  Context& run_one(int64_t slot, std::span<const int64_t> tokens, int64_t time, bool all_logits,
                   bool hidden = false) {
    const Part part{slot, tokens};
    return run({&part, 1}, {1, time, all_logits, hidden});
  }

  // Reads the tokens step by step. Returns the context of the last one, or nothing if `progress`
  // stopped it. candidates: of a part of one token.
  Context* read(const Part& part, bool candidates,
                const std::function<bool(int64_t, int64_t)>& progress) {
    const auto total = static_cast<int64_t>(part.tokens.size());
    Context* last = nullptr;
    for (int64_t at = 0; at < total;) {
      if (progress && !progress(at, total)) return nullptr;
      const int64_t time = next_time(total - at), count = std::min(time, total - at);
      const Part some{part.slot,
                      part.tokens.subspan(static_cast<size_t>(at), static_cast<size_t>(count)),
                      part.scale};
      last = &run({&some, 1}, {1, time, false, false, candidates && total == 1});
      at += count;
    }
    return last;
  }

  // The same. Gives `take` a row of numbers for each token: its hidden state or its logits.
  void read_rows(int64_t slot, std::span<const int64_t> tokens, bool hidden,
                 const std::function<bool(int64_t, int64_t)>& progress,
                 const std::function<void(std::span<const float>)>& take) {
    const auto total = static_cast<int64_t>(tokens.size());
    for (int64_t at = 0; at < total;) {
      if (progress && !progress(at, total))
        throw Error(TENON_CANCELLED, "engine: reading was cancelled");
      const int64_t time = next_time(total - at), count = std::min(time, total - at);
      Context& run =
          run_one(slot, tokens.subspan(static_cast<size_t>(at), static_cast<size_t>(count)), time,
                  !hidden, hidden);
      const std::vector<float> rows = run.get<float>(hidden ? "hidden" : "logits");
      take(
          std::span(rows).first(static_cast<size_t>(count * (hidden ? config.dim : config.vocab))));
      at += count;
    }
  }
};

}  // namespace tenon::llm
