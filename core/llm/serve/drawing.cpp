// SPDX-License-Identifier: Apache-2.0
// Draws by the sampler, with the texts of tokens that a client may want to see.
#include "llm/serve/drawing.hpp"

#include <random>

#include "llm/sample/sampler.hpp"

namespace tenon::llm::serve {
namespace {

SampleOptions options_of(const Wanted& wanted) {
  const Drawing& d = wanted.drawing;
  SampleOptions o;
  o.temperature = d.temperature;
  o.top_k = d.top_k;
  o.top_p = d.top_p;
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
  SamplerSampling(const Wanted& wanted, const Tokenizer& tokenizer, int64_t vocabulary)
      : tokenizer_(tokenizer),
        sampler_(options_of(wanted), vocabulary),
        wants_texts_(wanted.logprobs >= 0) {
    // As in llama.cpp, the repetition penalty sees the prompt. The OpenAI protocol counts only what
    // was generated for the other two, so they and the prompt's tokens do not go together.
    if (wanted.drawing.presence_penalty == 0 && wanted.drawing.frequency_penalty == 0 &&
        wanted.drawing.repetition_penalty != 1)
      for (const int32_t t : wanted.prompt) sampler_.accept(t);
  }

  DrawnToken draw(std::vector<float>& logits) override {
    const Sampled s = sampler_.sample(logits);
    sampler_.accept(s.token);
    DrawnToken out;
    out.drawn = described({s.token, s.logprob});
    for (const auto& t : s.top) out.top.push_back(described(t));
    return out;
  }

 private:
  TokenLogprob described(const llm::TokenLogprob& t) const {
    const auto id = static_cast<int32_t>(t.token);
    // Logits may have more rows than the vocabulary has tokens.
    const bool named = wants_texts_ && tokenizer_.has(id);
    return {id, named ? tokenizer_.decode(std::span(&id, 1)) : "", t.logprob};
  }

  const Tokenizer& tokenizer_;
  Sampler sampler_;
  bool wants_texts_;
};

}  // namespace

std::unique_ptr<Sampling> make_sampling(const Wanted& wanted, const Tokenizer& tokenizer,
                                        int64_t vocabulary) {
  if (!wanted.schema.is_null())
    throw Error(TENON_UNSUPPORTED, "response_format: only text is supported");
  return std::make_unique<SamplerSampling>(wanted, tokenizer, vocabulary);
}

}  // namespace tenon::llm::serve
