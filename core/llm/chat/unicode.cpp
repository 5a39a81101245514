// SPDX-License-Identifier: Apache-2.0
// UTF-8, and lookups in the tables of characters.
#include "llm/chat/unicode.hpp"

#include <algorithm>
#include <iterator>

namespace tenon::llm::jinja {
namespace {

struct FlagRun {  // from this character to the next run
  uint32_t first;
  uint16_t flags;
};
struct CaseRun {  // first, first + step, ... last
  uint32_t first, last, step;
  int32_t delta;
};
struct CaseText {  // a character that becomes several
  uint32_t code;
  const char* text;
};
#include "llm/chat/unicode_tables.inl"

uint16_t flags_of(char32_t c) {
  const FlagRun* next = std::upper_bound(std::begin(kFlagRuns), std::end(kFlagRuns), c,
                                         [](uint32_t x, const FlagRun& r) { return x < r.first; });
  return next == std::begin(kFlagRuns) ? uint16_t{0} : (next - 1)->flags;
}

template <size_t M, size_t N>
void append_mapped(std::string& out, char32_t c, const CaseRun (&runs)[M],
                   const CaseText (&texts)[N]) {
  const CaseText* text = std::lower_bound(std::begin(texts), std::end(texts), c,
                                          [](const CaseText& t, uint32_t x) { return t.code < x; });
  if (text != std::end(texts) && text->code == c) {
    out += text->text;
    return;
  }
  const CaseRun* run = std::upper_bound(std::begin(runs), std::end(runs), c,
                                        [](uint32_t x, const CaseRun& r) { return x < r.first; });
  // Runs of every second character may overlap with their neighbours.
  for (int back = 0; back < 3 && run != std::begin(runs); ++back) {
    --run;
    if (c <= run->last && (c - run->first) % run->step == 0) {
      append_char(out, static_cast<char32_t>(static_cast<int64_t>(c) + run->delta));
      return;
    }
  }
  append_char(out, c);
}

constexpr char32_t kSigma = 0x3A3, kFinalSigma = 0x3C2, kSmallSigma = 0x3C3;

// A sigma ends a word if a cased letter precedes it and none follows.
bool is_final(std::string_view text, size_t at, size_t after) {
  bool letter_before = false;
  while (at > 0) {
    at = before_char(text, at);
    size_t end = at;
    const char32_t c = next_char(text, end);
    if (has(c, CharFlag::case_ignorable)) continue;
    letter_before = has(c, CharFlag::cased);
    break;
  }
  if (!letter_before) return false;
  while (after < text.size()) {
    const char32_t c = next_char(text, after);
    if (has(c, CharFlag::case_ignorable)) continue;
    return !has(c, CharFlag::cased);
  }
  return true;
}

void append_lower(std::string& out, std::string_view text, size_t begin, size_t end) {
  for (size_t at = begin; at < end;) {
    const size_t start = at;
    const char32_t c = next_char(text, at);
    if (c == kSigma)
      append_char(out, is_final(text, start, at) ? kFinalSigma : kSmallSigma);
    else
      append_mapped(out, c, kLowerRuns, kLowerTexts);
  }
}

}  // namespace

bool is_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
    const unsigned char first = byte(at);
    const size_t size = first < 0x80    ? 1
                        : first < 0xC2  ? 0
                        : first < 0xE0  ? 2
                        : first < 0xF0  ? 3
                        : first <= 0xF4 ? 4
                                        : 0;
    if (size == 0 || text.size() - at < size) return false;
    for (size_t i = 1; i < size; ++i)
      if ((byte(at + i) & 0xC0) != 0x80) return false;
    if (size > 2) {
      const unsigned char second = byte(at + 1);
      if ((first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) ||
          (first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F))
        return false;
    }
    at += size;
  }
  return true;
}

char32_t next_char(std::string_view text, size_t& at) {
  const auto byte = [&] { return static_cast<unsigned char>(text[at++]); };
  const unsigned char first = byte();
  if (first < 0x80) return first;
  const int more = first < 0xE0 ? 1 : first < 0xF0 ? 2 : 3;
  char32_t c = first & (0x3F >> more);
  for (int i = 0; i < more && at < text.size(); ++i) c = c << 6 | (byte() & 0x3F);
  return c;
}

void append_char(std::string& text, char32_t c) {
  const auto put = [&](uint32_t byte) { text += static_cast<char>(byte); };
  if (c < 0x80) return put(c);
  if (c < 0x800) {
    put(0xC0 | c >> 6);
  } else {
    if (c < 0x10000) {
      put(0xE0 | c >> 12);
    } else {
      put(0xF0 | c >> 18);
      put(0x80 | (c >> 12 & 0x3F));
    }
    put(0x80 | (c >> 6 & 0x3F));
  }
  put(0x80 | (c & 0x3F));
}

size_t count_chars(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

size_t offset_of_char(std::string_view text, size_t index) {
  size_t at = 0;
  for (; index > 0 && at < text.size(); --index) next_char(text, at);
  return at;
}

bool has(char32_t c, CharFlag flag) { return flags_of(c) & static_cast<uint16_t>(flag); }

std::string lower_text(std::string_view text) {
  std::string out;
  append_lower(out, text, 0, text.size());
  return out;
}

std::string upper_text(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();)
    append_mapped(out, next_char(text, at), kUpperRuns, kUpperTexts);
  return out;
}

std::string casefold_text(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();)
    append_mapped(out, next_char(text, at), kFoldRuns, kFoldTexts);
  return out;
}

std::string title_text(std::string_view text) {
  std::string out;
  bool inside = false;
  for (size_t at = 0; at < text.size();) {
    const size_t start = at;
    const char32_t c = next_char(text, at);
    if (inside)
      append_lower(out, text, start, at);
    else
      append_mapped(out, c, kTitleRuns, kTitleTexts);
    inside = has(c, CharFlag::cased);
  }
  return out;
}

std::string capitalize_text(std::string_view text) {
  std::string out;
  if (text.empty()) return out;
  size_t at = 0;
  append_mapped(out, next_char(text, at), kTitleRuns, kTitleTexts);
  append_lower(out, text, at, text.size());
  return out;
}

std::string swapcase_text(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t start = at;
    const char32_t c = next_char(text, at);
    if (has(c, CharFlag::upper))
      append_lower(out, text, start, at);
    else if (has(c, CharFlag::lower))
      append_mapped(out, c, kUpperRuns, kUpperTexts);
    else
      append_char(out, c);
  }
  return out;
}

}  // namespace tenon::llm::jinja
