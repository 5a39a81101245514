// SPDX-License-Identifier: Apache-2.0
// UTF-8 and properties of characters, as Python's str has them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tenon::llm::jinja {

bool is_utf8(std::string_view text);

// The character at the offset, which moves behind it. The text must be UTF-8.
char32_t next_char(std::string_view text, size_t& at);
// The offset of the character before the offset. The offset must not be 0.
inline size_t before_char(std::string_view text, size_t at) {
  do --at;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
  return at;
}
void append_char(std::string& text, char32_t c);
size_t count_chars(std::string_view text);
// The offset of a character, which must not be behind the end.
size_t offset_of_char(std::string_view text, size_t index);

enum class CharFlag : uint16_t {
  alpha = 1,
  decimal = 2,
  digit = 4,
  numeric = 8,
  space = 16,
  upper = 32,
  lower = 64,
  printable = 128,
  title = 256,
  case_ignorable = 512,
  cased = 1024,
};
bool has(char32_t c, CharFlag flag);
inline bool is_space(char32_t c) { return has(c, CharFlag::space); }

std::string lower_text(std::string_view text);
std::string upper_text(std::string_view text);
// The first letter of each word, or of the text alone, in title case; all others in lower case.
std::string title_text(std::string_view text);
std::string capitalize_text(std::string_view text);
std::string swapcase_text(std::string_view text);
std::string casefold_text(std::string_view text);

}  // namespace tenon::llm::jinja
