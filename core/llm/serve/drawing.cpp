// SPDX-License-Identifier: Apache-2.0
// Draws by the sampler, with the texts of tokens that a client may want to see.
#include "llm/serve/drawing.hpp"

#include <algorithm>
#include <random>

#include "llm/grammar/json_schema.hpp"
#include "llm/sample/sampler.hpp"
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
  // matcher: null if the text is free.
  SamplerSampling(const Wanted& wanted, const SamplingSource& source, const Tokenizer& tokenizer,
                  const std::vector<int32_t>& ends, int64_t vocabulary,
                  std::unique_ptr<GrammarMatcher> matcher)
      : source_(source),
        tokenizer_(tokenizer),
        ends_(ends),
        vocabulary_(vocabulary),
        sampler_(options_of(wanted), vocabulary),
        wants_texts_(wanted.logprobs >= 0),
        matcher_(std::move(matcher)) {
    // As in llama.cpp, the repetition penalty sees the prompt. By the OpenAI protocol the other two
    // count what was generated only, so with them the prompt is left out.
    if (wanted.drawing.presence_penalty == 0 && wanted.drawing.frequency_penalty == 0 &&
        wanted.drawing.repetition_penalty != 1)
      for (const int32_t t : wanted.prompt) sampler_.accept(t);
    if (matcher_) make_mask();
  }

  DrawnToken draw(std::vector<float>& logits) override {
    const Sampled s = sampler_.sample(logits, matcher_ ? &allowed_ : nullptr);
    const auto token = static_cast<int32_t>(s.token);
    sampler_.accept(s.token);
    if (matcher_ && !source_.ends(token)) {
      if (!matcher_->accept(tokenizer_.bytes(token)))
        throw Error(TENON_INTERNAL, "grammar: a token of the mask is not allowed");
      make_mask();
    }
    DrawnToken out;
    out.drawn = described({s.token, s.logprob});
    for (const auto& t : s.top) out.top.push_back(described(t));
    return out;
  }
  bool complete() const override { return complete_; }

 private:
  void make_mask() {
    allowed_ = matcher_->mask();
    allowed_.resize(static_cast<size_t>(vocabulary_ + 63) / 64, 0);
    complete_ = matcher_->complete() &&
                std::all_of(allowed_.begin(), allowed_.end(), [](uint64_t w) { return w == 0; });
    if (!matcher_->complete()) return;
    for (const int32_t t : ends_)
      if (t >= 0 && t < vocabulary_) allowed_[static_cast<size_t>(t) / 64] |= uint64_t{1} << t % 64;
  }
  TokenLogprob described(const llm::TokenLogprob& t) const {
    const auto id = static_cast<int32_t>(t.token);
    // Models may have more logits than the vocabulary has tokens.
    const bool named = wants_texts_ && tokenizer_.has(id);
    return {id,
            !named                      ? ""
            : tokenizer_.is_special(id) ? std::string(tokenizer_.text(id))
                                        : tokenizer_.bytes(id),
            t.logprob};
  }

  const SamplingSource& source_;
  const Tokenizer& tokenizer_;
  const std::vector<int32_t>& ends_;
  int64_t vocabulary_;
  Sampler sampler_;
  bool wants_texts_;
  std::unique_ptr<GrammarMatcher> matcher_;
  TokenMask allowed_;
  bool complete_ = false;
};

}  // namespace

bool SamplingSource::ends(int32_t token) const {
  return std::find(ends_.begin(), ends_.end(), token) != ends_.end();
}

std::shared_ptr<const TokenTree> SamplingSource::tokens() {
  const std::lock_guard lock(mutex_);
  if (!tokens_) {
    std::vector<std::string> bytes(tokenizer_.size());
    for (size_t i = 0; i < bytes.size() && i < static_cast<size_t>(vocabulary_); ++i) {
      const auto id = static_cast<TokenId>(i);
      // Text of a token that ends the answer would never be seen.
      if (tokenizer_.has(id) && !ends(id)) bytes[i] = tokenizer_.bytes(id);
    }
    tokens_ = std::make_shared<const TokenTree>(bytes);
  }
  return tokens_;
}

std::unique_ptr<Sampling> SamplingSource::make(const Wanted& wanted) {
  std::unique_ptr<GrammarMatcher> matcher;
  if (!wanted.schema.is_null())
    matcher = std::make_unique<GrammarMatcher>(
        std::make_shared<const Grammar>(json_schema(wanted.schema)), tokens());
  return std::make_unique<SamplerSampling>(wanted, *this, tokenizer_, ends_, vocabulary_,
                                           std::move(matcher));
}

}  // namespace tenon::llm::serve
