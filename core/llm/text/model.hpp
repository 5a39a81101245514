// SPDX-License-Identifier: Apache-2.0
// Models: they turn one piece of text into tokens.
#pragma once

#include <bitset>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "llm/text/vocab.hpp"

namespace tenon::llm {

using ByteSet = std::bitset<256>;

class Model {
 public:
  virtual ~Model() = default;
  // Appends the tokens of a piece. Pieces of one text share `memory`, which this model made.
  struct Memory {
    virtual ~Memory() = default;
  };
  virtual std::unique_ptr<Memory> memory() const = 0;
  virtual void encode(std::string_view piece, std::vector<TokenId>& out, Memory& memory) const = 0;
  // If not null: a piece may be cut before a visible space that follows another character, with the same result,
  // unless that character ends with one of these bytes.
  virtual const ByteSet* joined_bytes() const { return nullptr; }
};

// The bytes that tokens have before a visible space, other than those of another one. All bytes if the vocabulary
// lacks the visible space.
ByteSet bytes_before_spaces(const Vocab& vocab);

// The token <0xNN> of each byte, or kNoToken.
struct ByteTokens {
  std::vector<TokenId> ids;
  explicit ByteTokens(const Vocab& vocab);
  // Appends those of all bytes; appends nothing and returns false if one of them is missing.
  bool append(std::string_view bytes, std::vector<TokenId>& out) const;
};
// The byte of a text of the form <0xNN>.
std::optional<unsigned char> byte_of_token(std::string_view text);

struct Merge {
  uint32_t rank;  // lower ones first
  TokenId id;
};

// Byte pair encoding with a list of merges.
struct BpeOptions {
  TokenId unknown = kNoToken;
  bool fuse_unknown = false, byte_fallback = false;
  bool ignore_merges = false;  // a piece that is a token stays one
  std::string prefix{},
      suffix{};  // of a piece's characters behind the first one; of its last character
  bool whole_line_ends = false;  // a piece of line ends that is a token stays one
  bool bytes_of_unknown =
      false;  // of an unknown character, the tokens of those bytes that have one
};
class MergeList {
 public:
  // Returns false if the pair is there already.
  bool add(TokenId left, TokenId right, Merge merge);
  void reserve(size_t merges);
  const Merge* find(TokenId left, TokenId right) const;

 private:
  struct Slot {
    uint64_t pair = ~uint64_t{0};
    Merge merge{};
  };
  size_t slot(uint64_t pair) const;
  std::vector<Slot> slots_;
  size_t count_ = 0;
};
std::unique_ptr<Model> make_bpe(const Vocab& vocab, MergeList merges, BpeOptions options);

// Byte pair encoding of SentencePiece: two neighbours merge if the vocabulary has their text, those with the highest
// score first. scores: by id.
std::unique_ptr<Model> make_scored_bpe(const Vocab& vocab, const std::vector<float>& scores,
                                       TokenId unknown);

// The segmentation with the highest sum of scores. allowed: the ids that text may become; empty: all.
struct UnigramOptions {
  TokenId unknown = kNoToken;
  bool byte_fallback = false;
  std::vector<char> allowed{};
};
std::unique_ptr<Model> make_unigram(const Vocab& vocab, const std::vector<double>& scores,
                                    UnigramOptions options);

// The longest token at each place; a word with an unknown part becomes one unknown token.
struct WordPieceOptions {
  TokenId unknown = kNoToken;
  std::string prefix = "##";
  size_t most_characters = 100;  // longer words are unknown
};
std::unique_ptr<Model> make_word_piece(const Vocab& vocab, WordPieceOptions options);

// Each piece is a token or unknown.
std::unique_ptr<Model> make_word_level(const Vocab& vocab, TokenId unknown);

}  // namespace tenon::llm
