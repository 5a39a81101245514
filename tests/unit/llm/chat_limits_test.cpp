// SPDX-License-Identifier: Apache-2.0
// Chat templates that would not end, or fill the memory or the stack, are errors.
#include "chat_rig.hpp"
#include "llm/json_text.hpp"

using namespace tenon;
using namespace tenon::llm;

namespace {

std::string repeated(std::string_view text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

}  // namespace

TEST_SUITE_BEGIN("llm/chat limits");

TEST_CASE("steps") {
  const std::string text = refusal(
      "{% for a in range(10000) %}{% for b in range(10000) %}{{ a }}{% endfor %}{% endfor %}",
      TENON_OUT_OF_MEMORY, ChatJson::object(), {.steps = 100000});
  CHECK(text == "chat template, line 1: limit exceeded: more than 100000 steps");
}

TEST_CASE("memory") {
  const jinja::Limits limits{.memory = 1 << 20};
  for (const char* source : {
           "{{ 'x' * 100000000 }}",
           "{{ 'x' * 9223372036854775807 }}",
           "{{ [1] * 4611686018427387904 }}",
           "{% set n = namespace(s='ab') %}{% for i in range(60) %}{% set n.s = n.s + n.s %}{% "
           "endfor %}",
           "{{ (['abcdefgh'] * 10000) | join('0123456789' * 100) }}",
           "{{ 'a'.ljust(99999999) }}",
           "{{ '%99999d' % 1 * 100 }}",
           "{{ ('ab' * 1000).replace('', 'x' * 1000) }}",
           "{{ [[[1] * 1000] * 1000] }}",
           "{{ 'x' | center(1000000000000) }}",
           "{{ ('\\n' * 5000) | indent(1000) }}",
           "{% set n = namespace(l=[]) %}{% for i in range(40) %}{% set n.l = [n.l, n.l] %}{% "
           "endfor %}{{ n.l }}",
       }) {
    CAPTURE(source);
    CHECK(refusal(source, TENON_OUT_OF_MEMORY, ChatJson::object(), limits).find("limit exceeded") !=
          std::string::npos);
  }
}

TEST_CASE("output") {
  CHECK(refusal("{% for a in range(1000) %}0123456789{% endfor %}", TENON_OUT_OF_MEMORY,
                ChatJson::object(), {.output = 5000}) ==
        "chat template, line 1: limit exceeded: more than 5000 bytes of output");
  CHECK(refusal("{{ range(100001) }}", TENON_OUT_OF_MEMORY) ==
        "chat template, line 1: limit exceeded: a range of more than 100000 items");
}

TEST_CASE("depth of values, calls and sources") {
  CHECK(refusal("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", TENON_OUT_OF_MEMORY)
            .find("nested evaluations") != std::string::npos);
  CHECK(refusal("{% set n = namespace(l=[]) %}{% for i in range(5000) %}{% set n.l = [n.l] %}"
                "{% endfor %}{{ n.l }}",
                TENON_OUT_OF_MEMORY)
            .find("nested evaluations") != std::string::npos);
  CHECK(refusal("{% set n = namespace() %}{% set n.me = n %}{{ n }}", TENON_OUT_OF_MEMORY)
            .find("nested evaluations") != std::string::npos);
  for (const std::string& source :
       {"{{ " + repeated("(", 100000) + "1", "{{ " + repeated("[", 100000),
        "{{ " + repeated("not ", 100000) + "1 }}", "{{ " + repeated("-", 100000) + "1 }}",
        repeated("{% if 1 %}", 10000), "{{ 1" + repeated(" + 1", 10000) + " }}",
        "{{ a" + repeated(".b", 10000) + " }}", "{{ a" + repeated(" | abs", 10000) + " }}",
        "{{ a" + repeated(" if a else a", 10000) + " }}", "{% for " + repeated("(", 10000)}) {
    CAPTURE(source.substr(0, 40));
    CHECK(refusal(source, TENON_CORRUPT).find("nested too deeply") != std::string::npos);
  }
  ChatJson deep = 1;
  for (int i = 0; i < 5000; ++i) deep = ChatJson::array({std::move(deep)});
  CHECK(refusal("{{ x }}", TENON_OUT_OF_MEMORY, {{"x", std::move(deep)}})
            .find("nested evaluations") != std::string::npos);
}

TEST_CASE("parse_json: depth, errors, order of keys") {
  CHECK(parse_json(R"({"b": [1], "a": {}})", "body").dump() == R"({"b":[1],"a":{}})");
  CHECK(parse_json(repeated("[", 200) + repeated("]", 200), "body").is_array());
  CHECK_THROWS_WITH_AS(parse_json(repeated("[", 200000), "body"),
                       "body: expected at most 200 nested lists and objects", Error);
  CHECK_THROWS_AS(parse_json("{\"a\": " + repeated("{\"a\": ", 200000), "body"), Error);
  CHECK_THROWS_AS(parse_json("{\"a\"", "body"), Error);
  CHECK_THROWS_AS(parse_json("\"\xff\"", "body"), Error);
  CHECK(parse_json(repeated("[", 100) + R"("\"[{:\\")" + repeated("]", 100), "body").is_array());
}

TEST_CASE("parse_json, parse_object: a long text takes no long time") {
  // A bound by the library's callback takes n * n steps for a list of n objects.
  const std::string list = "[{}" + repeated(", {}", 2'000'000) + "]";
  CHECK(parse_json(list, "body").size() == 2'000'001);
  CHECK(parse_object("{\"a\": " + list + "}", "file")["a"].size() == 2'000'001);
  CHECK_THROWS_WITH_AS(parse_json("[" + repeated(R"({"a": 1}, )", 16'385) + "1]", "body"),
                       "body: expected at most 16384 keys, got 16385", Error);
}

TEST_CASE("parse_object: only objects, of bounded depth") {
  CHECK(parse_object(R"({"b": [1], "a": {}})", "file").dump() == R"({"a":{},"b":[1]})");
  CHECK_THROWS_WITH_AS(parse_object("[]", "file"), "file: expected a JSON object", Error);
  CHECK_THROWS_WITH_AS(parse_object("{\"a\": " + repeated("[", 200000), "file"),
                       "file: expected at most 200 nested lists and objects", Error);
  CHECK_THROWS_AS(parse_object("", "file"), Error);
}

TEST_CASE("numbers: division by zero and 64 bits") {
  CHECK(refusal("{{ 1 % 0 }}", TENON_INVALID_ARGUMENT) ==
        "chat template, line 1: division by zero");
  CHECK(refusal("{{ (-9223372036854775807 - 1) // -1 }}", TENON_INVALID_ARGUMENT)
            .find("more than 64 bits") != std::string::npos);
  CHECK(render("{{ (-9223372036854775807 - 1) % -1 }}") == "0");
  CHECK(
      refusal("{{ 9223372036854775807 + 1 }}", TENON_INVALID_ARGUMENT).find("more than 64 bits") !=
      std::string::npos);
  CHECK(render("{{ [1, 2, 3][9223372036854775807::9223372036854775807] }}"
               "{{ 'abc'[::-9223372036854775807] }}") == "[]c");
}
TEST_SUITE_END();
