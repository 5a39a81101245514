// SPDX-License-Identifier: Apache-2.0
// Builds the JSON of answers.
#include "llm/serve/response.hpp"

#include <algorithm>
#include <random>

#include "llm/text/unicode.hpp"

namespace tenon::llm::serve {
namespace {

Json finish_json(const Choice& c) {
  if (c.finish == Finish::none) return nullptr;
  if (c.finish == Finish::length) return "length";
  return c.calls.empty() ? "stop" : "tool_calls";
}

Json bytes_json(const std::string& text) {
  Json bytes = Json::array();
  for (const char c : text) bytes.push_back(static_cast<unsigned char>(c));
  return bytes;
}

Json token_json(const TokenLogprob& t) {
  return {{"token", t.text}, {"logprob", t.logprob}, {"bytes", bytes_json(t.text)}};
}

Json chat_logprobs(const std::vector<DrawnToken>& tokens) {
  Json content = Json::array();
  for (const DrawnToken& t : tokens) {
    Json one = token_json(t.drawn);
    one["top_logprobs"] = Json::array();
    for (const TokenLogprob& other : t.top) one["top_logprobs"].push_back(token_json(other));
    content.push_back(std::move(one));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

// The name of a token: its text, or its bytes where they are no characters. Two tokens of one name
// would be one entry of a list.
std::string name_of(const TokenLogprob& t) {
  if (sanitized(t.text) == t.text) return t.text;
  constexpr char kDigits[] = "0123456789abcdef";
  std::string name = "bytes:";
  for (const char c : t.text) {
    const auto b = static_cast<unsigned char>(c);
    name += {'\\', 'x', kDigits[b / 16], kDigits[b % 16]};
  }
  return name;
}

// The form of /v1/completions: parallel lists.
Json list_logprobs(const Choice& c) {
  Json texts = Json::array(), values = Json::array(), tops = Json::array();
  for (const DrawnToken& t : c.tokens) {
    texts.push_back(name_of(t.drawn));
    values.push_back(t.drawn.logprob);
    Json top = Json::object();
    for (const TokenLogprob& other : t.top) top[name_of(other)] = other.logprob;
    tops.push_back(std::move(top));
  }
  return {{"tokens", std::move(texts)},
          {"token_logprobs", std::move(values)},
          {"top_logprobs", std::move(tops)},
          {"text_offset", c.offsets}};
}

Json logprobs_json(const AnswerHead& head, const Choice& c, bool logprobs) {
  if (!logprobs) return nullptr;
  return head.chat ? chat_logprobs(c.tokens) : list_logprobs(c);
}

Json calls_json(const std::vector<ToolCall>& calls, bool with_index) {
  Json list = Json::array();
  for (size_t i = 0; i < calls.size(); ++i) {
    Json one{{"id", random_id("call_")},
             {"type", "function"},
             {"function", {{"name", calls[i].name}, {"arguments", calls[i].arguments}}}};
    if (with_index) one["index"] = i;
    list.push_back(std::move(one));
  }
  return list;
}

Json head_json(const AnswerHead& head, bool is_chunk) {
  const char* object = !head.chat ? "text_completion"
                       : is_chunk ? "chat.completion.chunk"
                                  : "chat.completion";
  return {{"id", head.id},
          {"object", object},
          {"created", head.created},
          {"model", head.model},
          {"system_fingerprint", nullptr},
          {"choices", Json::array()}};
}

}  // namespace

int64_t characters(const std::string& text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; });
}

std::string dumped(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string random_id(const std::string& prefix) {
  constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
  thread_local std::mt19937_64 source{std::random_device{}()};
  std::uniform_int_distribution<size_t> letter(0, kLetters.size() - 1);
  std::string id = prefix;
  for (int i = 0; i < 24; ++i) id += kLetters[letter(source)];
  return id;
}

Json usage_json(const Usage& u) {
  return {{"prompt_tokens", u.prompt},
          {"completion_tokens", u.made},
          {"total_tokens", u.prompt + u.made},
          {"prompt_tokens_details", {{"cached_tokens", u.cached}}}};
}

Json whole(const AnswerHead& head, const std::vector<Choice>& choices, const Usage& usage,
           bool logprobs) {
  Json json = head_json(head, false);
  for (const Choice& c : choices) {
    Json one{{"index", c.index},
             {"finish_reason", finish_json(c)},
             {"logprobs", logprobs_json(head, c, logprobs)}};
    if (head.chat) {
      const bool only_calls = !c.calls.empty() && c.text.empty();
      one["message"] = {{"role", "assistant"},
                        {"content", only_calls ? Json(nullptr) : Json(c.text)},
                        {"refusal", nullptr}};
      if (!c.calls.empty()) one["message"]["tool_calls"] = calls_json(c.calls, false);
    } else {
      one["text"] = c.text;
    }
    json["choices"].push_back(std::move(one));
  }
  json["usage"] = usage_json(usage);
  return json;
}

Json chunk(const AnswerHead& head, const Choice& piece, bool first, bool logprobs,
           bool with_usage) {
  Json json = head_json(head, true);
  Json one{{"index", piece.index},
           {"finish_reason", finish_json(piece)},
           {"logprobs", logprobs_json(head, piece, logprobs)}};
  if (head.chat) {
    Json delta = Json::object();
    if (first) delta = {{"role", "assistant"}, {"content", ""}};
    if (!piece.text.empty()) delta["content"] = piece.text;
    if (!piece.calls.empty()) delta["tool_calls"] = calls_json(piece.calls, true);
    one["delta"] = std::move(delta);
  } else {
    one["text"] = piece.text;
  }
  json["choices"].push_back(std::move(one));
  if (with_usage) json["usage"] = nullptr;
  return json;
}

Json usage_chunk(const AnswerHead& head, const Usage& usage) {
  Json json = head_json(head, true);
  json["usage"] = usage_json(usage);
  return json;
}

std::string event(const Json& json) { return "data: " + dumped(json) + "\n\n"; }

}  // namespace tenon::llm::serve
