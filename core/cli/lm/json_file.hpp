// SPDX-License-Identifier: Apache-2.0
// JSON files whose fields are checked: what is missing or of the wrong form is named with its file.
#pragma once

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tenon/tenon.hpp"

namespace tenon::lm {

using Json = nlohmann::json;
using Points = std::vector<std::pair<int64_t, double>>;
using Strings = std::vector<std::string>;

// text: the content of the file. Throws unless it is a JSON object.
Json parse_object(const std::string& text, const std::string& file);

// A value for messages.
inline std::string shown(const Json& j) {
  // dump() is recursive, and the file determines the depth.
  return j.is_structured() ? "a list or an object"
                           : j.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 80);
}

// True if j fits T without loss. The conversions of the JSON library truncate numbers.
template <class T>
bool holds(const Json& j) {
  if constexpr (std::is_same_v<T, bool>)
    return j.is_boolean();
  else if constexpr (std::is_same_v<T, uint64_t>)
    return j.is_number_unsigned();
  else if constexpr (std::is_same_v<T, int64_t>)
    return j.is_number_unsigned() ? j.get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX)
                                  : j.is_number_integer();
  else if constexpr (std::is_same_v<T, double>)
    return j.is_number();
  else if constexpr (std::is_same_v<T, std::string>)
    return j.is_string();
  else if constexpr (std::is_same_v<T, Points::value_type>)
    return j.is_array() && j.size() == 2 && holds<int64_t>(j[0]) && holds<double>(j[1]);
  else
    return j.is_array() && std::all_of(j.begin(), j.end(), [](const Json& e) {
             return holds<typename T::value_type>(e);
           });
}

// A field of a JSON object, or a default. Null counts as missing.
template <class T>
T field(const Json& j, const std::string& file, const char* name, const T* otherwise = nullptr) {
  const auto at = j.find(name);
  if (at == j.end() || at->is_null()) {
    if (otherwise) return *otherwise;
    throw Error(TENON_CORRUPT, file + ": '" + name + "' is missing");
  }
  if (holds<T>(*at)) return at->get<T>();
  throw Error(TENON_CORRUPT, file + ": '" + name + "' has the wrong form: " + shown(*at));
}

}  // namespace tenon::lm
