// SPDX-License-Identifier: Apache-2.0
// Connects the scheduler with the engine, the tokenizer, the chat template and the sampling.
#include "llm/serve/engine_served.hpp"

#include <chrono>

namespace tenon::llm::serve {
namespace {

class TextDecoding final : public Decoding {
 public:
  explicit TextDecoding(const Tokenizer& tokenizer) : tokenizer_(tokenizer), words_(tokenizer) {}
  // Models may have more logits than the vocabulary has tokens.
  std::string push(int32_t token) override {
    return tokenizer_.has(token) ? words_.push(token) : "";
  }
  std::string finish() override { return words_.flush(); }

 private:
  const Tokenizer& tokenizer_;
  Detokenizer words_;
};

std::vector<int32_t> narrow(const std::vector<int64_t>& ids) { return {ids.begin(), ids.end()}; }

// The config names the tokens that end a text, the tokenizer those that end a turn.
std::vector<int32_t> ends_of(const Engine& engine, const ModelText& text) {
  std::vector<int32_t> ends = narrow(engine.config().end_tokens), more = narrow(text.end_ids());
  ends.insert(ends.end(), more.begin(), more.end());
  return ends;
}

}  // namespace

class EngineServed::Slots final : public Sequences {
 public:
  Slots(Engine& engine, Pooling pooling)
      : engine_(engine), pooling_(pooling), pools_(static_cast<size_t>(engine.slots())) {}
  int64_t slots() const override { return engine_.slots(); }
  int64_t context() const override { return engine_.context(); }
  std::vector<NextLogits> step(std::span<const Part> parts) override {
    std::vector<Engine::Piece> pieces;
    for (const Part& p : parts)
      pieces.push_back({p.slot, {p.tokens.begin(), p.tokens.end()}, p.scale, p.all});
    return engine_.next_logits(pieces);
  }
  bool truncate(int64_t slot, int64_t length) override { return engine_.truncate(slot, length); }
  std::vector<float> embed(const Part& part, bool last) override {
    const Engine::Piece piece{part.slot, {part.tokens.begin(), part.tokens.end()}};
    std::optional<Pool>& pool = pools_[static_cast<size_t>(part.slot)];
    if (engine_.length(part.slot) == 0) pool.emplace(pooling_, engine_.config().dim);
    engine_.hidden(piece, [&](std::span<const float> rows) { pool->add(rows); });
    return last ? pool->take(true) : std::vector<float>();
  }
  std::vector<std::vector<float>> embed_texts(
      int64_t slot, std::span<const std::vector<int32_t>> texts) override {
    std::vector<std::vector<int64_t>> ids;
    for (const auto& text : texts) ids.emplace_back(text.begin(), text.end());
    const std::vector<float> all = engine_.embed(ids, {.slot = slot, .pooling = pooling_});
    const auto dim = static_cast<ptrdiff_t>(engine_.config().dim);
    std::vector<std::vector<float>> out;
    for (auto at = all.begin(); at != all.end(); at += dim) out.emplace_back(at, at + dim);
    return out;
  }
  int64_t cache_tokens() const override { return engine_.cache_tokens(); }
  int64_t reuse(int64_t slot, std::span<const int32_t> tokens, int64_t) override {
    return engine_.reuse(slot, std::vector<int64_t>(tokens.begin(), tokens.end()));
  }
  bool has_room(std::span<const Growth> growths) const override {
    std::vector<Engine::Growth> all;
    for (const Growth& g : growths) all.push_back({g.slot, g.tokens});
    return engine_.has_room(all);
  }

 private:
  Engine& engine_;
  Pooling pooling_;
  std::vector<std::optional<Pool>> pools_;  // by slot
};

EngineServed::EngineServed(std::string name, Engine engine, ModelText text, SchedulerLimits limits,
                           std::optional<Pooling> pooling)
    : name_(std::move(name)),
      created_(std::chrono::duration_cast<std::chrono::seconds>(
                   std::chrono::system_clock::now().time_since_epoch())
                   .count()),
      engine_(std::move(engine)),
      text_(std::move(text)),
      sampling_(text_.tokenizer(), ends_of(engine_, text_), engine_.config().vocab),
      pooling_(pooling),
      slots_(std::make_unique<Slots>(engine_, pooling.value_or(engine_.config().pooling))),
      scheduler_(std::make_unique<Scheduler>(
          SchedulerParts{*slots_, [this](const Wanted& w) { return sampling_.make(w); },
                         [this] { return std::make_unique<TextDecoding>(text_.tokenizer()); },
                         [this](int32_t t) { return sampling_.ends(t); }},
          limits)) {}

EngineServed::~EngineServed() = default;

int64_t EngineServed::context() const { return engine_.context(); }
int64_t EngineServed::vocabulary() const { return engine_.config().vocab; }
int64_t EngineServed::dim() const { return engine_.config().dim; }

std::vector<int32_t> EngineServed::tokenize(const std::string& text, bool special) const {
  return text_.tokenizer().encode(text, {.add_special = special, .parse_special = true});
}

std::string EngineServed::detokenize(const std::vector<int32_t>& tokens) const {
  return text_.tokenizer().decode(tokens);
}

std::vector<int32_t> EngineServed::chat_tokens(const nlohmann::ordered_json& messages,
                                               const nlohmann::ordered_json& tools,
                                               const nlohmann::ordered_json& variables) const {
  ChatOptions options;
  options.messages = messages;
  // The protocol's newer name of the role, which most templates lack.
  if (!text_.knows_developer())
    for (auto& message : options.messages)
      if (message["role"] == "developer") message["role"] = "system";
  options.tools = tools;
  options.extra = variables;
  return narrow(text_.chat_ids(options));
}

std::unique_ptr<Answer> EngineServed::submit(Wanted wanted) {
  // In a step of several answers, a token that the model lacks would fail them all.
  const auto check = [this](const std::vector<int32_t>& tokens, const char* what) {
    for (const int32_t t : tokens)
      if (t < 0 || t >= vocabulary())
        throw Error(TENON_INVALID_ARGUMENT, std::string(what) + ": the model has no token " +
                                                std::to_string(t) + ", only tokens below " +
                                                std::to_string(vocabulary()));
  };
  check(wanted.prompt, "prompt");
  for (const auto& text : wanted.texts) check(text, "input");
  if (!wanted.texts.empty() && !pooling_) own_pooling(engine_.config());
  return scheduler_->submit(std::move(wanted));
}

}  // namespace tenon::llm::serve
