// SPDX-License-Identifier: Apache-2.0
// The routes, with a model whose answers are known: it writes its prompt backwards.
#include <doctest/doctest.h>

#include <tuple>

#include "serve_api_rig.hpp"

TEST_SUITE("llm/api") {
  using namespace tenon::llm::serve;

  TEST_CASE("completion: text, reason and usage") {
    Rig rig;
    const Json j = rig.post("/v1/completions", {{"prompt", "abc"}}).json();
    CHECK(j["object"] == "text_completion");
    CHECK(j["model"] == "backwards");
    CHECK(j["id"].get<std::string>().starts_with("cmpl-"));
    CHECK(j["choices"][0]["text"] == "cba");
    CHECK(j["choices"][0]["finish_reason"] == "stop");
    CHECK(j["choices"][0]["logprobs"].is_null());
    CHECK(j["usage"]["prompt_tokens"] == 3);
    CHECK(j["usage"]["completion_tokens"] == 3);
    CHECK(j["usage"]["total_tokens"] == 6);
    const Json cut = rig.post("/completions", {{"prompt", "abc"}, {"max_tokens", 2}}).json();
    CHECK(cut["choices"][0]["text"] == "cb");
    CHECK(cut["choices"][0]["finish_reason"] == "length");
  }

  TEST_CASE("completion: several prompts and answers keep their order") {
    Rig rig;
    const Json j = rig.post("/v1/completions", {{"prompt", {"ab", "xyz"}}, {"n", 2}}).json();
    REQUIRE(j["choices"].size() == 4);
    const char* texts[] = {"ba", "ba", "zyx", "zyx"};
    for (size_t i = 0; i < 4; ++i) {
      CHECK(j["choices"][i]["index"] == i);
      CHECK(j["choices"][i]["text"] == texts[i]);
    }
    CHECK(j["usage"]["prompt_tokens"] == 5);
    CHECK(j["usage"]["completion_tokens"] == 10);
  }

  TEST_CASE("completion: echo, no tokens, token prompts, logprobs") {
    Rig rig;
    CHECK(rig.post("/v1/completions", {{"prompt", "ab"}, {"echo", true}})
              .json()["choices"][0]["text"] == "abba");
    const Json none =
        rig.post("/v1/completions", {{"prompt", "ab"}, {"echo", true}, {"max_tokens", 0}}).json();
    CHECK(none["choices"][0]["text"] == "ab");
    CHECK(none["usage"]["completion_tokens"] == 0);
    CHECK(none["usage"]["prompt_tokens"] == 2);
    const Json j = rig.post("/v1/completions", {{"prompt", {97, 98}}, {"logprobs", 1}}).json();
    const Json& lp = j["choices"][0]["logprobs"];
    CHECK(lp["tokens"] == Json{"b", "a"});
    CHECK(lp["token_logprobs"] == Json{-0.5, -0.5});
    CHECK(lp["top_logprobs"][0]["b"] == -0.5);
    CHECK(lp["text_offset"] == Json{0, 1});
  }

  TEST_CASE("completion: offsets count what is seen, in whole answers and in streams") {
    Rig rig;
    const Json body{{"prompt", {97, 1, 2, 98}}, {"logprobs", 0}};
    const Json whole = rig.post("/v1/completions", body).json()["choices"][0];
    CHECK(whole["text"] == "b\ufffda");
    CHECK(whole["logprobs"]["text_offset"] == Json{0, 1, 2, 2});
    Json streamed = body, offsets = Json::array();
    streamed["stream"] = true;
    for (const Json& e : rig.post("/v1/completions", streamed).events())
      for (const Json& at : e["choices"][0]["logprobs"]["text_offset"]) offsets.push_back(at);
    CHECK(offsets == whole["logprobs"]["text_offset"]);
  }

  TEST_CASE("chat: message, logprobs and a seed for each answer") {
    Rig rig;
    const Json j =
        rig.post("/v1/chat/completions",
                 rig.chat({{"logprobs", true}, {"top_logprobs", 1}, {"n", 2}, {"seed", 5}}))
            .json();
    CHECK(j["object"] == "chat.completion");
    CHECK(j["choices"][0]["message"]["role"] == "assistant");
    CHECK(j["choices"][0]["message"]["content"] == "cba");
    CHECK(j["choices"][0]["logprobs"]["content"][0]["token"] == "c");
    CHECK(j["choices"][0]["logprobs"]["content"][0]["bytes"] == Json{99});
    CHECK(rig.model.last.drawing.seed == 6);
    CHECK(j["usage"]["prompt_tokens"] == 3);
  }

  TEST_CASE("chat: a stream says the role, the pieces, the reason and the usage") {
    Rig rig;
    const Sheet s =
        rig.post("/v1/chat/completions",
                 rig.chat({{"stream", true}, {"stream_options", {{"include_usage", true}}}}));
    CHECK(s.ended);
    CHECK(s.body.ends_with("data: [DONE]\n\n"));
    const auto e = s.events();
    REQUIRE(e.size() == 5);
    CHECK(e[0]["object"] == "chat.completion.chunk");
    CHECK(e[0]["choices"][0]["delta"]["role"] == "assistant");
    CHECK(e[1]["choices"][0]["delta"] == Json{{"content", "c"}});
    CHECK(e[1]["usage"].is_null());
    CHECK(e[3]["choices"][0]["finish_reason"] == "stop");
    CHECK(e[4]["choices"].empty());
    CHECK(e[4]["usage"]["completion_tokens"] == 3);
    for (const Json& one : e) CHECK(one["id"] == e[0]["id"]);
    const auto plain = rig.post("/v1/chat/completions", rig.chat({{"stream", true}})).events();
    CHECK(plain.size() == 4);
    CHECK_FALSE(plain[1].contains("usage"));
  }

  TEST_CASE("completion: offsets in a stream follow the text") {
    Rig rig;
    const auto e =
        rig.post("/v1/completions", {{"prompt", "ab"}, {"stream", true}, {"logprobs", 0}}).events();
    REQUIRE(e.size() == 2);
    CHECK(e[0]["choices"][0]["text"] == "b");
    CHECK(e[1]["choices"][0]["logprobs"]["text_offset"] == Json{1});
    const auto echoed =
        rig.post("/v1/completions", {{"prompt", "ab"}, {"stream", true}, {"echo", true}}).events();
    REQUIRE(echoed.size() == 3);
    CHECK(echoed[0]["choices"][0]["text"] == "ab");
    CHECK(echoed[1]["choices"][0]["text"] == "b");
  }

  TEST_CASE("chat: calls of tools") {
    Rig rig;
    const Json tools = Json::array({{{"type", "function"}, {"function", {{"name", "f"}}}}});
    const Json j = rig.post("/v1/chat/completions", rig.chat({{"tools", tools}})).json();
    const Json& choice = j["choices"][0];
    CHECK(choice["finish_reason"] == "tool_calls");
    CHECK(choice["message"]["content"].is_null());
    CHECK(choice["message"]["tool_calls"][0]["function"]["name"] == "f");
    CHECK(choice["message"]["tool_calls"][0]["function"]["arguments"] == "{\"x\":1}");
    const auto e =
        rig.post("/v1/chat/completions", rig.chat({{"tools", tools}, {"stream", true}})).events();
    CHECK(e.back()["choices"][0]["delta"]["tool_calls"][0]["index"] == 0);
    CHECK(e.back()["choices"][0]["finish_reason"] == "tool_calls");
    const Json off =
        rig.post("/v1/chat/completions", rig.chat({{"tools", tools}, {"tool_choice", "none"}}))
            .json();
    CHECK(off["choices"][0]["message"]["content"] == "cba");
  }

  TEST_CASE("clients that leave cancel their answers; tokens made until then are counted") {
    Rig rig;
    Sheet s;
    s.leaves_after = 2;
    rig.api.answer({"POST", "/v1/chat/completions", {}, rig.chat({{"stream", true}}).dump()}, s);
    CHECK(s.writes == 2);
    CHECK_FALSE(s.ended);
    CHECK(rig.model.running == 0);
    const std::string m = rig.ask("GET", "/metrics").body;
    CHECK(m.find("tenon_prompt_tokens_total 3\n") != std::string::npos);
    CHECK(m.find("tenon_generated_tokens_total 1\n") != std::string::npos);
  }

  TEST_CASE("models that fail: an error, or an event where the stream has begun") {
    Rig rig;
    rig.model.breaks = true;
    const Sheet s = rig.post("/v1/chat/completions", rig.chat());
    CHECK(s.status == 500);
    CHECK(s.json()["error"]["type"] == "server_error");
    const auto e = rig.post("/v1/chat/completions", rig.chat({{"stream", true}})).events();
    CHECK(e.back()["error"]["message"].get<std::string>().find("the device is gone") !=
          std::string::npos);
    CHECK(rig.model.running == 0);
  }

  TEST_CASE("refusals: paths, methods, models, bodies, templates, queues") {
    Rig rig;
    const Sheet path = rig.ask("GET", "/v1/nothing");
    CHECK(path.status == 404);
    CHECK(path.json()["error"]["type"] == "invalid_request_error");
    CHECK(path.json()["error"]["code"] == "unknown_url");
    const Sheet method = rig.ask("GET", "/v1/completions");
    CHECK(method.status == 405);
    CHECK(method.headers.at("Allow") == "POST");
    CHECK(rig.ask("POST", "/v1/completions", "{").status == 400);
    const Sheet model = rig.post("/v1/completions", {{"prompt", "a"}, {"model", "gpt-4"}});
    CHECK(model.status == 404);
    CHECK(model.json()["error"]["type"] == "invalid_request_error");
    CHECK(model.json()["error"]["param"] == "model");
    CHECK(model.json()["error"]["code"] == "model_not_found");
    const Sheet other = rig.ask("GET", "/v1/models/other");
    CHECK(other.status == 404);
    CHECK(other.json()["error"] == Json{{"message", other.json()["error"]["message"]},
                                        {"type", "invalid_request_error"},
                                        {"param", "model"},
                                        {"code", "model_not_found"}});
    const Sheet role =
        rig.post("/v1/chat/completions", {{"messages", {{{"role", "bad"}, {"content", ""}}}}});
    CHECK(role.status == 400);
    CHECK(role.json()["error"]["code"].is_null());
    const Sheet field = rig.post("/v1/completions", {{"prompt", "a"}, {"top_p", 3}});
    CHECK(field.json()["error"]["param"] == "top_p");
    CHECK(field.json()["error"]["type"] == "invalid_request_error");
    CHECK(field.json()["error"]["code"] == "decimal_above_max_value");
    const Sheet none =
        rig.post("/v1/completions", {{"prompt", "a"}, {"max_tokens", 0}, {"stream", true}});
    CHECK(none.json()["error"]["code"] == "integer_below_min_value");
    rig.model.full = true;
    const Sheet busy = rig.post("/v1/completions", {{"prompt", "a"}});
    CHECK(busy.status == 429);
    CHECK(busy.headers.at("Retry-After") == "1");
    CHECK(busy.json()["error"]["type"] == "rate_limit_error");
    CHECK(busy.json()["error"]["code"] == "rate_limit_exceeded");
  }

  TEST_CASE("refusals: what is longer than the context") {
    Rig rig;
    const std::string text(65, 'a');
    const std::tuple<const char*, Json, const char*> long_ones[] = {
        {"/v1/chat/completions",
         {{"messages", {{{"role", "user"}, {"content", text}}}}},
         "messages"},
        {"/v1/completions", {{"prompt", text}}, "prompt"},
        {"/completions", {{"prompt", text}, {"stream", true}}, "prompt"},
        {"/v1/embeddings", {{"input", text}}, "input"}};
    for (const auto& [path, body, param] : long_ones) {
      CAPTURE(path);
      const Sheet s = rig.post(path, body);
      CHECK(s.status == 400);
      CHECK(s.json()["error"]["type"] == "invalid_request_error");
      CHECK(s.json()["error"]["param"] == param);
      CHECK(s.json()["error"]["code"] == "context_length_exceeded");
    }
  }

  TEST_CASE("keys: needed everywhere but on the page and for health") {
    Rig rig("secret");
    const Sheet none = rig.ask("GET", "/v1/models");
    CHECK(none.status == 401);
    CHECK(none.headers.at("WWW-Authenticate") == "Bearer");
    CHECK(none.json()["error"]["type"] == "invalid_request_error");
    CHECK(none.json()["error"]["code"] == "invalid_api_key");
    CHECK(rig.ask("GET", "/v1/models", "", {{"authorization", "Bearer wrong!"}}).status == 401);
    CHECK(rig.ask("GET", "/v1/models", "", {{"authorization", "Bearer "}}).status == 401);
    CHECK(rig.ask("GET", "/v1/models", "", {{"authorization", "secret"}}).status == 401);
    CHECK(rig.ask("GET", "/v1/models", "", {{"authorization", "Bearer secret"}}).status == 200);
    CHECK(rig.ask("GET", "/metrics").status == 401);
    CHECK(rig.post("/v1/completions", {{"prompt", "a"}}).status == 401);
    CHECK(rig.ask("GET", "/metrics", "", {{"authorization", "Bearer secret"}})
              .body.find("{path=\"/completions\",status=\"401\"} 1\n") != std::string::npos);
    CHECK(rig.ask("GET", "/health").status == 200);
    CHECK(rig.ask("GET", "/").status == 200);
  }

  TEST_CASE("embeddings: inputs of every form, formats, dimensions") {
    Rig rig;
    const Json two =
        rig.post("/v1/embeddings", {{"input", {"abc", "z"}}, {"model", "backwards"}}).json();
    CHECK(two["object"] == "list");
    CHECK(two["model"] == "backwards");
    CHECK(two["usage"] == Json{{"prompt_tokens", 4}, {"total_tokens", 4}});
    REQUIRE(two["data"].size() == 2);
    CHECK(two["data"][0] ==
          Json{{"object", "embedding"}, {"index", 0}, {"embedding", {97, 3, 0.5}}});
    CHECK(two["data"][1] ==
          Json{{"object", "embedding"}, {"index", 1}, {"embedding", {122, 1, 0.5}}});
    const auto vectors = [&](const Json& input) {
      const Json whole = rig.post("/v1/embeddings", {{"input", input}}).json();
      Json out = Json::array();
      for (const Json& d : whole["data"]) out.push_back(d["embedding"]);
      return out;
    };
    CHECK(vectors("abc") == Json{{97, 3, 0.5}});
    CHECK(vectors(Json{5, 6, 7}) == Json{{5, 3, 0.5}});
    CHECK(vectors(Json{{5, 6}, {7}}) == Json{{5, 2, 0.5}, {7, 1, 0.5}});
    const Json coded =
        rig.post("/v1/embeddings", {{"input", "abc"}, {"encoding_format", "base64"}}).json();
    CHECK(coded["data"][0]["embedding"] == "AADCQgAAQEAAAAA/");  // f32: 97, 3, 0.5
    const Json cut =
        rig.post("/v1/embeddings", {{"input", {3, 1, 1, 1}}, {"dimensions", 2}}).json();
    CHECK(cut["data"][0]["embedding"] == Json{0.6, 0.8});
    CHECK(rig.ask("GET", "/metrics").body.find("tenon_embeddings_total 8\n") != std::string::npos);
    const std::pair<Json, Json> bad[] = {
        {Json::object(), "missing_required_parameter"},
        {{{"input", ""}}, nullptr},
        {{{"input", Json::array()}}, "empty_array"},
        {{{"input", {"a", ""}}}, nullptr},
        {{{"input", {{1}, Json::array()}}}, nullptr},
        {{{"input", {128}}}, nullptr},
        {{{"input", 3}}, "invalid_type"},
        {{{"input", std::vector<std::string>(2049, "a")}}, "array_above_max_length"},
        {{{"input", "a"}, {"encoding_format", "hex"}}, "invalid_value"},
        {{{"input", "a"}, {"dimensions", 0}}, "integer_below_min_value"},
        {{{"input", "a"}, {"dimensions", 4}}, "integer_above_max_value"},
        {{{"input", "a"}, {"truncate", true}}, "unknown_parameter"}};
    for (const auto& [b, code] : bad) {
      CAPTURE(b.dump().substr(0, 80));
      const Sheet s = rig.post("/v1/embeddings", b);
      CHECK(s.status == 400);
      CHECK(s.json()["error"]["type"] == "invalid_request_error");
      CHECK(s.json()["error"]["param"] == (b.size() < 2 ? "input" : (++b.begin()).key()));
      CHECK(s.json()["error"]["code"] == code);
    }
    CHECK(rig.post("/v1/embeddings", {{"input", "a"}, {"model", "other"}}).status == 404);
    rig.model.full = true;
    CHECK(rig.post("/v1/embeddings", {{"input", "a"}}).status == 429);
  }

  TEST_CASE("models, tokens, metrics") {
    Rig rig;
    CHECK(rig.ask("GET", "/v1/models").json()["data"][0]["id"] == "backwards");
    CHECK(rig.ask("GET", "/v1/models/backwards").json()["id"] == "backwards");
    CHECK(rig.post("/tokenize", {{"content", "ab"}}).json()["tokens"] == Json{97, 98});
    CHECK(rig.post("/detokenize", {{"tokens", {97, 98}}}).json()["content"] == "ab");
    CHECK(rig.post("/detokenize", {{"tokens", {128}}}).status == 400);
    rig.post("/v1/completions", {{"prompt", "abc"}});
    rig.ask("GET", "/unknown");
    const std::string m = rig.ask("GET", "/metrics").body;
    for (const char* line :
         {"tenon_http_requests_total{path=\"/completions\",status=\"200\"} 1\n",
          "tenon_http_requests_total{path=\"other\",status=\"404\"} 1\n",
          "tenon_prompt_tokens_total 3\n", "tenon_generated_tokens_total 3\n",
          "tenon_first_token_seconds_count 1\n", "tenon_between_tokens_seconds_count 2\n",
          "tenon_cache_positions_used 3\n", "tenon_first_token_seconds_bucket{le=\"+Inf\"} 1\n"}) {
      CAPTURE(line);
      CHECK(m.find(line) != std::string::npos);
    }
  }
}
