// SPDX-License-Identifier: Apache-2.0
// Offsets of characters, and cases and properties of characters as Python's str has them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "llm/text/unicode.hpp"

namespace tenon::llm::jinja {

// The offset of the character before the offset. The offset must not be 0.
inline size_t before_char(std::string_view text, size_t at) {
  do --at;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
  return at;
}
size_t count_chars(std::string_view text);
// The offset of a character, which must not be behind the end.
size_t offset_of_char(std::string_view text, size_t index);

namespace python {
bool is_space(char32_t c);
bool is_decimal(char32_t c);
bool is_digit(char32_t c);    // decimal, and digits such as superscripts
bool is_numeric(char32_t c);  // digits, and numbers such as fractions and ideographs
bool is_alnum(char32_t c);
bool is_upper(char32_t c);
bool is_lower(char32_t c);
bool is_title(char32_t c);
bool is_printable(char32_t c);
}  // namespace python

std::string lower_text(std::string_view text);
std::string upper_text(std::string_view text);
// The first letter of each word, or of the text alone, in title case; all others in lower case.
std::string title_text(std::string_view text);
std::string capitalize_text(std::string_view text);
std::string swapcase_text(std::string_view text);
std::string casefold_text(std::string_view text);

}  // namespace tenon::llm::jinja
