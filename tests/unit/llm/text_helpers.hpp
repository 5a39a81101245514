// SPDX-License-Identifier: Apache-2.0
// Small tokenizers for tests.
#pragma once

#include <doctest/doctest.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "llm/text/tokenizer.hpp"
#include "tenon/tenon.hpp"

namespace tenon::test {

using Ids = std::vector<llm::TokenId>;
inline constexpr llm::EncodeOptions kPlain{.add_special = false, .parse_special = false};

inline llm::Tokenizer from_json(const std::string& json, const std::string& config = "") {
  return llm::Tokenizer::from_json(json, config, "tokenizer.json");
}

// A tokenizer.json with a vocabulary {text: id}; rest: more fields of the file, with a comma in front.
inline std::string with_model(const std::string& model, const std::string& rest = "") {
  return "{\"model\": " + model + rest + "}";
}

// The message of the Error that f throws.
template <class F>
std::string message(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

inline bool has(const std::string& text, std::string_view part) {
  return text.find(part) != text.npos;
}

// Metadata of GGUF in memory.
struct MapMetadata final : llm::Metadata {
  std::map<std::string, std::string, std::less<>> texts_;
  std::map<std::string, int64_t, std::less<>> integers_;
  std::map<std::string, std::vector<std::string>, std::less<>> text_lists;
  std::map<std::string, std::vector<float>, std::less<>> float_lists;
  std::map<std::string, std::vector<int64_t>, std::less<>> integer_lists;

  template <class T>
  static auto find(const T& map, std::string_view key) {
    const auto at = map.find(key);
    return at == map.end() ? std::nullopt : std::optional(at->second);
  }
  std::optional<std::string> text(std::string_view key) const override { return find(texts_, key); }
  std::optional<bool> boolean(std::string_view key) const override {
    const auto i = find(integers_, key);
    return i ? std::optional(*i != 0) : std::nullopt;
  }
  std::optional<int64_t> integer(std::string_view key) const override {
    return find(integers_, key);
  }
  std::optional<std::vector<std::string>> texts(std::string_view key) const override {
    return find(text_lists, key);
  }
  std::optional<std::vector<float>> floats(std::string_view key) const override {
    return find(float_lists, key);
  }
  std::optional<std::vector<int64_t>> integers(std::string_view key) const override {
    return find(integer_lists, key);
  }
};

}  // namespace tenon::test
