// SPDX-License-Identifier: Apache-2.0
// Rewrites a regular expression of Oniguruma (Ruby's rules) for PCRE2. The languages differ in what \s, \w, \h,
// \v and {n,m}+ mean, in names of properties, and in sets of sets.
#include <string>
#include <utility>
#include <vector>

#include "llm/text/regex.hpp"
#include "tenon/tenon.hpp"

namespace tenon::llm {
namespace {

// The contents of sets. PCRE2 counts U+180E as a space, and marks not as word characters.
constexpr std::string_view kSpace =
    R"(\x09-\x0D\x20\x85\xA0\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";
constexpr std::string_view kWord =
    R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{24B6}-\x{24E9}\x{1F130}-\x{1F149}\x{1F150}-\x{1F169}\x{1F170}-\x{1F189})";
// Oniguruma counts these as word characters too, outside of sets.
constexpr std::string_view kWordAlone = R"(\xB2\xB3\xB9\xBC-\xBE)";
constexpr std::string_view kHex = "0-9a-fA-F";

// [:name:] in a set.
constexpr std::pair<std::string_view, std::string_view> kPosix[] = {
    {"alpha", R"(\p{Alphabetic})"},
    {"alnum", R"(\p{Alphabetic}\p{Nd})"},
    {"digit", R"(\p{Nd})"},
    {"lower", R"(\p{Lowercase})"},
    {"punct", R"(\p{P}\p{S})"},
    {"space", kSpace},
    {"upper", R"(\p{Uppercase})"},
    {"word", kWord},
    {"xdigit", kHex}};

constexpr std::pair<std::string_view, std::string_view> kNames[] = {
    {"Letter", "L"},          {"Number", "N"},         {"Punctuation", "P"},
    {"Punct", "P"},           {"Symbol", "S"},         {"Mark", "M"},
    {"Separator", "Z"},       {"Other", "C"},          {"Digit", "Nd"},
    {"Space", "White_Space"}, {"Alpha", "Alphabetic"}, {"Upper", "Uppercase"},
    {"Lower", "Lowercase"}};

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
bool is_ascii_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

class Translator {
 public:
  Translator(std::string_view pattern, const std::string& where) : in_(pattern), where_(where) {}

  std::string run() {
    while (at_ < in_.size()) item();
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(TENON_UNSUPPORTED, where_ + ": the regular expression '" + std::string(in_) +
                                       "' has " + what + ", which tenon does not support");
  }
  char peek(size_t ahead = 0) const { return at_ + ahead < in_.size() ? in_[at_ + ahead] : '\0'; }
  bool starts(std::string_view text) const { return in_.substr(at_).starts_with(text); }
  void copy(size_t bytes) {
    out_ += in_.substr(at_, bytes);
    at_ += bytes;
  }

  void item() {
    const char c = peek();
    if (c == '{' && repeat()) return;
    if (c == '*' || c == '+' || c == '?' || c == '|') {
      copy(1);
      return;
    }
    if (c == ')') {
      if (!groups_.empty()) {
        atom_ = groups_.back();
        groups_.pop_back();
      }
      copy(1);
      return;
    }
    atom_ = out_.size();
    if (c == '(')
      group();
    else if (c == '[')
      set();
    else if (c == '\\')
      escape(false);
    else
      copy(1);
  }

  // {n}, {n,}, {,m} or {n,m}. Ruby reads {n,m}+ as a repeated group, PCRE2 as a possessive repeat.
  bool repeat() {
    size_t end = at_ + 1;
    std::string low, high;
    bool comma = false;
    for (; end < in_.size() && (is_digit(in_[end]) || (in_[end] == ',' && !comma)); ++end) {
      if (in_[end] == ',')
        comma = true;
      else
        (comma ? high : low) += in_[end];
    }
    if (end == in_.size() || in_[end] != '}' || (low.empty() && high.empty())) return false;
    out_ += '{' + (low.empty() ? "0" : low) + (comma ? "," : "") + high + '}';
    at_ = end + 1;
    if (peek() == '+') {
      out_.insert(atom_, "(?:");
      out_ += ')';
    }
    return true;
  }

  void group() {
    groups_.push_back(out_.size());
    if (peek(1) == '*') refuse("the verb '(*'");
    if (peek(1) != '?') {
      copy(1);
      return;
    }
    for (const std::string_view open : {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!"}) {
      if (!starts(open)) continue;
      copy(open.size());
      return;
    }
    // Options: i, x, and m, which lets . match line ends, as s does in PCRE2.
    out_ += "(?";
    at_ += 2;
    size_t options = 0;
    for (; peek() == 'i' || peek() == 'x' || peek() == 'm' || peek() == '-'; ++at_, ++options)
      out_ += peek() == 'm' ? 's' : peek();
    if (options == 0 || (peek() != ':' && peek() != ')'))
      refuse("the group '(?" + std::string(in_.substr(at_, 1)) + "'");
    if (peek() == ':') copy(1);  // the ')' of (?i) ends the group as any other
  }

  void set() {
    copy(1);
    if (peek() == '^') copy(1);
    if (peek() == ']') copy(1);
    for (; at_ < in_.size() && peek() != ']';) {
      if (starts("[:")) {
        const size_t end = in_.find(":]", at_);
        if (end == in_.npos) refuse("an open '[:'");
        posix(in_.substr(at_ + 2, end - at_ - 2));
        at_ = end + 2;
      } else if (peek() == '[') {
        refuse("a set in a set");
      } else if (starts("&&")) {
        refuse("an intersection of sets");
      } else if (peek() == '\\') {
        escape(true);
      } else {
        copy(1);
      }
    }
    if (at_ < in_.size()) copy(1);
  }

  void posix(std::string_view name) {
    for (const auto& [known, set] : kPosix) {
      if (name != known) continue;
      out_ += set;
      return;
    }
    refuse("the class '[:" + std::string(name) + ":]'");
  }

  void one_of(std::string_view set, bool inside, bool negated) {
    at_ += 2;
    if (inside && negated) refuse("a negated class in a set");
    if (!inside) out_ += negated ? "[^" : "[";
    out_ += set;
    if (!inside && set == kWord) out_ += kWordAlone;
    if (!inside) out_ += ']';
  }

  void escape(bool inside) {
    const char c = peek(1);
    switch (c) {
      case 's':
        return one_of(kSpace, inside, false);
      case 'w':
        return one_of(kWord, inside, false);
      case 'h':
        return one_of(kHex, inside, false);
      case 'd':
        return one_of(R"(\p{Nd})", inside, false);
      case 'S':
      case 'W':
      case 'D':
        if (inside) return copy(2);  // differs from Ruby's in few characters, such as U+180E
        return one_of(c == 'S' ? kSpace : c == 'W' ? kWord : R"(\p{Nd})", inside, true);
      case 'H':
        return one_of(kHex, inside, true);
      case 'b':
      case 'B':
        return boundary(inside, c == 'b');
      case 'p':
      case 'P':
        return property();
      case 'u':
        return code_point();
      case 'v':
        out_ += R"(\x0B)";
        at_ += 2;
        return;
      case 'x':
      case 'n':
      case 'r':
      case 't':
      case 'f':
      case 'a':
      case 'e':
      case 'A':
      case 'z':
      case 'Z':
        return copy(2);
      default:
        break;
    }
    if (is_ascii_letter(c) || is_digit(c) || c == '\0')
      refuse(std::string("the escape '\\") + (c ? std::string(1, c) : "") + "'");
    copy(2);
  }

  void boundary(bool inside, bool is) {
    at_ += 2;
    if (inside) {
      out_ += R"(\x08)";
      return;
    }
    const std::string w = '[' + std::string(kWord) + std::string(kWordAlone) + ']',
                      before = "(?<=" + w + ')', after = "(?=" + w + ')',
                      not_before = "(?<!" + w + ')', not_after = "(?!" + w + ')';
    out_ += is ? "(?:" + before + not_after + '|' + not_before + after + ')'
               : "(?:" + before + after + '|' + not_before + not_after + ')';
  }

  void property() {
    if (peek(2) != '{') refuse("a property without braces");
    const size_t end = in_.find('}', at_);
    if (end == in_.npos) refuse("an open property");
    std::string_view name = in_.substr(at_ + 3, end - at_ - 3);
    out_ += in_.substr(at_, 3);
    if (name.starts_with('^')) {
      out_ += '^';
      name.remove_prefix(1);
    }
    for (const auto& [theirs, ours] : kNames)
      if (name == theirs) name = ours;
    out_ += name;
    out_ += '}';
    at_ = end + 1;
  }

  void code_point() {
    const std::string_view digits = in_.substr(at_ + 2 < in_.size() ? at_ + 2 : in_.size(), 4);
    if (digits.size() < 4) refuse("an escape '\\u' without four digits");
    for (const char d : digits)
      if (!is_hex(d)) refuse("an escape '\\u' without four digits");
    out_ += "\\x{" + std::string(digits) + '}';
    at_ += 6;
  }

  std::string_view in_;
  const std::string& where_;
  size_t at_ = 0;
  std::string out_;
  size_t atom_ = 0;             // where the last atom begins in out_
  std::vector<size_t> groups_;  // where the open groups begin in out_
};

}  // namespace

std::string pcre_pattern(std::string_view pattern, const std::string& where) {
  constexpr size_t kMostBytes = 1 << 16;
  if (pattern.size() > kMostBytes)
    throw Error(TENON_UNSUPPORTED, where + ": a regular expression has " +
                                       std::to_string(pattern.size()) +
                                       " bytes; expected at most " + std::to_string(kMostBytes));
  return Translator(pattern, where).run();
}

}  // namespace tenon::llm
