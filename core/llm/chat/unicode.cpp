// SPDX-License-Identifier: Apache-2.0
// Categories and simple case mappings come from utf8proc. Short lists hold what it lacks.
#include "llm/chat/unicode.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>

namespace tenon::llm::jinja {
namespace {

struct Range {
  char32_t first, last;
};
// The property Numeric_Type=Digit.
constexpr Range kDigits[] = {
    {0xB2, 0xB3},       {0xB9, 0xB9},       {0x1369, 0x1371},   {0x19DA, 0x19DA},
    {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},   {0x2460, 0x2468},
    {0x2474, 0x247C},   {0x2488, 0x2490},   {0x24EA, 0x24EA},   {0x24F5, 0x24FD},
    {0x24FF, 0x24FF},   {0x2776, 0x277E},   {0x2780, 0x2788},   {0x278A, 0x2792},
    {0x10A40, 0x10A43}, {0x10E60, 0x10E68}, {0x11052, 0x1105A}, {0x1F100, 0x1F10A}};
// The property Other_Uppercase.
constexpr Range kOtherUpper[] = {
    {0x2160, 0x216F}, {0x24B6, 0x24CF}, {0x1F130, 0x1F149}, {0x1F150, 0x1F169}, {0x1F170, 0x1F189}};
// The property Other_Lowercase.
constexpr Range kOtherLower[] = {
    {0xAA, 0xAA},       {0xBA, 0xBA},       {0x2B0, 0x2B8},     {0x2C0, 0x2C1},    {0x2E0, 0x2E4},
    {0x345, 0x345},     {0x37A, 0x37A},     {0x1D2C, 0x1D6A},   {0x1D78, 0x1D78},  {0x1D9B, 0x1DBF},
    {0x2071, 0x2071},   {0x207F, 0x207F},   {0x2090, 0x209C},   {0x2170, 0x217F},  {0x24D0, 0x24E9},
    {0x2C7C, 0x2C7D},   {0xA69C, 0xA69D},   {0xA770, 0xA770},   {0xA7F8, 0xA7F9},  {0xAB5C, 0xAB5F},
    {0x10780, 0x10780}, {0x10783, 0x10785}, {0x10787, 0x107B0}, {0x107B2, 0x107BA}};
// Ideographs with a numeric value.
constexpr std::u32string_view kNumericIdeographs =
    U"\x3405\x3483\x382A\x3B4D\x4E00\x4E03\x4E07\x4E09\x4E5D\x4E8C\x4E94\x4E96\x4EBF\x4EC0\x4EDF"
    U"\x4EE8\x4F0D\x4F70\x5104\x5146\x5169\x516B\x516D\x5341\x5343\x5344\x5345\x534C\x53C1\x53C2"
    U"\x53C3\x53C4\x56DB\x58F1\x58F9\x5E7A\x5EFE\x5EFF\x5F0C\x5F0D\x5F0E\x5F10\x62FE\x634C\x67D2"
    U"\x6F06\x7396\x767E\x8086\x842C\x8CAE\x8CB3\x8D30\x9621\x9646\x964C\x9678\x96F6\xF96B\xF973"
    U"\xF978\xF9B2\xF9D1\xF9D3\xF9FD\x20001\x20064\x200E2\x20121\x2092A\x20983\x2098C\x2099C"
    U"\x20AEA\x20AFD\x20B19\x22390\x22998\x23B1B\x2626D\x2F890";
// Punctuation that the property Case_Ignorable has beside whole categories.
constexpr std::u32string_view kIgnorablePunctuation =
    U"\x27\x2E\x3A\xB7\x387\x55F\x5F4\x2018\x2019\x2024\x2027\xFE13\xFE52\xFE55\xFF07\xFF0E\xFF1A";

constexpr char32_t kSharpS = 0xDF, kSigma = 0x3A3, kFinalSigma = 0x3C2, kSmallSigma = 0x3C3,
                   kSmallIota = 0x3B9, kIotaBelow = 0x345;

template <size_t N>
bool in(const Range (&ranges)[N], char32_t c) {
  const Range* next = std::upper_bound(std::begin(ranges), std::end(ranges), c,
                                       [](char32_t x, const Range& r) { return x < r.first; });
  return next != std::begin(ranges) && c <= (next - 1)->last;
}

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

char32_t upper_of(char32_t c) {
  return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c)));
}

char32_t title_of(char32_t c) {
  return static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c)));
}

bool is_cased(char32_t c) {
  return python::is_upper(c) || python::is_lower(c) || python::is_title(c);
}

bool is_case_ignorable(char32_t c) {
  const auto k = category(c);
  return k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_ME || k == UTF8PROC_CATEGORY_CF ||
         k == UTF8PROC_CATEGORY_LM || k == UTF8PROC_CATEGORY_SK ||
         kIgnorablePunctuation.find(c) != kIgnorablePunctuation.npos;
}

std::u32string folded(char32_t c) {
  constexpr int kMost = 8;  // Unicode has at most 3
  utf8proc_int32_t out[kMost];
  int last_class = 0;
  const auto size = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), out, kMost,
                                            UTF8PROC_CASEFOLD, &last_class);
  return size < 1 || size > kMost ? std::u32string(1, c) : std::u32string(out, out + size);
}

// The folded form of a character that becomes several in upper case, or else nothing.
std::u32string several(char32_t c) {
  if (c < kSharpS || category(c) == UTF8PROC_CATEGORY_LU) return {};
  std::u32string parts = folded(c);
  return parts.size() > 1 ? parts : std::u32string();
}

void append_upper(std::string& out, char32_t c) {
  const std::u32string parts = several(c);
  for (const char32_t part : parts) append_character(out, upper_of(part));
  if (parts.empty()) append_character(out, upper_of(c));
}

void append_title(std::string& out, char32_t c) {
  const char32_t simple = title_of(c);
  // utf8proc has the capital sharp s as its title case, which Unicode has not.
  const std::u32string parts =
      (simple == c && !python::is_title(c)) || c == kSharpS ? several(c) : std::u32string();
  if (parts.empty()) return append_character(out, simple);
  bool begun = false;
  for (const char32_t part : parts) {
    const char32_t first = title_of(part);
    append_character(out, !begun ? first : part == kSmallIota ? kIotaBelow : part);
    begun |= first != part;
  }
}

// A sigma ends a word if a cased letter precedes it and none follows.
bool is_final(std::string_view text, size_t at, size_t after) {
  bool letter_before = false;
  while (at > 0 && !letter_before) {
    at = before_char(text, at);
    size_t end = at;
    const char32_t c = next_character(text, end);
    if (is_case_ignorable(c)) continue;
    if (!is_cased(c)) return false;
    letter_before = true;
  }
  if (!letter_before) return false;
  while (after < text.size()) {
    const char32_t c = next_character(text, after);
    if (!is_case_ignorable(c)) return !is_cased(c);
  }
  return true;
}

void append_lower(std::string& out, std::string_view text, size_t begin, size_t end) {
  for (size_t at = begin; at < end;) {
    const size_t start = at;
    if (next_character(text, at) == kSigma)
      append_character(out, is_final(text, start, at) ? kFinalSigma : kSmallSigma);
    else
      out += lowercase(text.substr(start, at - start));
  }
}

}  // namespace

namespace python {

bool is_space(char32_t c) { return llm::is_space(c) || (c >= 0x1C && c <= 0x1F); }
bool is_decimal(char32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }
bool is_digit(char32_t c) { return is_decimal(c) || in(kDigits, c); }
bool is_numeric(char32_t c) {
  return is_number(c) || kNumericIdeographs.find(c) != kNumericIdeographs.npos;
}
bool is_alnum(char32_t c) { return is_letter(c) || is_numeric(c); }
bool is_upper(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LU || in(kOtherUpper, c); }
bool is_lower(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LL || in(kOtherLower, c); }
bool is_title(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LT; }

bool is_printable(char32_t c) {
  const auto k = category(c);
  return c == ' ' || (k != UTF8PROC_CATEGORY_CN && k < UTF8PROC_CATEGORY_ZS);
}

}  // namespace python

size_t count_chars(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

size_t offset_of_char(std::string_view text, size_t index) {
  size_t at = 0;
  for (; index > 0 && at < text.size(); --index) next_character(text, at);
  return at;
}

std::string lower_text(std::string_view text) {
  std::string out;
  append_lower(out, text, 0, text.size());
  return out;
}

std::string upper_text(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) append_upper(out, next_character(text, at));
  return out;
}

std::string casefold_text(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();)
    for (const char32_t c : folded(next_character(text, at))) append_character(out, c);
  return out;
}

std::string title_text(std::string_view text) {
  std::string out;
  bool inside = false;
  for (size_t at = 0; at < text.size();) {
    const size_t start = at;
    const char32_t c = next_character(text, at);
    if (inside)
      append_lower(out, text, start, at);
    else
      append_title(out, c);
    inside = is_cased(c);
  }
  return out;
}

std::string capitalize_text(std::string_view text) {
  std::string out;
  if (text.empty()) return out;
  size_t at = 0;
  append_title(out, next_character(text, at));
  append_lower(out, text, at, text.size());
  return out;
}

std::string swapcase_text(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t start = at;
    const char32_t c = next_character(text, at);
    if (python::is_upper(c))
      append_lower(out, text, start, at);
    else if (python::is_lower(c))
      append_upper(out, c);
    else
      append_character(out, c);
  }
  return out;
}

}  // namespace tenon::llm::jinja
