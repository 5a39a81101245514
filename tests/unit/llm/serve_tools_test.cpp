// SPDX-License-Identifier: Apache-2.0
// Calls of tools in answers, whole and cut into pieces of every size.
#include <doctest/doctest.h>

#include "llm/serve/tool_calls.hpp"

TEST_SUITE("llm/tool_calls") {
  using namespace tenon::llm::serve;

  const Json kTools = Json::array({{{"type", "function"}, {"function", {{"name", "add"}}}},
                                   {{"type", "function"}, {"function", {{"name", "sub"}}}}});

  struct Parsed {
    std::string text;
    std::vector<ToolCall> calls;
  };
  Parsed parsed(const std::string& answer, size_t piece, const Json& tools = kTools) {
    ToolParser p(tools);
    Parsed out;
    for (size_t i = 0; i < answer.size(); i += piece) out.text += p.push(answer.substr(i, piece));
    out.text += p.finish();
    out.calls = p.calls();
    return out;
  }
  const Json kArguments = {{"a", 1}, {"b", "x"}};

  TEST_CASE("calls: each form is found, however the text is cut") {
    const std::string call = R"({"name": "add", "arguments": {"a": 1, "b": "x"}})";
    const std::string forms[] = {"<tool_call>\n" + call + "\n</tool_call>",
                                 "<tool_call>" + call,  // the end was cut off by a stop text
                                 "\n<tool_call>" + call + "</tool_call>",
                                 "[TOOL_CALLS][" + call + "]",
                                 " [TOOL_CALLS][" + call + "]",
                                 "[TOOL_CALLS] " + call,
                                 "\n  " + call + "\n",
                                 "[" + call + "]",
                                 R"({"name": "add", "parameters": {"a": 1, "b": "x"}})",
                                 R"({"name": "add", "arguments": "{\"a\": 1, \"b\": \"x\"}"})"};
    for (const std::string& form : forms)
      for (const size_t piece : {1u, 2u, 3u, 7u, 1000u}) {
        CAPTURE(form);
        CAPTURE(piece);
        const Parsed p = parsed(form, piece);
        CHECK(p.text == "");
        REQUIRE(p.calls.size() == 1);
        CHECK(p.calls[0].name == "add");
        CHECK(Json::parse(p.calls[0].arguments) == kArguments);
      }
  }

  TEST_CASE("calls: several, with text before") {
    for (const size_t piece : {1u, 5u, 1000u}) {
      const Parsed p = parsed(
          "Let me see.<tool_call>{\"name\":\"add\",\"arguments\":{}}</tool_call>\n"
          "<tool_call>{\"name\":\"sub\",\"arguments\":{}}</tool_call>",
          piece);
      CHECK(p.text == "Let me see.");
      REQUIRE(p.calls.size() == 2);
      CHECK(p.calls[1].name == "sub");
    }
  }

  TEST_CASE("calls: what only looks like one stays text") {
    const std::string texts[] = {"a < b and <tool or [TOOL",
                                 "{\"name\": \"mul\", \"arguments\": {}}",
                                 "{\"answer\": 42}",
                                 "<tool_call>{\"name\": \"add\"",
                                 "[1, 2]",
                                 "{",
                                 "text with { braces }",
                                 "   ",
                                 "{\"name\": \"add\", \"arguments\": [1]}"};
    for (const std::string& text : texts)
      for (const size_t piece : {1u, 4u, 1000u}) {
        CAPTURE(text);
        const Parsed p = parsed(text, piece);
        CHECK(p.text == text);
        CHECK(p.calls.empty());
      }
  }

  TEST_CASE("calls: without tools all text passes at once") {
    ToolParser p(nullptr);
    CHECK(p.push("<tool_call>{") == "<tool_call>{");
    CHECK(p.finish() == "");
  }
}
