// SPDX-License-Identifier: Apache-2.0
// Requests of the OpenAI protocol: every field is checked, honoured or refused by name.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <variant>
#include <vector>

#include "llm/serve/served.hpp"

namespace tenon::llm::serve {

// Objects keep the order of their keys: chat templates and schemas depend on it.
using Json = nlohmann::ordered_json;

// An answer of the server that is no success.
struct HttpError {
  unsigned status = 400;
  std::string message;
  std::string param{};  // the field, if one is wrong
  std::string code{};   // the name that OpenAI has for this error; empty where none is certain
};

// {"error": {"message", "type", "param", "code"}}
Json error_json(const HttpError& error);

// True for integers from 0 to vocabulary - 1.
bool is_token(const Json& json, int64_t vocabulary);

using Prompt = std::variant<std::string, std::vector<int32_t>>;

// What requests of both kinds have.
struct AnswerRequest {
  std::string model;
  int64_t count = 1;  // "n": answers to each prompt
  bool stream = false;
  bool usage_in_stream = false;
  Wanted wanted;  // without its prompt
};

// POST /v1/completions
struct CompletionRequest : AnswerRequest {
  std::vector<Prompt> prompts;
  bool echo = false;
};

// POST /v1/chat/completions
struct ChatRequest : AnswerRequest {
  Json messages;
  Json tools;      // null if there are none, or tool_choice is "none"
  Json variables;  // chat_template_kwargs: an object
};

// POST /v1/embeddings
struct EmbeddingsRequest {
  std::string model;
  std::vector<Prompt> inputs;
  int64_t dimensions = 0;  // the first so many numbers are wanted; 0: all
  bool base64 = false;     // the bytes of little-endian f32, not a list of numbers
};

// All throw HttpError. vocabulary: token ids are below it.
Json parse_body(const std::string& body);
CompletionRequest completion_request(const Json& body, int64_t vocabulary);
ChatRequest chat_request(const Json& body, int64_t vocabulary);
// dim: numbers of an embedding.
EmbeddingsRequest embeddings_request(const Json& body, int64_t vocabulary, int64_t dim);

}  // namespace tenon::llm::serve
