// SPDX-License-Identifier: Apache-2.0
// Answers in the form of the OpenAI protocol: whole objects and the chunks of streams.
#pragma once

#include <string>
#include <vector>

#include "llm/serve/request.hpp"
#include "llm/serve/tool_calls.hpp"

namespace tenon::llm::serve {

// What all objects of one answer share.
struct AnswerHead {
  std::string id;  // "chatcmpl-..."
  std::string model;
  int64_t created = 0;  // seconds since 1970
  bool chat = false;
};

// One of the "choices", as far as it is known.
struct Choice {
  int64_t index = 0;
  std::string text;
  std::vector<DrawnToken> tokens;  // with logprobs
  std::vector<int64_t> offsets;    // of the tokens in the whole text, in characters
  std::vector<ToolCall> calls;
  Finish finish = Finish::none;
};

struct Usage {
  int64_t prompt = 0, cached = 0, made = 0;
};

// Characters of UTF-8: what offsets in texts count.
int64_t characters(const std::string& text);

// JSON as UTF-8; bytes that are no character become U+FFFD.
std::string dumped(const Json& json);

// id: with this prefix and 24 random letters and digits.
std::string random_id(const std::string& prefix);

Json whole(const AnswerHead& head, const std::vector<Choice>& choices, const Usage& usage,
           bool logprobs);
// One piece of a choice. first: it opens the choice (in a chat, the role is said). with_usage: the
// request asked for usage, so that chunks without it say null.
Json chunk(const AnswerHead& head, const Choice& piece, bool first, bool logprobs, bool with_usage);
// The last chunk of a stream with usage.
Json usage_chunk(const AnswerHead& head, const Usage& usage);
Json usage_json(const Usage& usage);

// "data: ...\n\n"
std::string event(const Json& json);

}  // namespace tenon::llm::serve
