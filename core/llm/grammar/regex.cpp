// SPDX-License-Identifier: Apache-2.0
// Parses regular expressions.
#include "llm/grammar/regex.hpp"

#include <string>

#include "tenon/tenon.hpp"

namespace tenon::llm {
namespace {

constexpr size_t kMostBytes = 65536;
constexpr int kMostDepth = 60;
constexpr int64_t kMostRepeats = 100'000;

const CharSet kDigits = {{'0', '9'}};
const CharSet kWord = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const CharSet kSpace = {{0x9, 0xD},       {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680},
                        {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F},
                        {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
const CharSet kLineEnds = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

class RegexParser {
 public:
  RegexParser(std::string_view pattern, bool in_json) : pattern_(pattern), in_json_(in_json) {
    if (pattern.size() > kMostBytes)
      fail("expected at most " + std::to_string(kMostBytes) + " bytes");
    for (size_t at = 0; at < pattern.size();) chars_ += next_char(at);
  }

  Part run() {
    Part all = alternatives(0);
    if (at_ < chars_.size()) fail("unexpected ')'");
    return all;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(TENON_INVALID_ARGUMENT,
                "regular expression, character " + std::to_string(at_ + 1) + ": " + what);
  }

  char32_t next_char(size_t& at) const {
    const auto byte = [&](size_t i) { return static_cast<unsigned char>(pattern_[i]); };
    const unsigned char first = byte(at);
    const size_t size = first < 0x80   ? 1
                        : first < 0xC2 ? 0
                        : first < 0xE0 ? 2
                        : first < 0xF0 ? 3
                        : first < 0xF5 ? 4
                                       : 0;
    if (size == 0 || pattern_.size() - at < size) fail("the text is not UTF-8");
    char32_t c = size == 1 ? first : first & (0x7Fu >> size);
    for (size_t i = 1; i < size; ++i) {
      if ((byte(at + i) & 0xC0) != 0x80) fail("the text is not UTF-8");
      c = c << 6 | (byte(at + i) & 0x3Fu);
    }
    at += size;
    return c;
  }

  bool more() const { return at_ < chars_.size(); }
  char32_t peek(size_t ahead = 0) const {
    return at_ + ahead < chars_.size() ? chars_[at_ + ahead] : U'\0';
  }
  bool accept(char32_t c) {
    if (!more() || peek() != c) return false;
    ++at_;
    return true;
  }

  Part one(const CharSet& set) const { return in_json_ ? json_char(set) : one_of(set); }

  Part alternatives(int depth) {
    if (depth > kMostDepth) fail("groups are nested too deeply");
    std::vector<Part> parts;
    do parts.push_back(alternative(depth));
    while (accept('|'));
    return choice(std::move(parts));
  }

  Part alternative(int depth) {
    std::vector<Part> parts;
    const bool outer = depth == 0;
    const bool from_start = outer && accept('^');
    if (outer && in_json_ && !from_start) parts.push_back(anything());
    bool to_end = false;
    while (more() && peek() != '|' && peek() != ')') {
      if (outer && peek() == '$' && (at_ + 1 == chars_.size() || peek(1) == '|')) {
        ++at_;
        to_end = true;
        break;
      }
      parts.push_back(quantified(depth));
    }
    if (outer && in_json_ && !to_end) parts.push_back(anything());
    return sequence(std::move(parts));
  }

  Part anything() const { return repeat(json_char({{0, kLastChar}}), 0, -1); }

  Part quantified(int depth) {
    Part part = atom(depth);
    for (int times = 0;; ++times) {
      int64_t least = 0, most = -1;
      if (accept('+'))
        least = 1;
      else if (accept('?'))
        most = 1;
      else if (peek() == '{' && more())
        counts(least, most);
      else if (!accept('*'))
        return part;
      if (times > 0) fail("a quantifier behind another one");
      accept('?');  // lazy
      part = repeat(std::move(part), least, most);
    }
  }

  int64_t number() {
    if (!(peek() >= '0' && peek() <= '9')) fail("expected a number");
    int64_t n = 0;
    while (peek() >= '0' && peek() <= '9') {
      n = n * 10 + static_cast<int64_t>(chars_[at_++] - '0');
      if (n > kMostRepeats)
        fail("expected at most " + std::to_string(kMostRepeats) + " repetitions");
    }
    return n;
  }

  void counts(int64_t& least, int64_t& most) {
    ++at_;
    least = most = number();
    if (accept(',')) most = peek() == '}' ? -1 : number();
    if (!accept('}')) fail("expected '}'");
    if (most >= 0 && most < least) fail("the largest count is below the smallest");
  }

  Part atom(int depth) {
    const char32_t c = chars_[at_++];
    switch (c) {
      case '(':
        return group(depth);
      case '[':
        return one(char_class());
      case '.':
        return one(inverse(kLineEnds));
      case '\\':
        return one(escape(false));
      case '^':
      case '$':
        fail("'^' and '$' are supported at the ends of the expression only");
      case '*':
      case '+':
      case '?':
      case '{':
        fail("a quantifier without anything before it");
      default:
        return one({{c, c}});
    }
  }

  Part group(int depth) {
    if (accept('?')) {
      if (accept('<') && peek() != '=' && peek() != '!') {  // a name
        while (more() && !accept('>')) ++at_;
      } else if (!accept(':')) {
        fail("groups that look around are not supported");
      }
    }
    Part part = alternatives(depth + 1);
    if (!accept(')')) fail("expected ')'");
    return part;
  }

  uint32_t hex(size_t size) {
    uint32_t code = 0;
    for (size_t i = 0; i < size; ++i) {
      const char32_t c = peek(), low = c | 0x20;
      const bool digit = c >= '0' && c <= '9', letter = low >= 'a' && low <= 'f';
      if (!more() || (!digit && !letter)) fail("expected " + std::to_string(size) + " hex digits");
      code = code << 4 | (digit ? c - '0' : low - 'a' + 10);
      ++at_;
    }
    return code;
  }

  uint32_t unicode() {
    if (!accept('{')) {
      const uint32_t high = hex(4);
      if (high < 0xD800 || high > 0xDBFF) return high;
      if (!accept('\\') || !accept('u')) fail("half of a pair of surrogates");
      const uint32_t low = hex(4);
      if (low < 0xDC00 || low > 0xDFFF) fail("half of a pair of surrogates");
      return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
    }
    uint32_t code = 0;
    while (more() && peek() != '}' && code <= kLastChar) code = code << 4 | hex(1);
    if (!accept('}') || code > kLastChar) fail("\\u{...} is no character");
    return code;
  }

  CharSet escape(bool in_class) {
    if (!more()) fail("an escape without a character");
    const char32_t c = chars_[at_++];
    const auto single = [](uint32_t code) { return CharSet{{code, code}}; };
    switch (c) {
      case 'd':
        return kDigits;
      case 'D':
        return inverse(kDigits);
      case 'w':
        return kWord;
      case 'W':
        return inverse(kWord);
      case 's':
        return kSpace;
      case 'S':
        return inverse(kSpace);
      case 'n':
        return single('\n');
      case 'r':
        return single('\r');
      case 't':
        return single('\t');
      case 'f':
        return single('\f');
      case 'v':
        return single('\v');
      case '0':
        return single(0);
      case 'x':
        return single(hex(2));
      case 'u':
        return single(unicode());
      case 'b':
        if (in_class) return single('\b');
        [[fallthrough]];
      default:
        break;
    }
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '1' && c <= '9');
    if (letter) fail(std::string("the escape \\") + static_cast<char>(c) + " is not supported");
    return single(c);
  }

  CharSet char_class() {
    const bool inverted = accept('^');
    CharSet set;
    while (!accept(']')) {
      if (!more()) fail("expected ']'");
      const CharSet low = class_item();
      if (peek() != '-' || peek(1) == ']' || low.size() != 1 || low[0].first != low[0].second) {
        set.insert(set.end(), low.begin(), low.end());
        continue;
      }
      ++at_;
      if (!more()) fail("expected ']'");
      const CharSet high = class_item();
      if (high.size() != 1 || high[0].first != high[0].second || high[0].first < low[0].first)
        fail("a range of characters is wrong");
      set.emplace_back(low[0].first, high[0].first);
    }
    return inverted ? inverse(set) : joined(set);
  }

  CharSet class_item() {
    const char32_t c = chars_[at_++];
    return c == '\\' ? escape(true) : CharSet{{c, c}};
  }

  std::string_view pattern_;
  bool in_json_;
  std::u32string chars_;
  size_t at_ = 0;
};

}  // namespace

Part regex(std::string_view pattern) { return RegexParser(pattern, false).run(); }

Part regex_in_json_string(std::string_view pattern) { return RegexParser(pattern, true).run(); }

Part json_char(const CharSet& set) {
  static const CharSet kEscaped = {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};
  static constexpr std::string_view kShort = "\"\\\b\f\n\r\t", kNames = "\"\\bfnrt";
  std::vector<Part> out = {one_of(without(set, kEscaped))};
  for (const auto& [low, high] : without(set, without({{0, kLastChar}}, kEscaped)))
    for (char32_t c = low; c <= high; ++c) {
      const size_t known = kShort.find(static_cast<char>(c));
      std::string escape = {'\\'};
      if (known != kShort.npos)
        escape += kNames[known];
      else
        escape += {'u', '0', '0', "01"[c >> 4], "0123456789abcdef"[c & 15]};
      out.push_back(text(escape));
    }
  return choice(std::move(out));
}

}  // namespace tenon::llm
