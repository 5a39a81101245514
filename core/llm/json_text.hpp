// SPDX-License-Identifier: Apache-2.0
// JSON from others, such as bodies of requests and files of models. Its size is bounded before it is parsed: the JSON library
// copies and prints values by recursion, and compares a key with each key of its object if their order stays.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace tenon::llm {

struct JsonSize {
  int depth = 0;    // the most lists and objects within each other
  size_t keys = 0;  // of all objects
};

// Counts without parsing. Text that is no JSON may count wrongly; the parser refuses it.
JsonSize json_size(std::string_view text);

// The form that transformers gives to a float that JSON lacks: "Infinity", "-Infinity" or "NaN".
inline nlohmann::json tagged_float(const char* name) { return {{"__float__", name}}; }

// Both throw TENON_CORRUPT, with `where` in front, for text that is no JSON or has more than 200 nested levels.
// parse_json keeps the order of keys, and refuses more than 16384 of them.
nlohmann::ordered_json parse_json(std::string_view text, const std::string& where);
// parse_object sorts keys, and refuses JSON that is not an object. Older files have Infinity, -Infinity
// and NaN as they are: it reads them as tagged_float().
nlohmann::json parse_object(std::string_view text, const std::string& where);

}  // namespace tenon::llm
