// SPDX-License-Identifier: Apache-2.0
// Masks of grammars for the sampler, and the tokens that end an answer among them.
#include "llm/guided_sampler.hpp"

#include <algorithm>

#include "tenon/tenon.hpp"

namespace tenon::llm {

bool AnswerVocab::ends(int64_t token) const {
  return std::ranges::find(ends_, token) != ends_.end();
}

bool AnswerVocab::has_text(int64_t token) const {
  return tokenizer_ && tokenizer_->has(static_cast<TokenId>(token));
}

std::shared_ptr<const TokenTree> AnswerVocab::tree() const {
  if (!tokenizer_)
    throw Error(
        TENON_NOT_FOUND,
        "grammar: the model has no tokenizer; expected one, because a grammar is about text");
  const std::lock_guard lock(mutex_);
  if (!tree_) {
    std::vector<std::string> bytes(tokenizer_->size());
    for (size_t i = 0; i < bytes.size() && i < static_cast<size_t>(size_); ++i) {
      const auto id = static_cast<TokenId>(i);
      // Text of a token that ends the answer would never be seen.
      if (tokenizer_->has(id) && !ends(id)) bytes[i] = tokenizer_->bytes(id);
    }
    tree_ = std::make_shared<const TokenTree>(bytes);
  }
  return tree_;
}

GuidedSampler::GuidedSampler(const SampleOptions& options, const AnswerVocab& vocab,
                             std::shared_ptr<const Grammar> grammar)
    : vocab_(vocab), sampler_(options, vocab.size()) {
  if (!grammar) return;
  matcher_ = std::make_unique<GrammarMatcher>(std::move(grammar), vocab.tree());
  make_mask();
}

Sampled GuidedSampler::draw(const NextLogits& next) {
  Sampled drawn = sampler_.sample(next, matcher_ ? &allowed_ : nullptr);
  sampler_.accept(drawn.token);
  if (matcher_ && !vocab_.ends(drawn.token)) {
    if (!matcher_->accept(vocab_.tokenizer()->bytes(static_cast<TokenId>(drawn.token))))
      throw Error(TENON_INTERNAL, "grammar: a token of the mask is not allowed");
    make_mask();
  }
  return drawn;
}

void GuidedSampler::make_mask() {
  allowed_ = matcher_->mask();
  allowed_.resize(static_cast<size_t>(vocab_.size() + 63) / 64, 0);
  const bool may_end = matcher_->complete();
  complete_ = may_end && std::ranges::all_of(allowed_, [](uint64_t word) { return word == 0; });
  if (!may_end) return;
  for (const int32_t t : vocab_.end_tokens())
    if (t >= 0 && t < vocab_.size()) allowed_[static_cast<size_t>(t) / 64] |= uint64_t{1} << t % 64;
}

}  // namespace tenon::llm
