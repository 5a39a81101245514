// SPDX-License-Identifier: Apache-2.0
// Tokens that are found in the text before the model sees it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "llm/text/trie.hpp"
#include "llm/text/vocab.hpp"

namespace tenon::llm {

struct AddedToken {
  TokenId id = kNoToken;
  std::string text;
  bool special = false;      // found only if the caller asks for it; decode() can leave it out
  bool single_word = false;  // not as a part of a word
  bool lstrip = false, rstrip = false;  // takes the spaces on this side along
  bool normalized = false;              // is searched in the normalized text
};

// The place of a token in a text, or text between tokens (id is kNoToken).
struct Segment {
  size_t begin, end;
  TokenId id;
};

// Finds tokens: the leftmost ones first, at one place the longest one.
class AddedTokens {
 public:
  AddedTokens() = default;
  // texts: what to search for, one text a token.
  AddedTokens(std::vector<AddedToken> tokens, const std::vector<std::string>& texts);

  // special: find special tokens too.
  void find(std::string_view text, bool special, std::vector<Segment>& out) const;

 private:
  std::vector<AddedToken> tokens_;
  Trie all_, plain_;  // with and without special tokens
};

}  // namespace tenon::llm
