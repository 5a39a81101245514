// SPDX-License-Identifier: Apache-2.0
// How the tokens of answers are drawn from the logits.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "llm/grammar/grammar.hpp"
#include "llm/serve/scheduler.hpp"
#include "llm/text/tokenizer.hpp"

namespace tenon::llm::serve {

// Makes the sampling of each answer of a model. All functions may be called by many threads at once.
class SamplingSource {
 public:
  // ends: tokens that end an answer. vocabulary: the number of logits. Uses the tokenizer as long
  // as it lives.
  SamplingSource(const Tokenizer& tokenizer, std::vector<int32_t> ends, int64_t vocabulary)
      : tokenizer_(tokenizer), ends_(std::move(ends)), vocabulary_(vocabulary) {}

  // Throws tenon::Error for what `wanted` asks and nobody can do: options out of range, a schema
  // with unknown keywords. What it returns must not outlive the source.
  std::unique_ptr<Sampling> make(const Wanted& wanted);
  bool ends(int32_t token) const;

 private:
  std::shared_ptr<const TokenTree> tokens();

  const Tokenizer& tokenizer_;
  std::vector<int32_t> ends_;
  int64_t vocabulary_;
  std::mutex mutex_;
  std::shared_ptr<const TokenTree> tokens_;  // made for the first answer that follows a schema
};

}  // namespace tenon::llm::serve
