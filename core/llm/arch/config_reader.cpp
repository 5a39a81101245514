// SPDX-License-Identifier: Apache-2.0
// Reads keys of a JSON object with checks of their form.
#include "llm/arch/config_reader.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "llm/json_text.hpp"

namespace tenon::llm {
namespace {

bool is_integer(const Json& j) {
  return j.is_number_unsigned() ? j.get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX)
                                : j.is_number_integer();
}

std::string short_key(std::string_view key) { return "'" + std::string(key.substr(0, 80)) + "'"; }

}  // namespace

std::string shown(const Json& j) {
  // dump() is recursive, and the file determines the depth.
  return j.is_structured() ? "a list or an object"
                           : j.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 80);
}

ConfigReader::ConfigReader(const Json& object, std::string where)
    : object_(object), where_(std::move(where)) {
  if (!object.is_object())
    throw Error(TENON_CORRUPT, where_ + ": expected a JSON object, got " + shown(object));
}

const Json* ConfigReader::peek(std::string_view key) const {
  const auto at = object_.find(std::string(key));
  return at == object_.end() || at->is_null() ? nullptr : &*at;
}

const Json* ConfigReader::find(std::string_view key) {
  read_.emplace(key);
  return peek(key);
}

bool ConfigReader::has(std::string_view key) const { return peek(key) != nullptr; }

bool ConfigReader::is_null(std::string_view key) const {
  const auto at = object_.find(std::string(key));
  return at != object_.end() && at->is_null();
}

bool ConfigReader::is_text(std::string_view key) const {
  const Json* const j = peek(key);
  return j && j->is_string();
}

bool ConfigReader::is_number(std::string_view key) const {
  const Json* const j = peek(key);
  return j && j->is_number();
}

std::vector<std::string> ConfigReader::keys() const {
  std::vector<std::string> out;
  for (const auto& [key, value] : object_.items())
    if (!value.is_null()) out.push_back(key);
  return out;
}

void ConfigReader::wrong_form(std::string_view key, const char* expected) const {
  const Json* const j = peek(key);
  throw Error(TENON_CORRUPT, where_ + ": " + short_key(key) + " has the wrong form; expected " +
                                 expected + ", got " + (j ? shown(*j) : "null"));
}

void ConfigReader::missing(std::string_view key) const {
  throw Error(TENON_CORRUPT, where_ + ": " + short_key(key) + " is missing");
}

void ConfigReader::refuse(std::string_view key, const std::string& expected) const {
  const Json* const j = peek(key);
  throw Error(TENON_UNSUPPORTED, where_ + ": " + short_key(key) + " is not supported; expected " +
                                     expected + ", got " + (j ? shown(*j) : "nothing"));
}

int64_t ConfigReader::integer(std::string_view key, std::optional<int64_t> otherwise) {
  const Json* const j = find(key);
  if (!j) {
    if (!otherwise) missing(key);
    return *otherwise;
  }
  if (!is_integer(*j)) wrong_form(key, "an integer");
  return j->get<int64_t>();
}

double ConfigReader::number(std::string_view key, std::optional<double> otherwise) {
  const Json* const j = find(key);
  if (!j) {
    if (!otherwise) missing(key);
    return *otherwise;
  }
  if (!j->is_number()) wrong_form(key, "a number");
  return j->get<double>();
}

bool ConfigReader::flag(std::string_view key, std::optional<bool> otherwise) {
  const Json* const j = find(key);
  if (!j) {
    if (!otherwise) missing(key);
    return *otherwise;
  }
  if (!j->is_boolean()) wrong_form(key, "true or false");
  return j->get<bool>();
}

std::string ConfigReader::text(std::string_view key, std::optional<std::string> otherwise) {
  const Json* const j = find(key);
  if (!j) {
    if (!otherwise) missing(key);
    return *otherwise;
  }
  if (!j->is_string()) wrong_form(key, "a string");
  return j->get<std::string>();
}

std::vector<double> ConfigReader::numbers(std::string_view key) {
  const Json* const j = find(key);
  if (!j) return {};
  if (!j->is_array() || !std::ranges::all_of(*j, [](const Json& e) { return e.is_number(); }))
    wrong_form(key, "a list of numbers");
  return j->get<std::vector<double>>();
}

std::vector<double> ConfigReader::limits(std::string_view key) {
  const Json* const j = find(key);
  if (!j) return {};
  std::vector<double> out;
  if (!j->is_array()) wrong_form(key, "a list of numbers");
  for (const Json& e : *j) {
    if (e.is_number())
      out.push_back(e.get<double>());
    else if (e == tagged_float("Infinity"))
      out.push_back(std::numeric_limits<double>::infinity());
    else
      wrong_form(key, "a list of numbers");
  }
  return out;
}

std::vector<int64_t> ConfigReader::integers(std::string_view key) {
  const Json* const j = find(key);
  if (!j) return {};
  if (is_integer(*j)) return {j->get<int64_t>()};
  if (!j->is_array() || !std::ranges::all_of(*j, is_integer)) wrong_form(key, "a list of integers");
  return j->get<std::vector<int64_t>>();
}

std::vector<std::string> ConfigReader::texts(std::string_view key) {
  const Json* const j = find(key);
  if (!j) return {};
  if (!j->is_array() || !std::ranges::all_of(*j, [](const Json& e) { return e.is_string(); }))
    wrong_form(key, "a list of strings");
  return j->get<std::vector<std::string>>();
}

std::vector<std::string> ConfigReader::repeated_texts(std::string_view key) {
  constexpr const char* kForm = "a list of pairs of a list of strings and a number from 0 to 4096";
  constexpr size_t kMost = 4096;
  const Json* const j = find(key);
  if (!j) return {};
  if (!j->is_array()) wrong_form(key, kForm);
  std::vector<std::string> out;
  for (const Json& pair : *j) {
    const bool good = pair.is_array() && pair.size() == 2 && pair[0].is_array() &&
                      is_integer(pair[1]) &&
                      std::ranges::all_of(pair[0], [](const Json& e) { return e.is_string(); });
    const int64_t times = good ? pair[1].get<int64_t>() : -1;
    if (times < 0 || times > static_cast<int64_t>(kMost)) wrong_form(key, kForm);
    const auto texts = pair[0].get<std::vector<std::string>>();
    if (texts.size() * static_cast<size_t>(times) > kMost - out.size()) wrong_form(key, kForm);
    for (int64_t i = 0; i < times; ++i) out.insert(out.end(), texts.begin(), texts.end());
  }
  return out;
}

std::optional<ConfigReader> ConfigReader::object(std::string_view key) {
  const Json* const j = find(key);
  if (!j) return {};
  return ConfigReader(*j, where_ + ": " + std::string(key));
}

int64_t ConfigReader::size(std::string_view key, std::optional<int64_t> otherwise, int64_t most) {
  const int64_t value = integer(key, otherwise);
  if (value < 1 || value > most)
    throw Error(TENON_INVALID_ARGUMENT, where_ + ": " + short_key(key) + " is out of range; " +
                                            "expected 1 to " + std::to_string(most) + ", got " +
                                            std::to_string(value));
  return value;
}

double ConfigReader::positive(std::string_view key, std::optional<double> otherwise) {
  const double value = number(key, otherwise);
  if (!std::isfinite(value) || value <= 0)
    throw Error(TENON_INVALID_ARGUMENT, where_ + ": " + short_key(key) + " is out of range; " +
                                            "expected a number above 0, got " +
                                            std::to_string(value));
  return value;
}

void ConfigReader::ignore(std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) read_.emplace(key);
}

std::string_view ConfigReader::name_of(std::initializer_list<std::string_view> names) {
  std::string_view found;
  for (const std::string_view name : names) {
    const Json* const value = find(name);
    if (!value) continue;
    if (found.empty())
      found = name;
    else if (*value != *peek(found))
      refuse(name, "the value of " + short_key(found) + ", another name of this key");
  }
  return found.empty() ? *names.begin() : found;
}

void ConfigReader::expect(std::string_view key, bool value) {
  if (flag(key, value) != value) refuse(key, value ? "true" : "false");
}

void ConfigReader::expect_nothing(std::string_view key) {
  if (find(key)) refuse(key, "null");
}

void ConfigReader::refuse_unread() const {
  for (const auto& [key, value] : object_.items()) {
    const bool says_nothing = value.is_null() || (value.is_boolean() && !value.get<bool>()) ||
                              (value.is_structured() && value.empty());
    if (!says_nothing && !read_.contains(key))
      throw Error(TENON_UNSUPPORTED, where_ + ": " + short_key(key) +
                                         " is a key that is not known and may change what " +
                                         "the model computes; expected it absent or null, got " +
                                         shown(value));
  }
}

}  // namespace tenon::llm
