// SPDX-License-Identifier: Apache-2.0
// Cuts a template into tokens.
#include "llm/chat/lexer.hpp"

#include <algorithm>
#include <charconv>
#include <optional>

#include "llm/chat/unicode.hpp"
#include "tenon/tenon.hpp"

namespace tenon::llm::jinja {
namespace {

constexpr std::string_view kOperators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                           "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                           ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};

// Line ends become \n, and one at the end of the source is dropped, as Jinja does by default.
std::string with_unix_lines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    const bool pair = source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n';
    if (!pair) out += source[i] == '\r' ? '\n' : source[i];
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(with_unix_lines(source)), text_(source_) {}

  std::vector<Token> run() {
    while (at_ < text_.size()) read_root();
    emit(TokenKind::end);
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) {
    throw Error(TENON_CORRUPT, "chat template, line " + std::to_string(line_) + ": " + what);
  }
  char peek(size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  bool starts(std::string_view what) const { return text_.substr(at_).starts_with(what); }
  void move_to(size_t end) {
    line_ += static_cast<int>(std::count(text_.begin() + static_cast<ptrdiff_t>(at_),
                                         text_.begin() + static_cast<ptrdiff_t>(end), '\n'));
    at_ = end;
  }
  Token& emit(TokenKind kind, std::string text = {}) {
    tokens_.push_back({kind, line_, std::move(text)});
    return tokens_.back();
  }

  size_t after_space(size_t at) const {
    while (at < text_.size()) {
      size_t next = at;
      if (!python::is_space(next_character(text_, next))) break;
      at = next;
    }
    return at;
  }

  // Text before a tag, without the white space that the tag strips.
  std::string_view stripped(std::string_view text, char sign, bool print) const {
    if (sign == '-') {
      while (!text.empty()) {
        size_t last = before_char(text, text.size());
        const size_t keep = last;
        if (!python::is_space(next_character(text, last))) break;
        text = text.substr(0, keep);
      }
    } else if (sign != '+' && !print) {
      const size_t newline = text.rfind('\n');
      const size_t start = newline == text.npos ? 0 : newline + 1;
      const bool at_line_start = newline != text.npos || line_start_;
      size_t end = start;
      while (end < text.size()) {
        size_t next = end;
        if (!python::is_space(next_character(text, next))) break;
        end = next;
      }
      if (at_line_start && end == text.size()) text = text.substr(0, start);
    }
    return text;
  }

  void emit_data(std::string_view text) {
    if (!text.empty()) emit(TokenKind::data, std::string(text));
  }

  // The end of a tag: `%}` with a sign before it. Returns the offset behind it and what it strips.
  std::optional<size_t> end_of_tag(size_t at, std::string_view end, bool trims) const {
    const char sign = at < text_.size() ? text_[at] : '\0';
    const bool plus = sign == '+' && trims;
    if (sign == '-' || plus) ++at;
    if (!text_.substr(at).starts_with(end)) return std::nullopt;
    at += end.size();
    if (sign == '-') return after_space(at);
    if (trims && !plus && at < text_.size() && text_[at] == '\n') ++at;
    return at;
  }

  void leave(size_t end) {
    line_start_ = end > 0 && text_[end - 1] == '\n';
    move_to(end);
  }

  void read_root() {
    size_t tag = at_;
    for (;; ++tag) {
      tag = text_.find('{', tag);
      if (tag == text_.npos || tag + 1 >= text_.size()) {
        emit_data(text_.substr(at_));
        return move_to(text_.size());
      }
      const char kind = text_[tag + 1];
      if (kind == '%' || kind == '{' || kind == '#') break;
    }
    const std::string_view before = text_.substr(at_, tag - at_);
    const char kind = text_[tag + 1];
    size_t inside = tag + 2;
    const char sign = inside < text_.size() ? text_[inside] : '\0';
    const bool signed_tag = sign == '-' || sign == '+';
    if (signed_tag) ++inside;
    emit_data(stripped(before, signed_tag ? sign : '\0', kind == '{'));
    move_to(inside);
    if (kind == '#') return skip_comment();
    if (kind == '%') {
      if (const auto body = raw_tag(inside, "raw", false)) return read_raw(*body);
      emit(TokenKind::block_begin);
      return read_tag("%}", TokenKind::block_end);
    }
    emit(TokenKind::print_begin);
    read_tag("}}", TokenKind::print_end);
  }

  void skip_comment() {
    const size_t end = text_.find("#}", at_);
    if (end == text_.npos) fail("a comment does not end; expected '#}'");
    const bool has_sign = end > at_ && (text_[end - 1] == '-' || text_[end - 1] == '+');
    leave(*end_of_tag(has_sign ? end - 1 : end, "#}", true));
  }

  // `raw` or `endraw` and the end of its tag.
  std::optional<size_t> raw_tag(size_t at, std::string_view word, bool trims) const {
    at = after_space(at);
    if (!text_.substr(at).starts_with(word)) return std::nullopt;
    return end_of_tag(after_space(at + word.size()), "%}", trims);
  }

  void read_raw(size_t body) {
    leave(body);
    for (size_t tag = text_.find("{%", at_); tag != text_.npos; tag = text_.find("{%", tag + 2)) {
      size_t inside = tag + 2;
      const char sign = inside < text_.size() ? text_[inside] : '\0';
      const bool signed_tag = sign == '-' || sign == '+';
      if (signed_tag) ++inside;
      const auto end = raw_tag(inside, "endraw", true);
      if (!end) continue;
      emit_data(stripped(text_.substr(at_, tag - at_), signed_tag ? sign : '\0', false));
      return leave(*end);
    }
    fail("a raw block does not end; expected '{% endraw %}'");
  }

  void read_tag(std::string_view end, TokenKind kind) {
    std::string open;  // brackets that wait for their closing ones
    while (at_ < text_.size()) {
      if (open.empty()) {
        if (const auto after = end_of_tag(at_, end, end == "%}")) {
          emit(kind);
          return leave(*after);
        }
      }
      size_t next = at_;
      const char32_t c = next_character(text_, next);
      if (python::is_space(c))
        move_to(next);
      else if (is_digit(peek()))
        read_number();
      else if (c == '_' || python::is_alnum(c))
        read_name();
      else if (c == '"' || c == '\'')
        read_text(static_cast<char>(c));
      else
        read_symbol(open);
    }
  }

  void read_symbol(std::string& open) {
    const auto* found = std::find_if(std::begin(kOperators), std::end(kOperators),
                                     [&](std::string_view s) { return starts(s); });
    if (found == std::end(kOperators)) {
      size_t next = at_;
      next_character(text_, next);
      fail("unexpected character '" + std::string(text_.substr(at_, next - at_)) + "'");
    }
    const char c = found->front();
    if (found->size() == 1 && (c == '(' || c == '[' || c == '{')) {
      open += c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
      if (open.empty() || open.back() != c)
        fail(std::string("unexpected '") + c + "'" +
             (open.empty() ? std::string() : std::string("; expected '") + open.back() + "'"));
      open.pop_back();
    }
    emit(TokenKind::symbol, std::string(*found));
    at_ += found->size();
  }

  void read_name() {
    size_t end = at_;
    while (end < text_.size()) {
      size_t next = end;
      const char32_t c = next_character(text_, next);
      if (c != '_' && !python::is_alnum(c)) break;
      end = next;
    }
    emit(TokenKind::name, std::string(text_.substr(at_, end - at_)));
    at_ = end;
  }

  // Digits with single underscores between them.
  size_t digits(size_t at, auto&& is_one, std::string& out) const {
    size_t end = at;
    while (end < text_.size()) {
      if (is_one(text_[end]))
        out += text_[end];
      else if (text_[end] != '_' || end == at || end + 1 >= text_.size() || !is_one(text_[end + 1]))
        break;
      ++end;
    }
    return end;
  }

  void read_number() {
    std::string number;
    const bool after_dot = at_ > 0 && text_[at_ - 1] == '.';
    size_t end = digits(at_, is_digit, number);
    if (!after_dot && read_real(end, number)) return;
    int base = 10;
    const char mark = peek() == '0' ? static_cast<char>(peek(1) | 0x20) : '\0';
    if (mark == 'x' || mark == 'o' || mark == 'b') {
      std::string other;
      const int radix = mark == 'x' ? 16 : mark == 'o' ? 8 : 2;
      const auto is_one = [&](char c) {
        const char low = static_cast<char>(c | 0x20);
        const int value = is_digit(c) ? c - '0' : low >= 'a' && low <= 'f' ? low - 'a' + 10 : 99;
        return value < radix;
      };
      const size_t start = at_ + 2 + (peek(2) == '_');
      const size_t other_end = digits(start, is_one, other);
      if (!other.empty()) {
        number = other;
        base = radix;
        end = other_end;
      }
    }
    Token& token = emit(TokenKind::integer, number);
    const auto [rest, error] =
        std::from_chars(number.data(), number.data() + number.size(), token.integer, base);
    if (error != std::errc() || rest != number.data() + number.size())
      fail("the number " + number.substr(0, 40) + " is too large; expected at most 2^63-1");
    at_ = end;
  }

  bool read_real(size_t end, std::string number) {
    bool real = false;
    if (end + 1 < text_.size() && text_[end] == '.' && is_digit(text_[end + 1])) {
      number += '.';
      end = digits(end + 1, is_digit, number);
      real = true;
    }
    if (end < text_.size() && (text_[end] | 0x20) == 'e') {
      size_t exponent = end + 1;
      std::string power = "e";
      if (exponent < text_.size() && (text_[exponent] == '+' || text_[exponent] == '-'))
        power += text_[exponent++];
      if (exponent < text_.size() && is_digit(text_[exponent])) {
        end = digits(exponent, is_digit, power);
        number += power;
        real = true;
      }
    }
    if (!real) return false;
    double value = 0;
    const auto [rest, error] = std::from_chars(number.data(), number.data() + number.size(), value);
    if (error != std::errc() || rest != number.data() + number.size())
      fail("the number " + number.substr(0, 40) + " is outside the range of doubles");
    emit(TokenKind::real, number).real = value;
    at_ = end;
    return true;
  }

  void read_text(char quote) {
    std::string out;
    size_t at = at_ + 1;
    while (at < text_.size() && text_[at] != quote) {
      if (text_[at] == '\\')
        at = read_escape(at + 1, out);
      else
        out += text_[at++];
    }
    if (at >= text_.size()) fail(std::string("a string does not end; expected ") + quote);
    emit(TokenKind::text, std::move(out));
    move_to(at + 1);
  }

  size_t read_escape(size_t at, std::string& out) {
    if (at >= text_.size()) return at;
    static constexpr std::string_view kNames = "\\'\"abfnrtv", kChars = "\\'\"\a\b\f\n\r\t\v";
    const char c = text_[at++];
    if (c == '\n') return at;
    if (const size_t known = kNames.find(c); known != kNames.npos) {
      out += kChars[known];
      return at;
    }
    const bool octal = c >= '0' && c <= '7';
    const size_t size = octal ? 3 : c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (size == 0) {
      if (c == 'N') fail("strings with characters by name (\\N{...}) are not supported");
      out += '\\';
      out += c;
      return at;
    }
    const size_t start = octal ? at - 1 : at;
    size_t end = start;
    uint32_t code = 0;
    for (; end < text_.size() && end - start < size; ++end) {
      const char digit = text_[end], low = static_cast<char>(digit | 0x20);
      const bool hex = !octal && low >= 'a' && low <= 'f';
      if (!hex && !(is_digit(digit) && (!octal || digit < '8'))) break;
      code = code * (octal ? 8 : 16) + static_cast<uint32_t>(hex ? low - 'a' + 10 : digit - '0');
    }
    if (!octal && end - start < size)
      fail(std::string("the escape \\") + c + " needs " + std::to_string(size) + " hex digits");
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
      fail(std::string("the escape \\") + c + " is no character");
    append_character(out, code);
    return end;
  }

  std::string source_;
  std::string_view text_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_start_ = true;  // what was read last ended with a line
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  if (!is_utf8(source)) throw Error(TENON_CORRUPT, "chat template: the source is not UTF-8");
  return Lexer(source).run();
}

}  // namespace tenon::llm::jinja
