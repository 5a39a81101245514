// SPDX-License-Identifier: Apache-2.0
// Draws by the sampler, with the texts of tokens that a client may want to see.
#include "llm/serve/drawing.hpp"

#include <algorithm>
#include <random>

#include "llm/grammar/json_schema.hpp"
#include "tenon/tenon.hpp"

namespace tenon::llm::serve {
namespace {

SampleOptions options_of(const Wanted& wanted) {
  const Drawing& d = wanted.drawing;
  SampleOptions o;
  o.temperature = d.temperature;
  o.top_k = d.top_k;
  o.top_p = std::max(d.top_p, 1e-9);  // 0 is the most likely token
  o.min_p = d.min_p;
  o.repetition_penalty = d.repetition_penalty;
  o.presence_penalty = d.presence_penalty;
  o.frequency_penalty = d.frequency_penalty;
  for (const auto& [token, bias] : d.bias)
    o.logit_bias.emplace_back(token, static_cast<float>(bias));
  o.seed = d.seed ? *d.seed : std::random_device{}() | uint64_t{std::random_device{}()} << 32;
  o.top_logprobs = wanted.logprobs;
  return o;
}

class SamplerSampling final : public Sampling {
 public:
  // grammar: null if the text is free.
  SamplerSampling(const Wanted& wanted, const AnswerVocab& vocab,
                  std::shared_ptr<const Grammar> grammar)
      : vocab_(vocab),
        sampler_(options_of(wanted), vocab, std::move(grammar)),
        wants_texts_(wanted.logprobs >= 0) {
    // As in llama.cpp, the repetition penalty sees the prompt. By the OpenAI protocol the other two
    // count what was generated only, so with them the prompt is left out.
    if (wanted.drawing.presence_penalty == 0 && wanted.drawing.frequency_penalty == 0 &&
        wanted.drawing.repetition_penalty != 1)
      for (const int32_t t : wanted.prompt) sampler_.accept_prompt(t);
  }

  float scale() const override { return sampler_.scale(); }
  bool needs_all() const override { return sampler_.needs_all(); }
  DrawnToken draw(const NextLogits& next) override {
    const Sampled s = sampler_.draw(next);
    DrawnToken out;
    out.drawn = described({s.token, s.logprob});
    for (const auto& t : s.top) out.top.push_back(described(t));
    return out;
  }
  bool complete() const override { return sampler_.complete(); }

 private:
  TokenLogprob described(const llm::TokenLogprob& t) const {
    const auto id = static_cast<int32_t>(t.token);
    const bool named = wants_texts_ && vocab_.has_text(id);
    return {id,
            !named                               ? ""
            : vocab_.tokenizer()->is_special(id) ? std::string(vocab_.tokenizer()->text(id))
                                                 : vocab_.tokenizer()->bytes(id),
            t.logprob};
  }

  const AnswerVocab& vocab_;
  GuidedSampler sampler_;
  bool wants_texts_;
};

}  // namespace

std::unique_ptr<Sampling> SamplingSource::make(const Wanted& wanted) {
  std::shared_ptr<const Grammar> grammar;
  if (!wanted.schema.is_null())
    grammar = std::make_shared<const Grammar>(json_schema(wanted.schema));
  return std::make_unique<SamplerSampling>(wanted, vocab_, std::move(grammar));
}

}  // namespace tenon::llm::serve
