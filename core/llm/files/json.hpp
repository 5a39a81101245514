// SPDX-License-Identifier: Apache-2.0
// JSON files of model folders, and fields whose types are checked.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "tenon/tenon.hpp"

namespace tenon::llm::files {

using Json = nlohmann::json;

// The content of a small file; nothing if there is no such file.
std::optional<Json> read_object(const std::string& path);

// A field of an object; nothing if it is missing or null. Throws TENON_CORRUPT, with `file` and the
// key, if it has another type.
template <class T>
std::optional<T> field(const Json& object, std::string_view key, const std::string& file) {
  const auto at = object.find(key);
  if (at == object.end() || at->is_null()) return {};
  bool fits = false;
  if constexpr (std::is_same_v<T, bool>)
    fits = at->is_boolean();
  else if constexpr (std::is_same_v<T, std::string>)
    fits = at->is_string();
  else if constexpr (std::is_same_v<T, double>)
    fits = at->is_number();
  else if constexpr (std::is_same_v<T, int64_t>)
    fits = at->is_number_integer() &&
           (!at->is_number_unsigned() || at->get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX));
  else
    fits = at->is_object();
  if (!fits)
    throw Error(TENON_CORRUPT, file + ": '" + std::string(key) + "' has the wrong type, '" +
                                   at->type_name() + "'");
  return at->template get<T>();
}

}  // namespace tenon::llm::files
