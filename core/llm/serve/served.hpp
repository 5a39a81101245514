// SPDX-License-Identifier: Apache-2.0
// What the server needs of a model that answers many requests at once.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tenon/tenon.hpp"

namespace tenon::llm::serve {

// Thrown by Served::submit when as many requests wait as may: the client should come again.
class Busy : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Thrown by Served::submit when a prompt or a text is longer than the context.
class TooLong : public Error {
 public:
  explicit TooLong(const std::string& text) : Error(TENON_INVALID_ARGUMENT, text) {}
};

// How the next token is drawn. Each default changes nothing but `temperature`, which draws from
// the model's own distribution.
struct Drawing {
  double temperature = 1;  // 0: always the most probable token
  int64_t top_k = 0;       // 0: all
  double top_p = 1;
  double min_p = 0;
  double repetition_penalty = 1;
  double presence_penalty = 0;
  double frequency_penalty = 0;
  std::vector<std::pair<int32_t, double>> bias;  // token, added to its logit
  std::optional<uint64_t> seed;                  // absent: another one each time
};

// One answer that is wanted, or embeddings.
struct Wanted {
  // If there are any, their embeddings are wanted and no answer; no other field is used then.
  std::vector<std::vector<int32_t>> texts;
  std::vector<int32_t> prompt;
  int64_t tokens = -1;  // at most so many; -1: as many as the context has room for
  Drawing drawing;
  std::vector<std::string> stop;  // texts that end the answer; they are not part of it
  int64_t logprobs = -1;          // that many most probable tokens of each step; -1: none at all
  bool ignore_end = false;        // go on after a token that ends an answer
  nlohmann::ordered_json schema;  // null: free text; an object: only JSON of this JSON schema
};

struct TokenLogprob {
  int32_t token = 0;
  std::string text;  // its bytes; may be a part of a character
  double logprob = 0;
};

struct DrawnToken {
  TokenLogprob drawn;
  std::vector<TokenLogprob> top;
};

enum class Finish : uint8_t { none, stop, length };

// A part of an answer: complete characters only. Or the embedding of the next text.
struct Piece {
  std::string text;
  std::vector<float> embedding;
  std::vector<DrawnToken> tokens;  // with logprobs; those whose text this is the end of
  Finish finish = Finish::none;    // of the last piece: why it is the last
  int64_t prompt_tokens = 0;       // so far
  int64_t cached_tokens = 0;       // of the prompt, read from the cache of earlier requests
  int64_t tokens_made = 0;
};

// An answer in the making. Destroying it cancels the rest. One thread.
class Answer {
 public:
  virtual ~Answer() = default;
  // Waits for the next piece, at most for `wait`; empty if none came. Throws tenon::Error if the
  // model fails. Not called after the last piece.
  virtual std::optional<Piece> next(std::chrono::milliseconds wait) = 0;
};

struct ServedNumbers {
  int64_t running = 0, waiting = 0;  // requests
  int64_t cache_positions = 0, cache_used = 0;
};

// All functions may be called by many threads at once.
class Served {
 public:
  virtual ~Served() = default;
  virtual std::string name() const = 0;
  virtual int64_t context() const = 0;     // positions of prompt and answer together
  virtual int64_t vocabulary() const = 0;  // token ids are below it
  virtual int64_t created() const = 0;     // seconds since 1970
  virtual int64_t dim() const = 0;         // numbers of an embedding

  // special: with the tokens that the model wants around a text. Special tokens that the text spells
  // out are read in either case.
  virtual std::vector<int32_t> tokenize(const std::string& text, bool special) const = 0;
  virtual std::string detokenize(const std::vector<int32_t>& tokens) const = 0;
  // What the model's chat template makes of a conversation, as tokens. Throws tenon::Error if the
  // model has no template, or if the template refuses the messages.
  virtual std::vector<int32_t> chat_tokens(const nlohmann::ordered_json& messages,
                                           const nlohmann::ordered_json& tools,
                                           const nlohmann::ordered_json& variables) const = 0;

  // Throws Busy, or tenon::Error if the prompt or a text does not fit, and if embeddings are wanted of
  // a model whose pooling tenon does not have. Embeddings have length 1.
  virtual std::unique_ptr<Answer> submit(Wanted wanted) = 0;
  virtual ServedNumbers numbers() const = 0;
};

}  // namespace tenon::llm::serve
