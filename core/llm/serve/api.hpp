// SPDX-License-Identifier: Apache-2.0
// The routes of the server: which request means what.
#pragma once

#include <string>

#include "llm/serve/http.hpp"
#include "llm/serve/metrics.hpp"
#include "llm/serve/request.hpp"
#include "llm/serve/response.hpp"

namespace tenon::llm::serve {

// GET  /            a page to chat
// GET  /health      {"status": "ok"}
// GET  /metrics     Prometheus
// GET  /v1/models, /v1/models/NAME
// POST /v1/chat/completions, /v1/completions
// POST /v1/embeddings
// POST /tokenize    {"content", "add_special"} to {"tokens"}
// POST /detokenize  {"tokens"} to {"content"}
// Paths below /v1 work without /v1 too. All functions may be called by many threads at once.
class Api {
 public:
  // key: if not empty, requests but for / and /health must carry it as a bearer token.
  Api(Served& served, std::string key) : served_(served), key_(std::move(key)) {}

  // Checks path, method and key, which need no body. False: the request is refused, and answered.
  bool admit(const HttpRequest& head, HttpReply& reply);
  // Answers a request that admit() has let in.
  void answer(const HttpRequest& request, HttpReply& reply);

 private:
  struct Batch;
  unsigned route(const HttpRequest& request, const std::string& path, HttpReply& reply);
  void count(const std::string& path, unsigned status);
  unsigned json(HttpReply& reply, const Json& body);
  bool has_key(const HttpRequest& head) const;
  void check_model(const std::string& asked) const;
  std::vector<int32_t> tokens_of(const Prompt& prompt) const;

  unsigned models(const std::string& path, HttpReply& reply);
  unsigned tokenize(const Json& body, HttpReply& reply);
  unsigned detokenize(const Json& body, HttpReply& reply);
  unsigned embed(const Json& body, HttpReply& reply);
  unsigned complete(const Json& body, HttpReply& reply);
  unsigned chat(const Json& body, HttpReply& reply);
  unsigned generate(const AnswerRequest& request, bool chat, const Json& tools,
                    const std::vector<std::vector<int32_t>>& prompts,
                    const std::vector<std::string>& echoes, HttpReply& reply);

  Served& served_;
  std::string key_;
  Metrics metrics_;
};

}  // namespace tenon::llm::serve
