// SPDX-License-Identifier: Apache-2.0
// Grammars: regular expressions, JSON schemas, masks of tokens, limits.
#include "llm/grammar/grammar.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "llm/grammar/integer_range.hpp"
#include "llm/grammar/json_schema.hpp"
#include "llm/grammar/number_range.hpp"
#include "llm/grammar/regex.hpp"
#include "tenon/tenon.hpp"

using namespace tenon;
using namespace tenon::llm;
using Json = nlohmann::ordered_json;

namespace {

std::shared_ptr<const Grammar> compiled(std::vector<Part> rules) {
  return std::make_shared<const Grammar>(std::move(rules));
}
bool matches(const std::shared_ptr<const Grammar>& grammar, std::string_view text) {
  GrammarMatcher matcher(grammar);
  return matcher.accept(text) && matcher.complete();
}
bool matches(std::string_view pattern, std::string_view text) {
  return matches(compiled({regex(pattern)}), text);
}
std::string refusal(const std::string& pattern) {
  try {
    regex(pattern);
    return "no error";
  } catch (const Error& e) {
    return e.what();
  }
}

void check_schema(const char* schema, std::initializer_list<const char*> valid,
                  std::initializer_list<const char*> invalid) {
  CAPTURE(schema);
  const auto grammar = compiled(json_schema(Json::parse(schema)));
  for (const char* text : valid) {
    CAPTURE(text);
    CHECK(matches(grammar, text));
  }
  for (const char* text : invalid) {
    CAPTURE(text);
    CHECK_FALSE(matches(grammar, text));
  }
}
std::string schema_refusal(const char* schema, tenon_code code) {
  try {
    json_schema(Json::parse(schema));
    return "no error";
  } catch (const Error& e) {
    CHECK(e.code() == code);
    return e.what();
  }
}

}  // namespace

TEST_SUITE_BEGIN("llm/grammar");

TEST_CASE("regex: the whole text matches") {
  CHECK(matches("a(b|cd)*e?", "abcdb"));
  CHECK_FALSE(matches("a(b|cd)*e?", "abc"));
  CHECK_FALSE(matches("abc", "xabc"));
  CHECK(matches("^(?:ab)+?$", "abab"));
  CHECK(matches("x{2,3}", "xxx"));
  CHECK_FALSE(matches("x{2,3}", "xxxx"));
  CHECK_FALSE(matches("x{2}", "x"));
  CHECK(matches("x{2,}", "xxxxx"));
  CHECK(matches("", ""));
  CHECK(matches("[\\w.-]+@\\w+\\.(com|org)", "a.b-c@d.org"));
  CHECK(matches("[^a-c\\d]+", "xyz-"));
  CHECK_FALSE(matches("[^a-c\\d]+", "xb"));
  CHECK(matches("[\\]^-]{3}", "]^-"));
  CHECK(matches("\\x41\\u00e9\\u{1F642}\\.", "A\u00e9\U0001f642."));
  CHECK(matches("(?<year>\\d{4})-\\d\\d", "2026-11"));
  CHECK(matches("(a|b|)c", "c"));
}

TEST_CASE("regex: characters are whole, of any size") {
  CHECK(matches(".", "\U0001f642"));
  CHECK(matches("[\u00e0-\u4e2d]+", "\u00e9\u0416\u4e2d"));
  CHECK_FALSE(matches("[\u00e0-\u4e2d]", "\u4e2e"));
  CHECK_FALSE(matches("[\u00e0-\u4e2d]", "\u00df"));
  CHECK_FALSE(matches(".", "\n"));
  CHECK_FALSE(matches(".", "\xf0\x9f\x99"));
  CHECK_FALSE(matches(".", "\xed\xa0\x80"));  // a surrogate
  CHECK_FALSE(matches(".", "\xc0\x80"));      // a long form of NUL
  CHECK_FALSE(matches("..", "\U0001f642"));
  // Each character is in exactly one of a class and its inverse.
  const auto in = compiled({regex("[\u0080-\u07ff\U00010000-\U0003ffff]")});
  const auto out = compiled({regex("[^\u0080-\u07ff\U00010000-\U0003ffff]")});
  for (const char* c : {"\x7f", "\u0080", "\u07ff", "\u0800", "\uffff", "\U00010000", "\U0003ffff",
                        "\U00040000", "\U0010ffff"}) {
    CAPTURE(c);
    CHECK(matches(in, c) != matches(out, c));
  }
}

TEST_CASE("regex: refusals say where") {
  CHECK(refusal("a(b") == "regular expression, character 4: expected ')'");
  CHECK(refusal("a)") == "regular expression, character 2: unexpected ')'");
  CHECK(refusal("*a") ==
        "regular expression, character 2: a quantifier without anything before it");
  CHECK(refusal("a**") == "regular expression, character 4: a quantifier behind another one");
  CHECK(refusal("(?=a)") ==
        "regular expression, character 3: groups that look around are not supported");
  CHECK(refusal("(a)\\1") == "regular expression, character 6: the escape \\1 is not supported");
  CHECK(refusal("[b-a]") == "regular expression, character 5: a range of characters is wrong");
  CHECK(refusal("a{3,2}") ==
        "regular expression, character 7: the largest count is below the smallest");
  CHECK(refusal("a^b").find("at the ends of the expression only") != std::string::npos);
  CHECK(refusal(std::string(1000, '(')).find("nested too deeply") != std::string::npos);
  CHECK(refusal("\xff").find("not UTF-8") != std::string::npos);
}

TEST_CASE("schema: types") {
  check_schema(R"({"type": "integer"})", {"0", "-12", "10"}, {"01", "1.0", "+1", "\"1\"", ""});
  check_schema(R"({"type": "number"})", {"0.5", "-1e9", "3.25E-2", "7"}, {".5", "1.", "1e", "NaN"});
  check_schema(R"({"type": "boolean"})", {"true", "false"}, {"True", "null"});
  check_schema(R"({"type": ["null", "boolean"]})", {"null", "true"}, {"0"});
  check_schema(R"({"type": "string"})", {R"("")", R"("a\n\u00e9\" \\")", "\"\u00e9\U0001f642\""},
               {"\"a\nb\"", R"("\x")", R"("\ud800")", R"("a)", R"(a)", R"("\")"});
  check_schema(R"({"type": "string", "minLength": 2, "maxLength": 3})",
               {R"("ab")", R"("\n\u0041c")", "\"\u00e9\U0001f642\""}, {R"("a")", R"("abcd")"});
  check_schema(R"({"const": {"a": [1, "x"]}})", {R"({"a":[1,"x"]})"}, {"{}"});
  check_schema(R"({"enum": ["red", 3, null]})", {R"("red")", "3", "null"}, {R"("blue")", "4"});
  check_schema("true", {"[1, {\"a\": null}]", "\"x\"", "{}", "[]"}, {"[1,]", "{a: 1}", "[[]"});
}

TEST_CASE("schema: integers between bounds") {
  check_schema(R"({"type": "integer", "minimum": 1})", {"1", "20", "9999999999999999"},
               {"0", "-1", "01"});
  check_schema(R"({"type": "integer", "exclusiveMinimum": -1.5, "exclusiveMaximum": 2})",
               {"-1", "0", "1"}, {"-2", "2", "-0"});
  check_schema(R"({"type": ["integer", "null"], "maximum": -7})", {"-7", "-10", "null"},
               {"-6", "0", "7"});
  for (const auto& [low, high] : std::vector<std::pair<int, int>>{{0, 0},
                                                                  {-1, 1},
                                                                  {7, 105},
                                                                  {-105, -7},
                                                                  {99, 1000},
                                                                  {-340, 217},
                                                                  {10, 99},
                                                                  {-1000, 999}}) {
    CAPTURE(low);
    CAPTURE(high);
    const auto grammar = compiled({integers(low, high)});
    for (int i = -1200; i <= 1200; ++i)
      if (matches(grammar, std::to_string(i)) != (low <= i && i <= high)) FAIL_CHECK(i);
  }
}

TEST_CASE("schema: numbers between bounds") {
  check_schema(R"({"type": "number", "minimum": 0, "maximum": 1})",
               {"0", "0.0", "0.25", "1", "1.00"}, {"-0.1", "-0", "1.01", "2", ".5", "1.", "00"});
  check_schema(R"({"type": "number", "exclusiveMinimum": 0})",
               {"0.0001", "3", "9999999999999999.5"}, {"0", "0.0", "-1"});
  check_schema(R"({"type": "number", "minimum": 1, "exclusiveMinimum": 1, "maximum": 1e300})",
               {"1.5", "2"}, {"1", "1.0"});
  check_schema(R"({"type": ["number", "null"], "maximum": -1e-7})", {"-0.0000001", "-1", "null"},
               {"-0.00000009", "0", "1"});
  check_schema(R"({"type": "number", "minimum": -9, "exclusiveMaximum": -7.949999999999999})",
               {"-7.95", "-9.0"}, {"-7.949999999999999", "-7.949999999999999513", "-7.9"});
  const double bounds[] = {-INFINITY, -12.5, -2, -0.25, -0.1, 0, 0.099,
                           0.1,       0.125, 1,  1.5,   9.99, 10};
  std::vector<std::string> texts;
  for (const char* whole : {"0", "1", "2", "9", "10", "12", "13"})
    for (const char* digits : {"", ".01", ".099", ".0991", ".1", ".125", ".1249", ".13", ".25",
                               ".26", ".5", ".51", ".9", ".989", ".99", ".999"})
      for (const char* sign : {"", "-"}) {
        const std::string one = std::string(sign) + whole + digits;
        if (one != "-0") texts.push_back(one);
      }
  for (const double low : bounds)
    for (const double high : bounds)
      for (const int open : {0, 1, 2, 3}) {
        const NumberRange r{low, high == -INFINITY ? INFINITY : high, (open & 1) > 0, open > 1};
        CAPTURE(r.low);
        CAPTURE(r.high);
        CAPTURE(open);
        std::shared_ptr<const Grammar> grammar;
        try {
          grammar = compiled({numbers(r)});
        } catch (const Error&) {  // an empty range
          CHECK((r.low > r.high || (r.low == r.high && open > 0)));
          continue;
        }
        for (const std::string& text : texts) {
          const double x = std::stod(text);
          const bool in =
              (r.low_open ? x > r.low : x >= r.low) && (r.high_open ? x < r.high : x <= r.high);
          if (matches(grammar, text) != in) FAIL_CHECK(text);
          // Zeros at the end change nothing.
          if (text.find('.') != text.npos && matches(grammar, text + "0") != in)
            FAIL_CHECK((text + "0"));
        }
      }
}

TEST_CASE("schema: patterns see the text, not its escapes") {
  check_schema(R"({"type": "string", "pattern": "^[a-z\"]+\\n?$"})", {R"("ab")", R"("a\"b\n")"},
               {R"("A")", R"("")", R"("a"b")"});
  check_schema(R"({"type": "string", "pattern": "b\\d"})", {R"("xb7y\n")", R"("b0")"}, {R"("b")"});
}

TEST_CASE("schema: arrays") {
  check_schema(R"({"type": "array", "items": {"type": "integer"}})",
               {"[]", "[1]", "[1, 2,3]", "[\n  1,\n  2\n]"}, {"[1", "[\"a\"]", "[1 2]", "[,1]"});
  check_schema(R"({"items": {"type": "integer"}, "minItems": 2, "maxItems": 3})",
               {"[1,2]", "[1,2,3]"}, {"[]", "[1]", "[1,2,3,4]"});
  check_schema(R"({"type": "array", "maxItems": 0})", {"[]"}, {"[1]"});
}

TEST_CASE("schema: objects keep the order of properties") {
  check_schema(R"({"properties": {"a": {"type": "integer"}, "b": {"type": "string"},
                   "c": {"type": "null"}}, "required": ["b"], "additionalProperties": false})",
               {R"({"b":""})", R"({"a": 1, "b": "x"})", R"({"b":"", "c":null})",
                "{\n  \"a\": 1,\n  \"b\": \"\",\n  \"c\": null\n}"},
               {"{}", R"({"a":1})", R"({"b":"","a":1})", R"({"b":"",})", R"({,"b":""})",
                R"({"b":"","d":1})"});
  check_schema(R"({"properties": {"a": {"type": "null"}, "b": {"type": "null"}}})",
               {"{}", R"({"a":null})", R"({"b":null})", R"({"a":null,"b":null})"},
               {R"({"b":null,"a":null})"});
  check_schema(R"({"type": "object", "additionalProperties": {"type": "integer"}})",
               {"{}", R"({"x": 1, "y": 2})"}, {R"({"x": "1"})"});
  check_schema(R"({"type": "object", "additionalProperties": false})", {"{}"}, {R"({"a":1})"});
  check_schema(R"({"type": "object", "required": ["k"]})", {R"({"k": [1]})"}, {"{}"});
}

TEST_CASE("schema: alternatives and references, also to themselves") {
  check_schema(R"({"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 1}]})",
               {"5", R"("a")"}, {R"("ab")"});
  check_schema(R"({"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "properties":
                   {"v": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/node"},
                   {"type": "null"}]}}, "required": ["v", "next"]}}})",
               {R"({"v":1,"next":null})", R"({"v":1,"next":{"v":2,"next":{"v":3,"next":null}}})"},
               {R"({"v":1})", R"({"v":1,"next":{"v":2}})"});
}

TEST_CASE("schema: refusals name the path and the keyword") {
  CHECK(schema_refusal(R"({"properties": {"a": {"type": "number", "multipleOf": 1}}})",
                       TENON_UNSUPPORTED) ==
        "JSON schema, #/properties/a: 'multipleOf' is not supported");
  CHECK(schema_refusal(R"({"type": "strin"})", TENON_INVALID_ARGUMENT) ==
        "JSON schema, #: 'type': unknown type 'strin'");
  CHECK(schema_refusal(R"({"$ref": "#/$defs/x"})", TENON_INVALID_ARGUMENT) ==
        "JSON schema, #: '$ref': nothing is at '#/$defs/x'");
  CHECK(schema_refusal(R"({"type": "array", "items": 3})", TENON_INVALID_ARGUMENT) ==
        "JSON schema, #/items: expected an object, got number");
  CHECK(schema_refusal(R"({"minLength": -1})", TENON_INVALID_ARGUMENT) ==
        "JSON schema, #: 'minLength': expected an integer from 0 to 100000");
  Json deep = 1;
  for (int i = 0; i < 1000; ++i) deep = Json::array({std::move(deep)});
  CHECK_THROWS_WITH_AS(json_schema({{"const", std::move(deep)}}),
                       "JSON schema, #: nested too deeply", Error);
  CHECK(schema_refusal(R"({"not": {}})", TENON_UNSUPPORTED) ==
        "JSON schema, #: 'not' is not supported");
}

TEST_CASE("schema: nested lists and objects do not double the grammar at each level") {
  Json lists = {{"type", "integer"}}, objects = lists, maps = lists;
  std::string object = "1", map = "1";
  for (int i = 0; i < 30; ++i) {
    lists = {{"type", "array"}, {"items", lists}};
    objects = {{"properties", {{"a", objects}}}};
    maps = {{"type", "object"}, {"additionalProperties", maps}};
    object = R"({"a":)" + object + "}";
    map = R"({"x":)" + map + "}";
  }
  CHECK(matches(compiled(json_schema(objects)), object));
  CHECK(matches(compiled(json_schema(maps)), map));
  const std::string nested(30, '[');
  CHECK(matches(compiled(json_schema(lists)), nested + "1,2" + std::string(30, ']')));
  CHECK_FALSE(matches(compiled(json_schema(lists)), nested + "[1]" + std::string(30, ']')));
}

TEST_CASE("dead ends: no text begins that could not be ended") {
  // `a` has no value, so its name does not begin.
  const auto grammar = compiled(json_schema(Json::parse(
      R"({"properties": {"a": false, "b": {"const": 1}, "c": {"type": "integer", "minimum": 2,
          "maximum": 1}}, "additionalProperties": false})")));
  CHECK(matches(grammar, R"({"b":1})"));
  CHECK(matches(grammar, "{}"));
  GrammarMatcher matcher(grammar);
  CHECK_FALSE(matcher.accept("{\"a"));
  CHECK_FALSE(matcher.accept("{\"c"));
  CHECK(matcher.accept("{\"b"));
  CHECK(matches(compiled({choice({sequence({text("x"), choice({})}), text("xy")})}), "xy"));
  for (
      const char* schema :
      {R"({"$ref": "#"})", R"({"type": "integer", "minimum": 2, "maximum": 1})",
       R"({"items": false, "minItems": 1})",
       R"({"required": ["a"], "properties": {}, "additionalProperties": false})",
       R"({"properties": {"a": {"$ref": "#"}}, "required": ["a"]})",
       R"({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}})"}) {
    CAPTURE(schema);
    CHECK_THROWS_WITH_AS(compiled(json_schema(Json::parse(schema))), "grammar: no text follows it",
                         Error);
  }
  CHECK_THROWS_AS(compiled({rule(0)}), Error);
}

TEST_CASE("mask: exactly the tokens that the grammar accepts next") {
  const std::vector<std::string> tokens = {
      "{",          "\"", "a",  "\"a",  "\": ", ":",    "1",      "12",  "}",
      "1}",         "",   "},", "\xe4", "\xb8", "\xad", "\u4e2d", "{\"", "{\"a\":1}",
      "{\"a\":1}x", "\n", " ",  "-",    "\"b",  "\"",   "0"};
  const auto tree = std::make_shared<const TokenTree>(tokens);
  const auto grammar = compiled(json_schema(
      Json::parse(R"({"properties": {"a": {"type": "integer"}, "\u4e2d": {"type": "string"}}})")));
  for (const std::string prefix : {"", "{", "{\"", "{\"a", "{\"a\":", "{\"a\":1", "{\"a\":1, ",
                                   "{\"\xe4", "{\"\u4e2d\":\"", "{\"a\":1}"}) {
    CAPTURE(prefix);
    GrammarMatcher matcher(grammar, tree);
    REQUIRE(matcher.accept(prefix));
    CHECK(&matcher.mask() == &matcher.mask());
    const std::vector<uint64_t>& mask = matcher.mask();
    REQUIRE(mask.size() == 1);
    for (size_t t = 0; t < tokens.size(); ++t) {
      CAPTURE(tokens[t]);
      GrammarMatcher other(grammar);
      other.accept(prefix);
      CHECK((mask[0] >> t & 1) == (!tokens[t].empty() && other.accept(tokens[t])));
    }
  }
}

TEST_CASE("mask: bytes that all ranges treat alike are one step") {
  std::vector<std::string> tokens;
  for (int b = 0; b < 256; ++b) tokens.emplace_back(1, static_cast<char>(b));
  const auto tree = std::make_shared<const TokenTree>(tokens);
  const auto grammar = compiled({regex("^.*a.{900}$")});
  GrammarMatcher matcher(grammar, tree);
  REQUIRE(matcher.accept(std::string(60, 'a')));
  const size_t before = matcher.steps();
  const std::vector<uint64_t>& mask = matcher.mask();
  // "a", two kinds of line ends, the first bytes of longer characters, and what is between.
  CHECK(matcher.steps() - before < 24);
  for (unsigned b = 0; b < 256; ++b) {
    CAPTURE(b);
    const bool starts = b < 0x80 ? b != '\n' && b != '\r' : b >= 0xc2 && b <= 0xf4;
    CHECK((mask[b / 64] >> (b % 64) & 1) == starts);
    GrammarMatcher other(grammar);
    CHECK(other.accept(std::string(60, 'a') + tokens[b]) == starts);
  }
}

TEST_CASE("a refused token leaves the text as it was") {
  GrammarMatcher matcher(compiled({regex("abc")}));
  CHECK(matcher.accept("a"));
  CHECK_FALSE(matcher.accept("bd"));
  CHECK(matcher.accept("bc"));
  CHECK(matcher.complete());
  matcher.reset();
  CHECK_FALSE(matcher.complete());
  CHECK(matcher.accept("abc"));
}

TEST_CASE("limits: large grammars, deep texts, many states") {
  CHECK_THROWS_WITH_AS(Grammar({regex("((a{1000}){1000}){1000}")}),
                       "grammar: too large; expected at most 1000000 nodes", Error);
  const auto any = compiled(json_schema(true));
  CHECK(matches(any, std::string(150, '[') + std::string(150, ']')));
  CHECK_FALSE(GrammarMatcher(any).accept(std::string(5000, '[')));
  // Left recursion ends, and matches what it can.
  const auto left = compiled({choice({sequence({rule(0), text("+a")}), text("a")})});
  CHECK(matches(left, "a+a+a"));
  CHECK_FALSE(matches(left, "a+"));
  // A text that reaches more states than are kept at once.
  GrammarMatcher counting(compiled({regex("x{30000}")}));
  for (int i = 0; i < 29999; ++i) REQUIRE(counting.accept("x"));
  CHECK_FALSE(counting.complete());
  CHECK(counting.accept("x"));
  CHECK(counting.complete());
  CHECK_FALSE(counting.accept("x"));
  CHECK(counting.states() < 20000);
  CHECK_THROWS_AS(Grammar({rule(3)}), Error);
  CHECK_THROWS_AS(counting.mask(), Error);
}
TEST_SUITE_END();
