// SPDX-License-Identifier: Apache-2.0
// Draws the tokens of one answer: by a sampler, and inside of a grammar if there is one.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "llm/grammar/grammar.hpp"
#include "llm/sample/sampler.hpp"
#include "llm/text/tokenizer.hpp"

namespace tenon::llm {

// The tokens of a model, as answers see them. All functions may be called by many threads at once.
class AnswerVocab {
 public:
  // tokenizer: null if the model has none; used as long as this lives. ends: tokens that end an
  // answer. size: the number of logits.
  AnswerVocab(const Tokenizer* tokenizer, std::vector<int32_t> ends, int64_t size)
      : tokenizer_(tokenizer), ends_(std::move(ends)), size_(size) {}

  const Tokenizer* tokenizer() const { return tokenizer_; }
  std::span<const int32_t> end_tokens() const { return ends_; }
  int64_t size() const { return size_; }
  bool ends(int64_t token) const;
  // Models may have more logits than the vocabulary has tokens.
  bool has_text(int64_t token) const;
  // The tokens by their bytes, without those that end an answer. Made by the first call. Throws
  // NOT_FOUND without a tokenizer.
  std::shared_ptr<const TokenTree> tree() const;

 private:
  const Tokenizer* tokenizer_;
  std::vector<int32_t> ends_;
  int64_t size_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const TokenTree> tree_;
};

class GuidedSampler {
 public:
  // grammar: null for free text. Uses the vocabulary as long as it lives. Throws INVALID_ARGUMENT
  // for options out of range.
  GuidedSampler(const SampleOptions& options, const AnswerVocab& vocab,
                std::shared_ptr<const Grammar> grammar);

  // A token of the prompt, which penalties see.
  void accept_prompt(int64_t token) { sampler_.accept(token); }
  // Draws the next token of the answer.
  Sampled draw(const NextLogits& next);
  // Sampler::scale()
  float scale() const { return sampler_.scale(); }
  // Sampler::needs_all()
  bool needs_all() const { return sampler_.needs_all(); }
  // The grammar allows nothing more.
  bool complete() const { return complete_; }

 private:
  void make_mask();

  const AnswerVocab& vocab_;
  Sampler sampler_;
  std::unique_ptr<GrammarMatcher> matcher_;
  TokenMask allowed_;
  bool complete_ = false;
};

}  // namespace tenon::llm
