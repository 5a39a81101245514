// SPDX-License-Identifier: Apache-2.0
// UTF-8 and the classes of characters that tokenizers use. Functions that take text expect valid UTF-8;
// sanitize() makes it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tenon::llm {

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD
inline constexpr std::string_view kMetaspace = "\xE2\x96\x81";    // U+2581, a visible space

// The bytes of the character that starts with this byte; 1 for bytes that start none.
constexpr size_t character_size(unsigned char first) {
  return first < 0xC2 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 1;
}

// Decodes the character at `at`, which must be inside the text, and moves behind it.
inline char32_t next_character(std::string_view text, size_t& at) {
  const auto byte = [&](size_t i) {
    return static_cast<char32_t>(static_cast<unsigned char>(text[at + i]));
  };
  const char32_t first = byte(0);
  const size_t size = character_size(static_cast<unsigned char>(first));
  char32_t c = first;
  if (size > text.size() - at)
    c = 0xFFFD, at = text.size();
  else if (size == 1)
    at += 1;
  else if (size == 2)
    c = (first & 0x1F) << 6 | (byte(1) & 0x3F), at += 2;
  else if (size == 3)
    c = (first & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), at += 3;
  else
    c = (first & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F),
    at += 4;
  return c;
}

void append_character(std::string& text, char32_t c);
std::string character_text(char32_t c);

// The bytes at the start of `text` that form one valid character, or 0. `cut` says whether more bytes could
// complete the character; `bad` is the number of bytes that one U+FFFD replaces.
struct Prefix {
  size_t valid = 0;
  size_t bad = 1;
  bool cut = false;
};
Prefix first_character(std::string_view text);
bool is_utf8(std::string_view text);

// Returns the text, with U+FFFD for each longest part of a character that is not valid. Copies into `storage`
// only if something is replaced.
std::string_view sanitize(std::string_view text, std::string& storage);
std::string sanitized(std::string_view text);

bool is_ascii(std::string_view text);

// Throws if a stage of a tokenizer has made a text of `from` bytes one of `to` bytes, and that is far more.
void check_growth(size_t from, size_t to);

// The property White_Space of Unicode.
bool is_space(char32_t c);
// General categories, by their first letter or as a whole.
bool is_number(char32_t c);           // N
bool is_letter(char32_t c);           // L
bool is_mark(char32_t c);             // M
bool is_nonspacing_mark(char32_t c);  // Mn
bool is_punctuation(char32_t c);      // P, and all punctuation and symbols of ASCII
bool is_control(char32_t c);          // C, without unassigned characters
bool is_word(char32_t c);             // \w of regular expressions
bool is_ideograph(char32_t c);        // the blocks that BERT separates by spaces

enum class Form { nfc, nfd, nfkc, nfkd };
std::string normalize(std::string_view text, Form form);
std::string lowercase(std::string_view text);

// Calls found(begin, end) for each grapheme cluster.
class Graphemes {
 public:
  explicit Graphemes(std::string_view text) : text_(text) {}
  // Returns false at the end of the text.
  bool next(size_t& begin, size_t& end);

 private:
  std::string_view text_;
  size_t at_ = 0;
  int32_t state_ = 0;
};

}  // namespace tenon::llm
