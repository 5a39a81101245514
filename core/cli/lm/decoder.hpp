// SPDX-License-Identifier: Apache-2.0
// The decoder of lm train and lm generate: the architecture `llama` of core/llm/arch.
#pragma once

#include "cli/lm/model.hpp"
#include "llm/arch/step.hpp"

namespace tenon::lm {

class Decoder {
 public:
  explicit Decoder(const Config& config);

  // Logits f32 [batch, time, vocab] of complete sequences [batch, time] of at most `context` tokens.
  Value sequence_logits(Graph& g, Value tokens, bool trainable, bool checkpoint);
  // Logits f32 [1, vocab] behind `count` of `tokens` i64 [1, time], which follow the `past` ones in
  // the caches: states cache.<layer>.k and .v.
  Value next_logits(Graph& g, Value tokens, Value past, Value count);

 private:
  llm::StepShape shape(const std::vector<int64_t>& dims) const;

  llm::ModelConfig config_;
  llm::Weights weights_;
};

}  // namespace tenon::lm
