// SPDX-License-Identifier: Apache-2.0
// The parts of tokenizer.json, each with its key "type".
#pragma once

#include "llm/text/json_node.hpp"
#include "llm/text/parts.hpp"

namespace tenon::llm {

// Each appends to the parts; null appends nothing.
void read_normalizer(const JsonNode& node, Normalizers& out);
void read_pre_tokenizer(const JsonNode& node, PreTokenizers& out);
void read_decoder(const JsonNode& node, Decoders& out);
// Sets the tokens around a text.
void read_post_processor(const JsonNode& node, TokenizerParts& parts);
// Sets model_vocab and model.
void read_model(const JsonNode& node, TokenizerParts& parts);

// Ids of a file that lists so many tokens are below it. They may have gaps, which cost memory.
inline int64_t id_bound(size_t tokens) { return static_cast<int64_t>(2 * tokens + (1u << 12)); }
// A token's id. `tokens`: how many the file lists, which bounds the table of ids.
TokenId read_id(const JsonNode& node, size_t tokens);
// {"String": text} or {"Regex": expression}.
Regex read_pattern(const JsonNode& node);

// Calls read(element) for each element of a list, at most some levels deep.
template <class F>
void read_sequence(const JsonNode& list, int depth, F&& read) {
  constexpr int kDeepest = 16;
  if (depth >= kDeepest)
    throw Error(TENON_UNSUPPORTED, list.path() +
                                       ": sequences are nested too deep; expected at most " +
                                       std::to_string(kDeepest) + " levels");
  for (size_t i = 0; i < list.list_size(); ++i) read(list.element(i));
}

}  // namespace tenon::llm
