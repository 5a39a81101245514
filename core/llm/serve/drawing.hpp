// SPDX-License-Identifier: Apache-2.0
// How the tokens of an answer are drawn from the logits.
#pragma once

#include <memory>

#include "llm/serve/scheduler.hpp"
#include "llm/text/tokenizer.hpp"

namespace tenon::llm::serve {

// Throws tenon::Error for what `wanted` asks and the model cannot do. vocabulary: the number of
// logits. Uses the tokenizer as long as it lives.
std::unique_ptr<Sampling> make_sampling(const Wanted& wanted, const Tokenizer& tokenizer,
                                        int64_t vocabulary);

}  // namespace tenon::llm::serve
