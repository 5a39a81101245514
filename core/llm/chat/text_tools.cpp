// SPDX-License-Identifier: Apache-2.0
// Stripping, splitting, replacing and filling of texts.
#include "llm/chat/text_tools.hpp"

#include <algorithm>

#include "llm/chat/unicode.hpp"

namespace tenon::llm::jinja {
namespace {

template <class Drops>
std::string strip_while(std::string_view text, Sides sides, Drops&& drops) {
  size_t begin = 0, end = text.size();
  while ((static_cast<int>(sides) & 1) && begin < end) {
    size_t next = begin;
    if (!drops(next_character(text, next))) break;
    begin = next;
  }
  while ((static_cast<int>(sides) & 2) && begin < end) {
    const size_t last = before_char(text, end);
    size_t next = last;
    if (!drops(next_character(text, next))) break;
    end = last;
  }
  return std::string(text.substr(begin, end - begin));
}

bool is_line_end(char32_t c) {
  return (c >= 0xA && c <= 0xD) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

}  // namespace

std::string stripped(std::string_view text, Sides sides) {
  return strip_while(text, sides, python::is_space);
}

std::string stripped(std::string_view text, Sides sides, std::string_view chars) {
  return strip_while(text, sides, [&](char32_t c) {
    std::string one;
    append_character(one, c);
    return chars.find(one) != chars.npos;
  });
}

std::string replaced(Machine& m, std::string_view text, std::string_view old, std::string_view with,
                     int64_t most) {
  m.work_on(text);
  std::string out;
  size_t at = 0;
  for (int64_t n = 0; most < 0 || n < most; ++n) {
    size_t found = text.find(old, at);
    if (old.empty()) {  // before each character, and at the end
      if (n > 0 && at >= text.size()) break;
      found = at;
      if (n > 0) next_character(text, found);
    }
    if (found == text.npos) break;
    out += text.substr(at, found - at);
    m.charge(found - at + with.size());
    out += with;
    at = found + old.size();
  }
  if (at < text.size()) out += text.substr(at);
  return out;
}

std::vector<std::string_view> split_at(std::string_view text, std::string_view separator,
                                       int64_t most, bool from_end) {
  std::vector<std::string_view> parts;
  for (int64_t n = 0; most < 0 || n < most; ++n) {
    const size_t at = from_end ? text.rfind(separator) : text.find(separator);
    if (at == text.npos) break;
    const std::string_view after = text.substr(at + separator.size());
    parts.push_back(from_end ? after : text.substr(0, at));
    text = from_end ? text.substr(0, at) : after;
  }
  parts.push_back(text);
  if (from_end) std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> split_at_space(std::string_view text, int64_t most, bool from_end) {
  std::vector<std::string_view> parts;
  size_t begin = 0, end = text.size();
  const auto first = [&](size_t at) { return python::is_space(next_character(text, at)); };
  const auto skip = [&](bool space) {  // moves over characters that are space, or that are not
    if (from_end) {
      while (begin < end && first(before_char(text, end)) == space) end = before_char(text, end);
    } else {
      while (begin < end && first(begin) == space) next_character(text, begin);
    }
  };
  for (int64_t n = 0;; ++n) {
    skip(true);
    if (begin == end) break;
    if (most >= 0 && n >= most) {
      parts.push_back(text.substr(begin, end - begin));
      break;
    }
    const size_t from = begin, to = end;
    skip(false);
    parts.push_back(from_end ? text.substr(end, to - end) : text.substr(from, begin - from));
  }
  if (from_end) std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> lines_of(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t mark = at;
    const char32_t c = next_character(text, at);
    if (!is_line_end(c)) continue;
    if (c == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.push_back(text.substr(begin, (keep_ends ? at : mark) - begin));
    begin = at;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

std::string justified(Machine& m, std::string_view text, int64_t width, std::string_view fill,
                      char align) {
  const auto size = static_cast<int64_t>(count_chars(text));
  if (width <= size) return std::string(text);
  const auto missing = static_cast<uint64_t>(width - size);
  if (missing > m.limits().memory / fill.size()) m.charge(m.limits().memory + 1);
  m.charge(missing * fill.size());
  // Python puts the odd space of a centre to the left if the width is odd.
  const uint64_t middle = missing / 2 + (missing & static_cast<uint64_t>(width) & 1);
  const uint64_t before = align == '<' ? 0 : align == '>' ? missing : middle;
  std::string out;
  for (uint64_t i = 0; i < before; ++i) out += fill;
  out += text;
  for (uint64_t i = before; i < missing; ++i) out += fill;
  return out;
}

bool is_cased(std::string_view text, bool upper) {
  bool any = false;
  for (size_t at = 0; at < text.size();) {
    const char32_t c = next_character(text, at);
    const bool is_upper = python::is_upper(c), is_lower = python::is_lower(c);
    if (python::is_title(c) || (upper ? is_lower : is_upper)) return false;
    any |= upper ? is_upper : is_lower;
  }
  return any;
}

}  // namespace tenon::llm::jinja
