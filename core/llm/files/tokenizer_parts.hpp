// SPDX-License-Identifier: Apache-2.0
// What both ways of the conversion of tokenizers share.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "llm/files/json.hpp"
#include "tenon/tenon.hpp"

namespace tenon::llm::files {

// tokenizer.ggml.token_type.
enum TokenType : int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

struct PreTokenizer {
  std::string_view name, expression;
};
// How GGUF names the expressions that split text before the merges.
inline constexpr PreTokenizer kPreTokenizers[] = {
    {"llama-bpe",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {"qwen2",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {"qwen35",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
};

// ---- WordPiece (word_piece_keys.cpp)

struct WordPieceForm {
  bool lowercase = true, strip_accents = true;
  std::string unknown = "[UNK]";
  std::string first{}, last{};  // tokens around a text; empty: none
};
// Of a tokenizer.json. Throws TENON_UNSUPPORTED for stages that GGUF has no form for.
WordPieceForm word_piece_form(const Json& tokenizer, const std::string& file);
// A token that is not special.
std::string piece_in_gguf(const std::string& token);
std::string piece_in_folder(const std::string& token);
// The stages of a tokenizer.json and its model.
Json word_piece_json(const WordPieceForm& form, Json vocabulary);

// tokenizer.json, made from tokenizer.ggml.*. Throws TENON_UNSUPPORTED where it cannot be.
std::string built_tokenizer(const Gguf& model, const std::string& file);

}  // namespace tenon::llm::files
