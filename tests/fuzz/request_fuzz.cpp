// SPDX-License-Identifier: Apache-2.0
// Any bytes as the body of a request to the server's four kinds of endpoints: an HttpError, or a request within its limits.
#include "check.hpp"
#include "llm/serve/request.hpp"
#include "tenon/tenon.hpp"

using namespace tenon;
using namespace tenon::llm::serve;

namespace {

constexpr int64_t kVocabulary = 1000, kDim = 8;

void check_prompt(const Prompt& prompt) {
  if (const auto* const text = std::get_if<std::string>(&prompt))
    return fuzz::read(text->data(), text->size());
  for (const int32_t token : std::get<std::vector<int32_t>>(prompt))
    fuzz::must(token >= 0 && token < kVocabulary, "a token beyond the vocabulary");
}

template <class Read>
void read(Read read) {
  try {
    read();
  } catch (const HttpError& e) {
    fuzz::must(e.status >= 400 && e.status < 500, "a refusal that is not the client's fault");
    fuzz::read(e.message.data(), e.message.size());
  } catch (const Error& e) {
    fuzz::must(e.code() != TENON_INTERNAL, e.what());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  read([&] {
    const Json body = parse_body(text);
    read([&] {
      for (const Prompt& p : completion_request(body, kVocabulary).prompts) check_prompt(p);
    });
    read([&] { static_cast<void>(chat_request(body, kVocabulary)); });
    read([&] {
      const EmbeddingsRequest r = embeddings_request(body, kVocabulary, kDim);
      fuzz::must(r.dimensions >= 0 && r.dimensions <= kDim, "more dimensions than the model has");
      for (const Prompt& p : r.inputs) check_prompt(p);
    });
  });
  return 0;
}
