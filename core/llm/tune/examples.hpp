// SPDX-License-Identifier: Apache-2.0
// What a model learns from: texts, or JSON lines with texts, prompts and their completions, or
// conversations.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "llm/model_text.hpp"

namespace tenon::llm {

// A sequence of at least two tokens. Token i + 1 is learned from those before it if learned[i + 1].
struct Example {
  std::vector<int32_t> tokens;
  std::vector<uint8_t> learned;
};

struct Examples {
  std::vector<Example> list;
  int64_t learned = 0;    // tokens that are learned, in all
  int64_t cut = 0;        // examples that were longer than allowed, and lost their end
  int64_t without = 0;    // examples that were left out: no token would be learned
  uint64_t checksum = 0;  // of tokens and what is learned
};

// Reads a file. Names that end in .jsonl, .ndjson or .json hold an object on each line:
//   {"text": ".."}                         all is learned, with an end token behind it
//   {"prompt": "..", "completion": ".."}   the completion and an end token are learned
//   {"messages": [{"role": .., "content": ..}, ..]}, also "tools"
//                                          by the chat template; what the assistant says is learned
// Other files are texts, and all of them is learned. Long texts are divided; other examples lose
// what is behind `length` + 1 tokens. Throws with the file and the line for any other form, and
// INVALID_ARGUMENT if nothing is left to learn. stop: if it returns true, throws CANCELLED.
Examples read_examples(const std::string& file, const ModelText& text, int64_t length,
                       const std::function<bool()>& stop = {});

// The place in the list of the example that is drawn as number `index`: each pass over all of them
// has an order of its own.
class ExampleOrder {
 public:
  ExampleOrder(uint64_t seed, size_t count) : seed_(seed), order_(count) {}
  size_t operator[](uint64_t index);

 private:
  uint64_t seed_, pass_ = UINT64_MAX;
  std::vector<uint32_t> order_;
};

}  // namespace tenon::llm
