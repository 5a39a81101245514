// SPDX-License-Identifier: Apache-2.0
// Any bytes as a regular expression or JSON schema (the first line) and a text: an Error, or a matcher whose masks say the same
// as accept().
#include "check.hpp"
#include "llm/grammar/grammar.hpp"
#include "llm/grammar/json_schema.hpp"
#include "llm/grammar/regex.hpp"
#include "llm/json_text.hpp"
#include "tenon/tenon.hpp"

using namespace tenon;

namespace {

std::vector<llm::Part> rules_of(std::string_view line) {
  if (!line.starts_with('{')) return {llm::regex(line)};
  return llm::json_schema(llm::parse_json(line, "schema"));
}

void walk(std::string_view line, std::string_view text) {
  static const auto tokens = [] {
    std::vector<std::string> all;
    for (int b = 0; b < 256; ++b) all.emplace_back(1, static_cast<char>(b));
    all.insert(all.end(), {"\": \"", "},", "true", "ab", ""});
    return std::make_shared<const llm::TokenTree>(all);
  }();
  llm::GrammarMatcher matcher(std::make_shared<const llm::Grammar>(rules_of(line)), tokens);
  for (const char c : text.substr(0, 64)) {
    const auto byte = static_cast<unsigned char>(c);
    const bool allowed = matcher.mask()[byte / 64] >> (byte % 64) & 1;
    fuzz::must(matcher.accept({&c, 1}) == allowed, "a mask and accept() differ");
    if (!allowed) return;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const size_t end = std::min(all.find('\n'), all.size());
  try {
    walk(all.substr(0, end), end < all.size() ? all.substr(end + 1) : std::string_view());
  } catch (const Error& e) {
    fuzz::must(e.code() != TENON_INTERNAL, e.what());
  }
  return 0;
}
