// SPDX-License-Identifier: Apache-2.0
// Requests: which fields are honoured, and which are refused with what name.
#include <doctest/doctest.h>

#include "llm/grammar/grammar.hpp"
#include "llm/grammar/json_schema.hpp"
#include "llm/serve/request.hpp"

TEST_SUITE("llm/request") {
  using namespace tenon::llm;
  using namespace tenon::llm::serve;

  constexpr int64_t kVocabulary = 100;

  ChatRequest chat(Json body) {
    if (!body.contains("messages"))
      body["messages"] = Json::array({{{"role", "user"}, {"content", "hi"}}});
    return chat_request(body, kVocabulary);
  }
  CompletionRequest completion(const Json& body) { return completion_request(body, kVocabulary); }

  // The field that a request is refused for. code: if not null, the code that is expected.
  template <class F>
  std::string refused(F f, const char* code = nullptr) {
    try {
      f();
    } catch (const HttpError& e) {
      CHECK(e.status == 400);
      CHECK_FALSE(e.message.empty());
      if (code) CHECK(e.code == code);
      return e.param;
    }
    return "accepted";
  }

  TEST_CASE("chat: defaults are those of the protocol") {
    const ChatRequest r = chat(Json::object());
    CHECK(r.count == 1);
    CHECK_FALSE(r.stream);
    CHECK(r.wanted.tokens == -1);
    CHECK(r.wanted.drawing.temperature == 1);
    CHECK(r.wanted.drawing.top_p == 1);
    CHECK_FALSE(r.wanted.drawing.seed.has_value());
    CHECK(r.wanted.logprobs == -1);
    CHECK(r.wanted.schema.is_null());
    CHECK(r.tools.is_null());
  }

  TEST_CASE("chat: every field arrives") {
    const ChatRequest r = chat({{"model", "m"},
                                {"n", 3},
                                {"stream", true},
                                {"stream_options", {{"include_usage", true}}},
                                {"temperature", 0.5},
                                {"top_p", 0.9},
                                {"top_k", 40},
                                {"min_p", 0.05},
                                {"repetition_penalty", 1.1},
                                {"presence_penalty", -1},
                                {"frequency_penalty", 2},
                                {"seed", -7},
                                {"logit_bias", {{"5", -100}, {"99", 1.5}}},
                                {"stop", {"a", "b"}},
                                {"max_completion_tokens", 12},
                                {"logprobs", true},
                                {"top_logprobs", 4},
                                {"ignore_eos", true},
                                {"chat_template_kwargs", {{"enable_thinking", false}}},
                                {"user", "somebody"}});
    CHECK(r.model == "m");
    CHECK(r.count == 3);
    CHECK(r.stream);
    CHECK(r.usage_in_stream);
    const Drawing& d = r.wanted.drawing;
    CHECK(d.temperature == 0.5);
    CHECK(d.top_p == 0.9);
    CHECK(d.top_k == 40);
    CHECK(d.min_p == 0.05);
    CHECK(d.repetition_penalty == 1.1);
    CHECK(d.presence_penalty == -1);
    CHECK(d.frequency_penalty == 2);
    CHECK(d.seed == static_cast<uint64_t>(-7));
    CHECK(d.bias == std::vector<std::pair<int32_t, double>>{{5, -100}, {99, 1.5}});
    CHECK(r.wanted.stop == std::vector<std::string>{"a", "b"});
    CHECK(r.wanted.tokens == 12);
    CHECK(r.wanted.logprobs == 4);
    CHECK(r.wanted.ignore_end);
    CHECK(r.variables == Json{{"enable_thinking", false}});
  }

  TEST_CASE("chat: contents in parts are joined, other parts are refused") {
    const Json text = {{"type", "text"}, {"text", "ab"}};
    const ChatRequest r = chat({{"messages", {{{"role", "user"}, {"content", {text, text}}}}}});
    CHECK(r.messages[0]["content"] == "abab");
    CHECK(refused(
              [] {
                chat({{"messages", {{{"role", "user"}, {"content", {{{"type", "image_url"}}}}}}}});
              },
              "invalid_value") == "messages[0].content.type");
  }

  TEST_CASE("chat: formats") {
    CHECK(chat({{"response_format", {{"type", "json_object"}}}}).wanted.schema["type"] == "object");
    const Json schema = {{"type", "integer"}};
    CHECK(chat({{"response_format",
                 {{"type", "json_schema"}, {"json_schema", {{"name", "n"}, {"schema", schema}}}}}})
              .wanted.schema == schema);
  }

  TEST_CASE("chat: what is wrong is named, with its code") {
    struct Bad {
      Json body;
      const char *param, *code;
    };
    const char* const type = "invalid_type";
    const Bad bad[] = {
        {{{"temperature", 2.5}}, "temperature", "decimal_above_max_value"},
        {{{"temperature", "hot"}}, "temperature", type},
        {{{"top_p", -0.1}}, "top_p", "decimal_below_min_value"},
        {{{"n", 0}}, "n", "integer_below_min_value"},
        {{{"n", -1.0}}, "n", "integer_below_min_value"},
        {{{"n", 1.5}}, "n", type},
        {{{"n", true}}, "n", type},
        {{{"max_tokens", 0}}, "max_tokens", "integer_below_min_value"},
        {{{"max_tokens", 1e300}}, "max_tokens", "integer_above_max_value"},
        {{{"max_tokens", UINT64_MAX}}, "max_tokens", "integer_above_max_value"},
        {{{"seed", UINT64_MAX}}, "seed", "integer_above_max_value"},
        {{{"seed", 0x1p63}}, "seed", "integer_above_max_value"},
        {{{"model", 1}}, "model", type},
        {{{"stream", "yes"}}, "stream", type},
        {{{"stop", ""}}, "stop", ""},
        {{{"stop", {1}}}, "stop", type},
        {{{"stop", 1}}, "stop", type},
        {{{"stop", std::string(1025, 'a')}}, "stop", "string_above_max_length"},
        {{{"stop", std::vector<std::string>(17, "a")}}, "stop", "array_above_max_length"},
        {{{"stream_options", {{"include_usage", true}}}}, "stream_options", ""},
        {{{"logit_bias", 1}}, "logit_bias", type},
        {{{"logit_bias", {{"100", 1}}}}, "logit_bias", ""},
        {{{"logit_bias", {{"-1", 1}}}}, "logit_bias", ""},
        {{{"logit_bias", {{"1x", 1}}}}, "logit_bias", ""},
        {{{"logit_bias", {{"1", "a"}}}}, "logit_bias", type},
        {{{"logit_bias", {{"1", 101}}}}, "logit_bias", ""},
        {{{"top_logprobs", 3}}, "top_logprobs", ""},
        {{{"logprobs", true}, {"top_logprobs", 21}}, "top_logprobs", "integer_above_max_value"},
        {{{"tool_choice", "required"}}, "tool_choice", ""},
        {{{"tool_choice", "always"}}, "tool_choice", "invalid_value"},
        {{{"tool_choice", 1}}, "tool_choice", type},
        {{{"tool_choice", {{"type", "function"}, {"function", {{"name", "g"}}}}}},
         "tool_choice",
         ""},
        {{{"tool_choice", {{"type", "web"}}}}, "tool_choice.type", "invalid_value"},
        {{{"tool_choice", {{"type", "function"}}}},
         "tool_choice.function",
         "missing_required_parameter"},
        {{{"tools", 1}}, "tools", type},
        {{{"tools", {{{"type", "web"}}}}}, "tools.type", "invalid_value"},
        {{{"tools", {{{"name", "f"}}}}}, "tools.type", "missing_required_parameter"},
        {{{"response_format", Json::object()}},
         "response_format.type",
         "missing_required_parameter"},
        {{{"response_format", {{"type", "xml"}}}}, "response_format.type", "invalid_value"},
        {{{"messages", Json::array()}}, "messages", "empty_array"},
        {{{"messages", "hi"}}, "messages", type},
        {{{"messages", {1}}}, "messages[0]", type},
        {{{"messages", {{{"content", "x"}}}}}, "messages[0].role", "missing_required_parameter"},
        {{{"messages", {{{"role", "user"}, {"content", 1}}}}}, "messages[0].content", type},
        {{{"temprature", 1}}, "temprature", "unknown_parameter"},
        {{{"modalities", {"audio"}}}, "modalities", "unsupported_value"},
        {{{"chat_template_kwargs", 1}}, "chat_template_kwargs", type}};
    for (const auto& [body, param, code] : bad) {
      CAPTURE(body.dump().substr(0, 80));
      CHECK(refused([&, b = body] { chat(b); }, code) == param);
    }
    CHECK(refused([] { chat_request(Json::object(), kVocabulary); },
                  "missing_required_parameter") == "messages");
  }

  Json tool(const char* name, Json parameters) {
    return {{"type", "function"},
            {"function", {{"name", name}, {"parameters", std::move(parameters)}}}};
  }

  TEST_CASE("chat: a call of a tool that is wanted is a schema") {
    const Json a{{"type", "object"},
                 {"properties", {{"x", {{"$ref", "#/$defs/n"}}}}},
                 {"$defs", {{"n", {{"type", "integer"}}}}}};
    const Json tools = {tool("f", a), tool("g", nullptr)};
    const ChatRequest any = chat({{"tools", tools}, {"tool_choice", "required"}});
    CHECK(any.tools == tools);
    const Json& calls = any.wanted.schema["anyOf"];
    REQUIRE(calls.size() == 2);
    CHECK(calls[0]["properties"]["name"] == Json{{"const", "f"}});
    const std::string place = "#/anyOf/0/properties/arguments";
    CHECK(calls[0]["properties"]["arguments"]["properties"]["x"]["$ref"] == place + "/$defs/n");
    CHECK(calls[0]["properties"]["arguments"]["$defs"] == a["$defs"]);
    CHECK(calls[1]["properties"]["arguments"] == Json{{"type", "object"},
                                                      {"properties", Json::object()},
                                                      {"additionalProperties", false}});
    const Json named{{"type", "function"}, {"function", {{"name", "g"}}}};
    const Json only = chat({{"tools", tools}, {"tool_choice", named}}).wanted.schema;
    CHECK(only["anyOf"].size() == 1);
    CHECK(only["anyOf"][0]["properties"]["name"] == Json{{"const", "g"}});
    CHECK(chat({{"tools", tools}, {"tool_choice", "auto"}}).wanted.schema.is_null());
    CHECK(chat({{"tools", tools}, {"tool_choice", "none"}}).tools.is_null());
    CHECK(refused([&] {
            chat({{"tools", tools},
                  {"tool_choice", "required"},
                  {"response_format", {{"type", "json_object"}}}});
          }) == "tool_choice");
    Json other = a;
    other["$defs"]["n"]["type"] = "string";
    chat({{"tools", {tool("f", a), tool("h", other)}}, {"tool_choice", "required"}});
  }

  TEST_CASE("chat: references and types of parameters stay inside of their tool") {
    const auto call = [](const char* parameters) {
      const Json tools = Json::array({tool("f", Json::parse(parameters))});
      return chat({{"tools", tools}, {"tool_choice", "required"}})
          .wanted.schema["anyOf"][0]["properties"]["arguments"];
    };
    const auto grammar_of = [&](const char* parameters) {
      Json one;
      one["properties"]["arguments"] = call(parameters);
      const Json schema{{"anyOf", Json::array({one})}};
      return std::make_shared<const Grammar>(json_schema(schema));
    };
    const auto allows = [&](const char* parameters, const char* arguments) {
      GrammarMatcher matcher(grammar_of(parameters));
      return matcher.accept(std::string("{\"arguments\":") + arguments + "}") && matcher.complete();
    };
    const char* list =
        R"({"type": "object", "properties": {"v": {"const": 1}, "next": {"$ref": "#"}},
                           "additionalProperties": false})";
    CHECK(allows(list, R"({"v":1,"next":{"next":{}}})"));
    CHECK_FALSE(allows(list, R"({"next":{"arguments":{}}})"));
    const char* sibling = R"({"properties": {"$ref": {"type": "integer"}, "const": {"$ref":
                              "#/properties/$ref"}, "text": {"const": {"$ref": "#"}}}})";
    CHECK(allows(sibling, R"({"$ref":7,"const":8,"text":{"$ref":"#"}})"));
    CHECK_FALSE(allows(sibling, R"({"const":"8"})"));
    CHECK(allows(R"({"definitions": {"n": {"const": 2}}, "type": ["object", "null"],
                     "properties": {"a": {"$ref": "#/definitions/n"}}})",
                 R"({"a":2})"));
    CHECK(allows("{}", R"({"any":[1]})"));
    CHECK_FALSE(allows("{}", "5"));
    CHECK(refused([&] { call(R"({"type": "integer"})"); }, "invalid_function_parameters") ==
          "tools");
    CHECK(refused([&] { call("[]"); }, "invalid_type") == "tools.function.parameters");
  }

  TEST_CASE("chat: fields without a value") {
    chat({{"audio", nullptr},
          {"functions", nullptr},
          {"prediction", nullptr},
          {"verbosity", nullptr}});
    chat({{"modalities", {"text"}}});
    CHECK(refused([] { chat({{"modalities", {"text", "audio"}}}); }) == "modalities");
    CHECK(refused([] { chat({{"prediction", {{"type", "content"}}}}); }) == "prediction");
  }

  TEST_CASE("completion: prompts of every form") {
    CHECK(std::get<std::string>(completion({{"prompt", "a"}}).prompts.at(0)) == "a");
    CHECK(completion({{"prompt", {"a", "b"}}}).prompts.size() == 2);
    CHECK(std::get<std::vector<int32_t>>(completion({{"prompt", {1, 2}}}).prompts.at(0)) ==
          std::vector<int32_t>{1, 2});
    CHECK(completion({{"prompt", {{1, 2}, {3}}}}).prompts.size() == 2);
    const std::pair<Json, const char*> bad[] = {{{{"prompt", 1}}, "invalid_type"},
                                                {{{"prompt", Json::array()}}, "empty_array"},
                                                {{{"prompt", {100}}}, ""},
                                                {{{"prompt", {-1}}}, ""},
                                                {{{"prompt", {1, "a"}}}, "invalid_type"},
                                                {{{"prompt", {"a", 1}}}, "invalid_type"},
                                                {{{"prompt", {{1.5}}}}, "invalid_type"},
                                                {Json::object(), "missing_required_parameter"}};
    for (const auto& [b, code] : bad) {
      CAPTURE(b.dump());
      CHECK(refused([&, body = b] { completion(body); }, code) == "prompt");
    }
    CHECK(completion({{"prompt", "a"}}).wanted.tokens == 16);
  }

  TEST_CASE("completion: what the protocol has and this server has not is refused by name") {
    CHECK(refused(
              [] {
                completion({{"prompt", "a"}, {"suffix", "b"}});
              },
              "unsupported_parameter") == "suffix");
    CHECK(refused(
              [] {
                completion({{"prompt", "a"}, {"best_of", 2}});
              },
              "unsupported_value") == "best_of");
    CHECK(refused(
              [] {
                completion({{"prompt", "a"}, {"echo", true}, {"logprobs", 1}});
              },
              "unsupported_value") == "echo");
    CHECK(refused([] { completion({{"prompt", {"a", "b"}}, {"n", 9}}); }) == "prompt");
    CHECK(completion({{"prompt", "a"}, {"best_of", 2}, {"n", 2}}).count == 2);
  }

  TEST_CASE("body: no JSON, no object, too deep") {
    CHECK(parse_body("{\"a\": 1}")["a"] == 1);
    for (const std::string& body : {std::string("{"), std::string("[1]"), std::string("\xff"),
                                    std::string("{\"a\":") + std::string(100'000, '[')})
      CHECK_THROWS_AS(parse_body(body), HttpError);
    std::string deep = "1";
    for (int i = 0; i < 100; ++i) deep = "[" + deep + "]";
    CHECK_THROWS_AS(parse_body("{\"a\":" + deep + "}"), HttpError);
  }
}
