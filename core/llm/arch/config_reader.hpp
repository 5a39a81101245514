// SPDX-License-Identifier: Apache-2.0
// Reads the keys of config.json one by one and remembers which it has read, so that a key that
// nobody knows is refused by name.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/tenon.hpp"

namespace tenon::llm {

using Json = nlohmann::json;

// A value for messages, cut to a bounded length.
std::string shown(const Json& j);

// A JSON object of a file. Null counts as absent unless stated otherwise. The object must outlive
// the reader.
class ConfigReader {
 public:
  // where: the file, and the keys that lead to the object. Throws unless `object` is a JSON object.
  ConfigReader(const Json& object, std::string where);

  // Each of these marks the key as read. Without `otherwise`, an absent key throws.
  int64_t integer(std::string_view key, std::optional<int64_t> otherwise = {});
  double number(std::string_view key, std::optional<double> otherwise = {});
  bool flag(std::string_view key, std::optional<bool> otherwise = {});
  std::string text(std::string_view key, std::optional<std::string> otherwise = {});
  std::vector<double> numbers(std::string_view key);     // empty if absent
  std::vector<double> limits(std::string_view key);      // numbers; one may be infinite
  std::vector<int64_t> integers(std::string_view key);   // empty if absent; one number is a list
  std::vector<std::string> texts(std::string_view key);  // empty if absent
  // Pairs of a list of strings and how often it is repeated, written out; at most 4096 strings.
  std::vector<std::string> repeated_texts(std::string_view key);
  std::optional<ConfigReader> object(
      std::string_view key);  // the caller calls refuse_unread() on it

  // An integer from 1 to `most`.
  int64_t size(std::string_view key, std::optional<int64_t> otherwise = {},
               int64_t most = int64_t{1} << 20);
  // A finite number above 0.
  double positive(std::string_view key, std::optional<double> otherwise = {});

  bool has(std::string_view key) const;      // present and not null
  bool is_null(std::string_view key) const;  // present and null
  bool is_text(std::string_view key) const;  // a string
  bool is_number(std::string_view key) const;
  std::vector<std::string> keys() const;  // those that are not null
  // The name that the file has for a key of several names; the first one if it has none. Throws if it has two
  // names with other values.
  std::string_view name_of(std::initializer_list<std::string_view> names);
  // Keys that do not change the logits.
  void ignore(std::initializer_list<std::string_view> keys);
  // Keys that must have this value, or be absent: everything else is not supported.
  void expect(std::string_view key, bool value);
  void expect_nothing(std::string_view key);
  // Throws UNSUPPORTED with the key, its value and what was expected.
  [[noreturn]] void refuse(std::string_view key, const std::string& expected) const;
  // Throws for the first key that was not read. Keys that are null, false or empty say nothing.
  void refuse_unread() const;

  const std::string& where() const { return where_; }

 private:
  const Json* find(std::string_view key);
  const Json* peek(std::string_view key) const;
  [[noreturn]] void wrong_form(std::string_view key, const char* expected) const;
  [[noreturn]] void missing(std::string_view key) const;

  const Json& object_;
  std::string where_;
  std::set<std::string, std::less<>> read_;
};

}  // namespace tenon::llm
