// SPDX-License-Identifier: Apache-2.0
// POST /v1/embeddings. All inputs of a request are one piece of work for the scheduler.
#include <bit>

#include "base/base64.hpp"
#include "llm/embedding.hpp"
#include "llm/serve/api.hpp"

namespace tenon::llm::serve {
namespace {

constexpr unsigned kClientGone = 499;

std::string encoded(std::span<const float> vector, bool as_base64) {
  if (!as_base64) return json_list(vector);
  static_assert(std::endian::native == std::endian::little);
  const std::string_view bytes(reinterpret_cast<const char*>(vector.data()), vector.size_bytes());
  return '"' + core::to_base64(bytes) + '"';
}

}  // namespace

unsigned Api::embed(const Json& body, HttpReply& reply) {
  const EmbeddingsRequest r = embeddings_request(body, served_.vocabulary(), served_.dim());
  check_model(r.model);
  Wanted wanted;
  for (const Prompt& input : r.inputs) wanted.texts.push_back(tokens_of(input));
  const std::unique_ptr<Answer> answer = served_.submit(std::move(wanted));
  // Written here, because a list of numbers in JSON's own form takes many times their memory.
  std::string data;
  int64_t tokens = 0;
  for (size_t i = 0; i < r.inputs.size();) {
    if (reply.gone()) return kClientGone;
    std::optional<Piece> piece = answer->next(std::chrono::milliseconds(100));
    if (!piece) continue;
    metrics_.tokens(piece->prompt_tokens - tokens, 0, 0);
    metrics_.embedded();
    tokens = piece->prompt_tokens;
    std::vector<float>& vector = piece->embedding;
    if (r.dimensions > 0) {
      vector.resize(static_cast<size_t>(r.dimensions));
      normalize(vector);
    }
    data += std::string(i > 0 ? "," : "") +
            "{\"object\":\"embedding\",\"index\":" + std::to_string(i) +
            ",\"embedding\":" + encoded(vector, r.base64) + "}";
    ++i;
  }
  const Json rest{{"model", served_.name()},
                  {"usage", {{"prompt_tokens", tokens}, {"total_tokens", tokens}}}};
  reply.send(200, "application/json",
             "{\"object\":\"list\",\"data\":[" + data + "]," + dumped(rest).substr(1));
  return 200;
}

}  // namespace tenon::llm::serve
