// SPDX-License-Identifier: Apache-2.0
// POST /v1/embeddings. All inputs of a request are one piece of work for the scheduler.
#include <bit>
#include <cstring>

#include "llm/embedding.hpp"
#include "llm/serve/api.hpp"

namespace tenon::llm::serve {
namespace {

constexpr unsigned kClientGone = 499;

std::string base64(std::span<const unsigned char> bytes) {
  constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t count = std::min<size_t>(3, bytes.size() - i);
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k) group = group << 8 | (k < count ? bytes[i + k] : 0u);
    for (size_t k = 0; k < 4; ++k) out += k <= count ? kLetters[group >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

std::string encoded(std::span<const float> vector, bool as_base64) {
  if (!as_base64) return json_list(vector);
  static_assert(std::endian::native == std::endian::little);
  std::vector<unsigned char> bytes(vector.size_bytes());
  std::memcpy(bytes.data(), vector.data(), bytes.size());
  return '"' + base64(bytes) + '"';
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
