// SPDX-License-Identifier: Apache-2.0
// Classes and normal forms come from utf8proc.
#include "llm/text/unicode.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>

#include "tenon/tenon.hpp"

namespace tenon::llm {
namespace {

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

bool between(char32_t c, char32_t low, char32_t high) { return low <= c && c <= high; }

// The size of the longest start of the text that is valid.
size_t valid_size(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    const Prefix p = first_character(text.substr(at));
    if (p.valid == 0) break;
    at += p.valid;
  }
  return at;
}

}  // namespace

void append_character(std::string& text, char32_t c) {
  const auto add = [&](char32_t byte) { text += static_cast<char>(byte); };
  if (c < 0x80) {
    add(c);
  } else if (c < 0x800) {
    add(0xC0 | c >> 6);
    add(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    add(0xE0 | c >> 12);
    add(0x80 | (c >> 6 & 0x3F));
    add(0x80 | (c & 0x3F));
  } else {
    add(0xF0 | c >> 18);
    add(0x80 | (c >> 12 & 0x3F));
    add(0x80 | (c >> 6 & 0x3F));
    add(0x80 | (c & 0x3F));
  }
}

std::string character_text(char32_t c) {
  std::string text;
  append_character(text, c);
  return text;
}

Prefix first_character(std::string_view text) {
  Prefix p;
  if (text.empty()) return p;
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) {
    p.valid = 1;
    return p;
  }
  const size_t size = character_size(first);
  if (size == 1) return p;
  // The second byte excludes overlong forms, surrogates and what exceeds U+10FFFF.
  unsigned char low = 0x80, high = 0xBF;
  if (first == 0xE0) low = 0xA0;
  if (first == 0xED) high = 0x9F;
  if (first == 0xF0) low = 0x90;
  if (first == 0xF4) high = 0x8F;
  for (size_t i = 1; i < size; ++i, low = 0x80, high = 0xBF) {
    p.bad = i;
    if (i == text.size()) {
      p.cut = true;
      return p;
    }
    if (byte(i) < low || byte(i) > high) return p;
  }
  p.valid = size;
  return p;
}

bool is_utf8(std::string_view text) { return valid_size(text) == text.size(); }

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

void check_growth(size_t from, size_t to) {
  // One character becomes at most 18, by NFKD, and each byte two, as a visible one.
  constexpr size_t kMostTimes = 64, kAlways = size_t{1} << 20, kMostBytes = size_t{1} << 30;
  const size_t most = std::min(kMostTimes * from + kAlways, kMostBytes);
  if (to > most)
    throw Error(TENON_UNSUPPORTED, "tokenizer: a text of " + std::to_string(from) +
                                       " bytes grows to more than " + std::to_string(most) +
                                       " bytes");
}

std::string_view sanitize(std::string_view text, std::string& storage) {
  size_t at = valid_size(text);
  if (at == text.size()) return text;
  storage.assign(text.substr(0, at));
  while (at < text.size()) {
    at += first_character(text.substr(at)).bad;
    storage += kReplacement;
    const size_t valid = valid_size(text.substr(at));
    storage += text.substr(at, valid);
    at += valid;
  }
  return storage;
}

std::string sanitized(std::string_view text) {
  std::string storage;
  return std::string(sanitize(text, storage));
}

bool is_space(char32_t c) {
  if (c < 0x80) return c == ' ' || between(c, 9, 13);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || between(c, 0x2000, 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_number(char32_t c) {
  if (c < 0x80) return between(c, '0', '9');
  const auto k = category(c);
  return k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO;
}

bool is_letter(char32_t c) {
  const auto k = category(c);
  return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

bool is_mark(char32_t c) {
  const auto k = category(c);
  return k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_MC || k == UTF8PROC_CATEGORY_ME;
}

bool is_nonspacing_mark(char32_t c) { return category(c) == UTF8PROC_CATEGORY_MN; }

bool is_punctuation(char32_t c) {
  if (c < 0x80)
    return between(c, '!', '/') || between(c, ':', '@') || between(c, '[', '`') ||
           between(c, '{', '~');
  const auto k = category(c);
  return k >= UTF8PROC_CATEGORY_PC && k <= UTF8PROC_CATEGORY_PO;
}

bool is_control(char32_t c) {
  const auto k = category(c);
  return k >= UTF8PROC_CATEGORY_CC;  // unassigned characters are none
}

bool is_word(char32_t c) {
  if (c < 0x80)
    return between(c, '0', '9') || between(c, 'a', 'z') || between(c, 'A', 'Z') || c == '_';
  const auto k = category(c);
  return is_letter(c) || is_mark(c) || k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL ||
         k == UTF8PROC_CATEGORY_PC || c == 0x200C || c == 0x200D || between(c, 0x24B6, 0x24E9) ||
         between(c, 0x1F130, 0x1F149) || between(c, 0x1F150, 0x1F169) ||
         between(c, 0x1F170, 0x1F189);
}

bool is_ideograph(char32_t c) {
  return between(c, 0x4E00, 0x9FFF) || between(c, 0x3400, 0x4DBF) || between(c, 0x20000, 0x2A6DF) ||
         between(c, 0x2A700, 0x2B73F) || between(c, 0x2B740, 0x2B81F) ||
         between(c, 0x2B920, 0x2CEAF) || between(c, 0xF900, 0xFAFF) || between(c, 0x2F800, 0x2FA1F);
}

std::string normalize(std::string_view text, Form form) {
  if (is_ascii(text)) return std::string(text);
  int options = UTF8PROC_STABLE;
  options |= form == Form::nfc || form == Form::nfkc ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (form == Form::nfkc || form == Form::nfkd) options |= UTF8PROC_COMPAT;
  utf8proc_uint8_t* out = nullptr;
  const utf8proc_ssize_t size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                             static_cast<utf8proc_ssize_t>(text.size()), &out,
                                             static_cast<utf8proc_option_t>(options));
  const std::unique_ptr<utf8proc_uint8_t, void (*)(void*)> owner(out, std::free);
  if (size == UTF8PROC_ERROR_NOMEM) throw std::bad_alloc();
  if (size < 0) return std::string(text);
  return {reinterpret_cast<const char*>(out), static_cast<size_t>(size)};
}

std::string lowercase(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const unsigned char byte = static_cast<unsigned char>(text[at]);
    if (byte < 0x80) {
      out += static_cast<char>(between(byte, 'A', 'Z') ? byte + 32 : byte);
      ++at;
      continue;
    }
    const char32_t c = next_character(text, at);
    if (c == 0x130)  // the one character whose lowercase form has two characters
      out += "i\xCC\x87";
    else
      append_character(out,
                       static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  }
  return out;
}

bool Graphemes::next(size_t& begin, size_t& end) {
  if (at_ >= text_.size()) return false;
  begin = at_;
  char32_t last = next_character(text_, at_);
  while (at_ < text_.size()) {
    size_t behind = at_;
    const char32_t c = next_character(text_, behind);
    if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(last),
                                         static_cast<utf8proc_int32_t>(c), &state_))
      break;
    last = c;
    at_ = behind;
  }
  end = at_;
  return true;
}

}  // namespace tenon::llm
