// SPDX-License-Identifier: Apache-2.0
// Expressions in the syntax of tokenizer.json, and their limits.
#include "llm/text/regex.hpp"

#include "text_helpers.hpp"

using namespace tenon;
using namespace tenon::test;
using llm::Regex;

namespace {

std::vector<std::string> matches(const std::string& pattern, const std::string& text) {
  std::vector<std::string> found;
  Regex(pattern, "test").each(text, [&](size_t begin, size_t end) {
    found.push_back(text.substr(begin, end - begin));
  });
  return found;
}
using Texts = std::vector<std::string>;

}  // namespace

TEST_SUITE("llm/text/regex") {
  TEST_CASE("matches: those of llama 3's expression") {
    const std::string pattern =
        R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
    CHECK(matches(pattern, "I'VE 12345  x!\n") ==
          Texts{"I", "'VE", " ", "123", "45", " ", " x", "!\n"});
  }

  TEST_CASE("repeats: {n,m}+ is not possessive") {
    CHECK(matches(R"(\d{1,2}+)", "12345") == Texts{"12345"});
    CHECK(matches(R"((ab){1,2}+c)", "ababababc") == Texts{"ababababc"});
    CHECK(matches("a{,2}", "aaa") == Texts{"aa", "a"});
    CHECK(matches("a++b", "aab") == Texts{"aab"});
  }

  TEST_CASE("classes: as Oniguruma has them") {
    CHECK(matches(R"(\h+)", "xA1fg") == Texts{"A1f"});
    CHECK(matches(R"(\s)", "\xE1\xA0\x8E \xE3\x80\x80") == Texts{" ", "\xE3\x80\x80"});
    CHECK(matches(R"(\w+)", "a\xCC\x81\xC2\xBD-b_") == Texts{"a\xCC\x81\xC2\xBD", "b_"});
    CHECK(matches(R"([\w]+)", "a\xC2\xBD") == Texts{"a"});
    CHECK(matches(R"([[:punct:]]+)", "a$!b") == Texts{"$!"});
    CHECK(matches(R"(\p{Letter}+)", "1ab2") == Texts{"ab"});
  }

  TEST_CASE("anchors: $ and ^ see lines, (?m) lets . match line ends") {
    CHECK(matches(R"(\w$)", "ab\ncd") == Texts{"b", "d"});
    CHECK(matches("^.", "ab\ncd") == Texts{"a", "c"});
    CHECK(matches("a.", "a\n").empty());
    CHECK(matches("(?m:a.)", "a\n") == Texts{"a\n"});
  }

  TEST_CASE("empty matches: between characters, not behind a match") {
    CHECK(matches(R"((?=(\d{3})+(?!\d)))", "1234567") == Texts{"", ""});
    CHECK(matches("x*", "axb") == Texts{"", "x", ""});
  }

  TEST_CASE("literal: no character has a meaning") {
    const std::string text = "a.b[c]\\d{2}^$|#- \n\t+";
    size_t begin = 0, end = 0;
    CHECK(Regex::literal(text, "test").find("x" + text, 0, begin, end));
    CHECK(begin == 1);
    CHECK(end == 1 + text.size());
  }

  TEST_CASE("refusals: what has another meaning in PCRE2") {
    for (const auto& [pattern, part] :
         std::vector<std::pair<std::string, std::string>>{{"(*UTF)a", "the verb '(*'"},
                                                          {"[a[bc]]", "a set in a set"},
                                                          {"[a&&b]", "an intersection of sets"},
                                                          {R"([\H])", "a negated class in a set"},
                                                          {R"(\Kx)", "the escape '\\K'"},
                                                          {R"((a)\1)", "the escape '\\1'"},
                                                          {"(?R)", "the group '(?R'"},
                                                          {"(?<name>a)", "the group '(?<'"},
                                                          {R"(\pL)", "a property without braces"},
                                                          {R"(\p{Nothing})", "is not valid"},
                                                          {"(a", "is not valid"}}) {
      CAPTURE(pattern);
      CHECK(has(message([&] { Regex(pattern, "here"); }), part));
      CHECK(has(message([&] { Regex(pattern, "here"); }),
                "here: the regular expression '" + pattern));
    }
  }

  TEST_CASE("limit: an expression that takes too many steps is an error") {
    const std::string text(40, 'a');
    const std::string error = message([&] { matches(R"(^(a|a|aa)+$)", text + "b"); });
    CHECK(has(error, "takes too long"));
    CHECK(has(error, "(a|a|aa)+"));
  }
}
