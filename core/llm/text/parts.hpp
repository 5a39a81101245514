// SPDX-License-Identifier: Apache-2.0
// What a tokenizer consists of, in the order of use. tokenizer.json and GGUF both become this.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "llm/text/added_tokens.hpp"
#include "llm/text/decoder.hpp"
#include "llm/text/model.hpp"
#include "llm/text/normalizer.hpp"
#include "llm/text/pre_tokenizer.hpp"
#include "llm/text/vocab.hpp"

namespace tenon::llm {

struct TokenizerParts {
  // Tokens in the user's text, then those in the normalized text.
  AddedTokens raw_tokens, normalized_tokens;
  Normalizers normalizers;
  PreTokenizers pre_tokenizers;
  Vocab model_vocab;  // what the model knows; its texts are those of the file
  std::unique_ptr<Model> model;
  std::vector<TokenId> before, after;  // what surrounds a text

  Vocab vocab;                 // all tokens
  std::vector<char> special;   // by id
  bool space_between = false;  // without decoders, tokens are words
  Decoders decoders;

  TokenId bos = kNoToken, eos = kNoToken, eot = kNoToken, pad = kNoToken, unk = kNoToken;
  std::vector<TokenId> ends;

  // Normalizers in order.
  std::string normalize(std::string_view text) const;
  // Sets vocab, special and the searches from model_vocab and these tokens.
  void set_added(const std::vector<AddedToken>& tokens);
  // Sets ends from eos, eot, `more`, and tokens with the usual names.
  void set_ends(const std::vector<TokenId>& more);
};

}  // namespace tenon::llm
