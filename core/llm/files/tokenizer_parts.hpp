// SPDX-License-Identifier: Apache-2.0
// What both ways of the conversion of tokenizers share.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

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

// tokenizer.json, made from tokenizer.ggml.*. Throws TENON_UNSUPPORTED where it cannot be.
std::string built_tokenizer(const Gguf& model, const std::string& file);

}  // namespace tenon::llm::files
