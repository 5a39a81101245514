// SPDX-License-Identifier: Apache-2.0
// Tokens of a template. The lexer strips white space as trim_blocks, lstrip_blocks, `-` and `+` say.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::llm::jinja {

enum class TokenKind : uint8_t {
  data,         // text between the tags
  block_begin,  // {%
  block_end,
  print_begin,  // {{
  print_end,
  name,
  text,
  integer,
  real,
  symbol,  // an operator or bracket
  end,
};

struct Token {
  TokenKind kind = TokenKind::end;
  int line = 1;
  std::string text;  // of strings: the content
  int64_t integer = 0;
  double real = 0;
  bool is(TokenKind k, std::string_view t) const { return kind == k && text == t; }
};

// Throws for source that is no UTF-8, bad characters, and tags that do not end.
std::vector<Token> tokenize(std::string_view source);

}  // namespace tenon::llm::jinja
