// SPDX-License-Identifier: Apache-2.0
// UTF-8, classes of characters, normal forms and grapheme clusters.
#include "llm/text/unicode.hpp"

#include <doctest/doctest.h>

#include <vector>

using namespace tenon::llm;

TEST_SUITE("llm/text/unicode") {
  TEST_CASE("sanitize: valid text is not copied") {
    std::string storage;
    const std::string_view text = "a\xC3\xA4\xE4\xB8\x96\xF0\x9F\x9A\x80";
    CHECK(sanitize(text, storage).data() == text.data());
  }

  TEST_CASE("sanitize: one U+FFFD for each longest part of a character") {
    CHECK(sanitized("a\x80"
                    "b") ==
          "a\xEF\xBF\xBD"
          "b");
    CHECK(sanitized("\xE4\xB8") == "\xEF\xBF\xBD");              // cut
    CHECK(sanitized("\xF0\x9F\x9Aq") == "\xEF\xBF\xBDq");        // cut by another character
    CHECK(sanitized("\xC0\x80") == "\xEF\xBF\xBD\xEF\xBF\xBD");  // overlong
    CHECK(sanitized("\xED\xA0\x80") == "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");  // a surrogate
    CHECK(sanitized("\xF4\x90\x80\x80") ==
          "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");  // above U+10FFFF
  }

  TEST_CASE("is_utf8: refuses cut, overlong and bare bytes") {
    CHECK(is_utf8(""));
    CHECK(is_utf8("a\xC3\xA9\xF0\x9F\x9A\x80"));
    CHECK_FALSE(is_utf8("a\xE4\xB8"));
    CHECK_FALSE(is_utf8("\xC0\x80"));
    CHECK_FALSE(is_utf8("\x80q"));
  }

  TEST_CASE("first_character: tells a cut character from a wrong one") {
    CHECK(first_character("\xE4\xB8").cut);
    CHECK(first_character("\xE4\xB8").bad == 2);
    CHECK_FALSE(first_character("\xE4q").cut);
    CHECK(first_character("\xF0\x9F\x9A\x80").valid == 4);
  }

  TEST_CASE("characters: appended ones read back") {
    for (const char32_t c : {0x41u, 0x7Fu, 0x80u, 0x7FFu, 0x800u, 0xFFFFu, 0x10000u, 0x10FFFFu}) {
      const std::string text = character_text(c);
      size_t at = 0;
      CHECK(next_character(text, at) == c);
      CHECK(at == text.size());
    }
  }

  TEST_CASE("classes: spaces, marks, punctuation") {
    CHECK(is_space(0x3000));
    CHECK_FALSE(is_space(0x180E));
    CHECK_FALSE(is_space(0x200B));
    CHECK(is_nonspacing_mark(0x301));
    CHECK(is_mark(0x903));
    CHECK_FALSE(is_nonspacing_mark(0x903));
    CHECK(is_punctuation('$'));  // a symbol, but of ASCII
    CHECK_FALSE(is_punctuation(0xA3));
    CHECK(is_control(0xAD));         // a format character
    CHECK_FALSE(is_control(0x378));  // not assigned
    CHECK(is_number(0xBD));
  }

  TEST_CASE("normal forms") {
    CHECK(normalize("e\xCC\x81", Form::nfc) == "\xC3\xA9");
    CHECK(normalize("\xC3\xA9", Form::nfd) == "e\xCC\x81");
    CHECK(normalize("\xEF\xAC\x81", Form::nfkc) == "fi");
    CHECK(normalize("\xEF\xAC\x81", Form::nfc) == "\xEF\xAC\x81");
    CHECK(normalize(std::string_view("a\0b", 3), Form::nfkd) == std::string_view("a\0b", 3));
    CHECK(lowercase("\xC3\x84\xC4\xB0Z") == "\xC3\xA4i\xCC\x87z");
  }

  TEST_CASE("graphemes: a family of emoji is one") {
    const std::string family = "\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA7";
    const std::string text = "e\xCC\x81" + family + "\r\nx";
    std::vector<std::string> found;
    Graphemes g(text);
    for (size_t begin, end; g.next(begin, end);) found.push_back(text.substr(begin, end - begin));
    CHECK(found == std::vector<std::string>{"e\xCC\x81", family, "\r\n", "x"});
  }
}
