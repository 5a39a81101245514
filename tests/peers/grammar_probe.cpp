// SPDX-License-Identifier: Apache-2.0
// Grammars for grammar.py. Each line of the input is a JSON object with `regex` or `schema`, `texts` to try, and `count` and
// `seed` of random texts to make. Each line of the output has `matches` and `made`, or `error`.
#include <iostream>
#include <random>

#include "llm/grammar/grammar.hpp"
#include "llm/grammar/json_schema.hpp"
#include "llm/grammar/regex.hpp"
#include "tenon/tenon.hpp"

using namespace tenon::llm;
using Json = nlohmann::ordered_json;

namespace {

// A walk through the masks of single bytes that likes to end. Empty if it does not end in time.
std::string random_text(GrammarMatcher& matcher, std::mt19937_64& random) {
  std::string text;
  matcher.reset();
  while (text.size() < 4000) {
    if (matcher.complete() && random() % 3 == 0) return text;
    const std::vector<uint64_t>& mask = matcher.mask();
    std::vector<char> bytes;
    for (unsigned b = 0; b < 256; ++b)
      if (mask[b / 64] >> (b % 64) & 1) bytes.push_back(static_cast<char>(b));
    if (bytes.empty()) return matcher.complete() ? text : std::string();
    // Long texts are closed where they can be.
    char chosen = bytes[random() % bytes.size()];
    if (random() % 200 < text.size())
      for (const char c : bytes)
        if (c == '"' || c == ']' || c == '}') chosen = c;
    text += chosen;
    if (!matcher.accept({&chosen, 1})) throw std::logic_error("the mask allows a wrong byte");
  }
  return {};
}

Json answer(const Json& request) {
  try {
    const auto grammar = std::make_shared<const Grammar>(
        request.contains("regex") ? std::vector<Part>{regex(request["regex"].get<std::string>())}
                                  : json_schema(request["schema"]));
    std::vector<std::string> bytes;
    for (unsigned b = 0; b < 256; ++b) bytes.emplace_back(1, static_cast<char>(b));
    GrammarMatcher matcher(grammar, std::make_shared<const TokenTree>(bytes));
    Json out = {{"matches", Json::array()}, {"made", Json::array()}};
    for (const Json& text : request["texts"]) {
      matcher.reset();
      out["matches"].push_back(matcher.accept(text.get<std::string>()) && matcher.complete());
    }
    std::mt19937_64 random(request["seed"].get<uint64_t>());
    for (int i = 0; i < request["count"].get<int>(); ++i)
      if (std::string text = random_text(matcher, random); !text.empty())
        out["made"].push_back(std::move(text));
    return out;
  } catch (const tenon::Error& e) {
    return {{"error", e.what()}};
  }
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);)
    std::cout << answer(Json::parse(line)).dump() << std::endl;
}
