// SPDX-License-Identifier: Apache-2.0
// Any bytes as a tokenizer.json with a text behind its last line end: refused with an Error, or the text becomes ids that
// the tokenizer has, and texts from these ids are UTF-8.
#include <string>
#include <string_view>

#include "check.hpp"
#include "llm/text/tokenizer.hpp"
#include "llm/text/unicode.hpp"
#include "tenon/tenon.hpp"

using namespace tenon;
using namespace tenon::fuzz;

namespace {

bool is_utf8(const std::string& text) {
  std::string storage;
  return llm::sanitize(text, storage).data() == text.data();
}

void use(const llm::Tokenizer& tokenizer, std::string_view text, bool special) {
  const auto ids = tokenizer.encode(text, {.add_special = special, .parse_special = special});
  for (const llm::TokenId id : ids) {
    must(tokenizer.has(id), "an id that the tokenizer does not have");
    const std::string_view token = tokenizer.text(id);
    read(token.data(), token.size());
  }
  must(is_utf8(tokenizer.decode(ids, special)), "a text that is no UTF-8");
  llm::Detokenizer stream(tokenizer, special);
  for (const llm::TokenId id : ids) must(is_utf8(stream.push(id)), "a part that is no UTF-8");
  must(is_utf8(stream.flush()), "a last part that is no UTF-8");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const size_t end = bytes.find_last_of('\n');
  const std::string_view json = bytes.substr(0, end),
                         text = end == bytes.npos ? "a text" : bytes.substr(end + 1);
  try {
    const llm::Tokenizer tokenizer = llm::Tokenizer::from_json(json, "", "tokenizer.json");
    use(tokenizer, text, true);
    use(tokenizer, text, false);
  } catch (const Error& e) {
    must(e.code() != TENON_INTERNAL, e.what());
  }
  return 0;
}
