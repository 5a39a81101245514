// SPDX-License-Identifier: Apache-2.0
// Tokens of the graph text form.
#pragma once

#include <string>
#include <string_view>

#include "base/error.hpp"

namespace tenon::core {

struct Token {
  enum class Kind : uint8_t { end, word, percent, number, string, mark };
  Kind kind = Kind::end;
  std::string_view text{};  // as written; a percent word with its %
  std::string value{};      // for a string: its content
  uint32_t line = 1, column = 1;

  bool is(std::string_view mark) const {
    return (kind == Kind::mark || kind == Kind::word) && text == mark;
  }
  std::string shown() const;  // for "got ..."
};

// True if the text can be written as a word: a letter or _, then letters, digits, _ and .
bool is_word(std::string_view text);

// Quotes a text, with the escapes that the lexer reads.
std::string quoted(std::string_view text);

class Lexer {
 public:
  Lexer(std::string_view text, std::string_view file) : text_(text), file_(file) { advance(); }
  const Token& peek() const { return next_; }
  Token take() {
    Token t = std::move(next_);
    advance();
    return t;
  }
  // The position of a token, for the start of a message.
  std::string where(const Token& t) const { return cat(file_, ":", t.line, ":", t.column); }
  [[noreturn]] void expected(std::string_view what) const;  // at the next token

 private:
  void advance();
  void skip_blank();
  char at(size_t k) const { return k < text_.size() ? text_[k] : '\0'; }
  void step();
  void read_string();
  [[noreturn]] void bad(std::string_view what) const;

  std::string_view text_;
  std::string file_;
  size_t pos_ = 0;
  uint32_t line_ = 1, column_ = 1;
  Token next_;
};

}  // namespace tenon::core
