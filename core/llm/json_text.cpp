// SPDX-License-Identifier: Apache-2.0
// Parses JSON of bounded size.
#include "llm/json_text.hpp"

#include <algorithm>
#include <cstring>

#include "tenon/tenon.hpp"

namespace tenon::llm {
namespace {

constexpr int kMostDepth = 200;
constexpr size_t kMostKeys = 16'384;

// The library can call back for each value, but then it searches a list again after each object in
// it.
void check_depth(const JsonSize& size, const std::string& where) {
  if (size.depth > kMostDepth)
    throw Error(TENON_CORRUPT, where + ": expected at most " + std::to_string(kMostDepth) +
                                   " nested lists and objects");
}

// The text with tagged_float() in place of the names that Python's writer has for floats.
std::string with_tags(std::string_view text) {
  std::string out;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      out += c;
      if (c == '\\' && i + 1 < text.size()) out += text[++i];
      in_string = c != '"';
      continue;
    }
    in_string = c == '"';
    bool replaced = false;
    for (const char* name : {"Infinity", "-Infinity", "NaN"}) {
      if (!text.substr(i).starts_with(name)) continue;
      out += tagged_float(name).dump();
      i += std::strlen(name) - 1;
      replaced = true;
      break;
    }
    if (!replaced) out += c;
  }
  return out;
}

template <class Json>
Json parse(std::string_view text, const std::string& where) {
  try {
    return Json::parse(text);
  } catch (const typename Json::exception& e) {
    throw Error(TENON_CORRUPT, where + ": no JSON: " + e.what());
  }
}

}  // namespace

JsonSize json_size(std::string_view text) {
  JsonSize size;
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      in_string = c != '"';
      continue;
    }
    in_string = c == '"';
    if (c == '{' || c == '[') size.depth = std::max(size.depth, ++depth);
    if (c == '}' || c == ']') --depth;
    if (c == ':') ++size.keys;
  }
  return size;
}

nlohmann::ordered_json parse_json(std::string_view text, const std::string& where) {
  const JsonSize size = json_size(text);
  check_depth(size, where);
  if (size.keys > kMostKeys)
    throw Error(TENON_CORRUPT, where + ": expected at most " + std::to_string(kMostKeys) +
                                   " keys, got " + std::to_string(size.keys));
  return parse<nlohmann::ordered_json>(text, where);
}

nlohmann::json parse_object(std::string_view text, const std::string& where) {
  check_depth(json_size(text), where);
  const bool tags = text.find("Infinity") != text.npos || text.find("NaN") != text.npos;
  const std::string tagged = tags ? with_tags(text) : "";
  auto object = parse<nlohmann::json>(tags ? std::string_view(tagged) : text, where);
  if (!object.is_object()) throw Error(TENON_CORRUPT, where + ": expected a JSON object");
  return object;
}

}  // namespace tenon::llm
