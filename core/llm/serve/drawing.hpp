// SPDX-License-Identifier: Apache-2.0
// How the tokens of answers are drawn from the logits.
#pragma once

#include <memory>
#include <vector>

#include "llm/guided_sampler.hpp"
#include "llm/serve/scheduler.hpp"

namespace tenon::llm::serve {

// Makes the sampling of each answer of a model. All functions may be called by many threads at once.
class SamplingSource {
 public:
  // ends: tokens that end an answer. vocabulary: the number of logits. Uses the tokenizer as long
  // as it lives.
  SamplingSource(const Tokenizer& tokenizer, std::vector<int32_t> ends, int64_t vocabulary)
      : vocab_(&tokenizer, std::move(ends), vocabulary) {}

  // Throws tenon::Error for what `wanted` asks and nobody can do: options out of range, a schema
  // with unknown keywords. What it returns must not outlive the source.
  std::unique_ptr<Sampling> make(const Wanted& wanted);
  bool ends(int32_t token) const { return vocab_.ends(token); }

 private:
  AnswerVocab vocab_;
};

}  // namespace tenon::llm::serve
