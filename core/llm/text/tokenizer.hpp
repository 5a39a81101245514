// SPDX-License-Identifier: Apache-2.0
// The tokenizer of a language model: text to token ids and back.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "llm/text/metadata.hpp"
#include "llm/text/vocab.hpp"

namespace tenon::llm {

struct EncodeOptions {
  bool add_special = true;    // the tokens that the model expects around a text, such as <s>
  bool parse_special = true;  // special tokens that the text spells out; without it they are text
};

struct TokenizerParts;  // parts.hpp

// All const functions may be called from several threads at once. Text is UTF-8; what is not valid counts as U+FFFD.
class Tokenizer {
 public:
  // Reads tokenizer.json of Hugging Face. config: the content of tokenizer_config.json, which names the special tokens,
  // or nothing. file: its name, for messages.
  static Tokenizer from_json(std::string_view json, std::string_view config,
                             const std::string& file);
  // Reads the metadata of a GGUF file.
  static Tokenizer from_metadata(const Metadata& metadata, const std::string& file);

  explicit Tokenizer(std::unique_ptr<const TokenizerParts> parts);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  std::vector<TokenId> encode(std::string_view text, EncodeOptions options = {}) const;
  // Throws for ids that the vocabulary does not have.
  std::string decode(std::span<const TokenId> ids, bool skip_special = false) const;

  // The highest id plus one.
  size_t size() const;
  bool has(TokenId id) const;
  // A token as the vocabulary writes it. Throws if it has none of this id.
  std::string_view text(TokenId id) const;
  std::optional<TokenId> find(std::string_view text) const;
  bool is_special(TokenId id) const;
  // The bytes that the token adds to a text that has begun. Special tokens add none.
  std::string bytes(TokenId id) const;

  // Ids with a role, if the tokenizer names one: begin of text, end of text, end of turn, padding, unknown.
  std::optional<TokenId> bos() const;
  std::optional<TokenId> eos() const;
  std::optional<TokenId> eot() const;
  std::optional<TokenId> pad() const;
  std::optional<TokenId> unk() const;
  // The ids that end a generation: eos, eot and those of the same kind.
  std::span<const TokenId> ends() const;
  // encode() starts each text with bos, if tokens are added.
  bool adds_bos() const;

 private:
  friend class Detokenizer;
  std::string decode_bytes(std::span<const TokenId> ids, bool raw) const;
  void check(TokenId id) const;

  std::unique_ptr<const TokenizerParts> parts_;
};

// Turns ids into text, one at a time. All texts together are that of decode(), if its bytes are valid UTF-8. Uses the
// tokenizer as long as it lives.
class Detokenizer {
 public:
  explicit Detokenizer(const Tokenizer& tokenizer, bool skip_special = true)
      : tokenizer_(&tokenizer), skip_special_(skip_special) {}

  // Returns the characters that the token completes; they may be none.
  std::string push(TokenId id);
  // Returns what is left at the end: U+FFFD for an incomplete character.
  std::string flush();

 private:
  std::string take(bool all);

  const Tokenizer* tokenizer_;
  bool skip_special_;
  std::vector<TokenId> window_;  // the last ids, whose text decides on spaces
  std::string pending_;          // bytes of an incomplete character
};

}  // namespace tenon::llm
