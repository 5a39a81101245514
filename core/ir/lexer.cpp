// SPDX-License-Identifier: Apache-2.0
// Splits the text form into words, numbers and strings.
#include "ir/lexer.hpp"

namespace tenon::core {
namespace {
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word_char(char c) { return is_letter(c) || is_digit(c) || c == '.'; }
int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}
}  // namespace

bool is_word(std::string_view text) {
  if (text.empty() || !is_letter(text[0])) return false;
  for (char c : text)
    if (!is_word_char(c)) return false;
  return true;
}

std::string quoted(std::string_view text) {
  constexpr char digits[] = "0123456789abcdef";
  std::string out = "\"";
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (byte < 0x20 || byte == 0x7f) {
      out += "\\x";
      out += digits[byte >> 4];
      out += digits[byte & 15];
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string Token::shown() const {
  if (kind == Kind::end) return "the end of the text";
  const std::string_view head = text.substr(0, 40);
  std::string out =
      kind == Kind::string ? quoted(std::string_view(value).substr(0, 40)) : cat("'", head, "'");
  return head.size() < text.size() ? out + " ..." : out;
}

void Lexer::expected(std::string_view what) const {
  fail(Code::invalid_argument, where(next_), ": expected ", what, ", got ", next_.shown());
}

void Lexer::bad(std::string_view what) const {
  fail(Code::invalid_argument, file_, ":", line_, ":", column_, ": ", what);
}

void Lexer::step() {
  if (at(pos_) == '\n')
    ++line_, column_ = 1;
  else
    ++column_;
  ++pos_;
}

void Lexer::skip_blank() {
  while (pos_ < text_.size()) {
    const char c = text_[pos_];
    if (c == '#') {
      while (pos_ < text_.size() && text_[pos_] != '\n') step();
    } else if (c == ' ' || c == '\t' || c == '\r' || c == '\n') {
      step();
    } else {
      return;
    }
  }
}

void Lexer::read_string() {
  step();  // the opening quote
  while (at(pos_) != '"') {
    if (pos_ >= text_.size() || text_[pos_] == '\n')
      bad("expected a closing quote, got the end of the line");
    char c = text_[pos_];
    if (c == '\\') {
      step();
      c = at(pos_);
      if (c == 'n') {
        c = '\n';
      } else if (c == 'x') {
        const int high = hex_digit(at(pos_ + 1)), low = high < 0 ? -1 : hex_digit(at(pos_ + 2));
        if (low < 0) bad("expected two hexadecimal digits after \\x");
        c = static_cast<char>(high * 16 + low);
        step();
        step();
      } else if (c != '"' && c != '\\') {
        bad("expected one of \\\" \\\\ \\n \\x after a backslash");
      }
    }
    next_.value += c;
    step();
  }
  step();
}

void Lexer::advance() {
  skip_blank();
  next_ = {.line = line_, .column = column_};
  if (pos_ >= text_.size()) return;
  const size_t start = pos_;
  const char c = text_[pos_];
  const bool number = is_digit(c) || (c == '-' && is_word_char(at(pos_ + 1)));
  if (c == '"') {
    next_.kind = Token::Kind::string;
    read_string();
  } else if (number) {
    next_.kind = Token::Kind::number;
    const bool hex = c == '0' && at(pos_ + 1) == 'x';
    step();
    // 1e-06: a sign belongs to the exponent.
    while (is_word_char(at(pos_)) || (!hex && (at(pos_) == '-' || at(pos_) == '+') &&
                                      (at(pos_ - 1) == 'e' || at(pos_ - 1) == 'E')))
      step();
  } else if (is_letter(c) || (c == '%' && is_word_char(at(pos_ + 1)))) {
    next_.kind = c == '%' ? Token::Kind::percent : Token::Kind::word;
    step();
    while (is_word_char(at(pos_))) step();
  } else if (std::string_view("{}()[]=:,@/").find(c) != std::string_view::npos) {
    next_.kind = Token::Kind::mark;
    step();
  } else {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) bad(cat("a character that means nothing here: '", c, "'"));
    bad(cat("a byte that means nothing here: ", static_cast<int>(byte)));
  }
  next_.text = text_.substr(start, pos_ - start);
}

}  // namespace tenon::core
