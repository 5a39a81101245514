// SPDX-License-Identifier: Apache-2.0
// A value of tokenizer.json with its path, so that messages name what is wrong.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "tenon/tenon.hpp"

namespace tenon::llm {

using Json = nlohmann::json;

class JsonNode {
 public:
  JsonNode(const Json& value, std::string path) : value_(&value), path_(std::move(path)) {}

  const Json& value() const { return *value_; }
  const std::string& path() const { return path_; }
  bool is_null() const { return value_->is_null(); }

  // A field of an object; null if it is missing.
  JsonNode at(const char* name) const {
    static const Json none;
    if (is_null()) return {none, path_ + '.' + name};
    expect(value_->is_object(), "an object");
    const auto found = value_->find(name);
    return {found == value_->end() ? none : *found, path_ + '.' + name};
  }
  JsonNode element(size_t i) const { return {(*value_)[i], path_ + '[' + std::to_string(i) + ']'}; }

  std::string text() const {
    expect(value_->is_string(), "a string");
    return value_->get<std::string>();
  }
  std::string text(std::string_view otherwise) const {
    return is_null() ? std::string(otherwise) : text();
  }
  bool boolean(bool otherwise) const {
    if (is_null()) return otherwise;
    expect(value_->is_boolean(), "true or false");
    return value_->get<bool>();
  }
  double number() const {
    expect(value_->is_number(), "a number");
    return value_->get<double>();
  }
  int64_t integer() const {
    expect(value_->is_number_integer() &&
               (!value_->is_number_unsigned() || value_->get<uint64_t>() <= INT64_MAX),
           "an integer");
    return value_->get<int64_t>();
  }
  int64_t integer(int64_t otherwise) const { return is_null() ? otherwise : integer(); }
  size_t list_size() const {
    expect(value_->is_array(), "a list");
    return value_->size();
  }
  void expect_object() const { expect(value_->is_object(), "an object"); }

  [[noreturn]] void refuse(const std::string& expected) const {
    throw Error(TENON_CORRUPT, path_ + ": expected " + expected + ", got " + shown());
  }
  // Valid, but nothing that tenon knows.
  [[noreturn]] void unknown(const std::string& expected) const {
    throw Error(TENON_UNSUPPORTED,
                path_ + " is " + shown() + ", which tenon does not support; expected " + expected);
  }

 private:
  void expect(bool holds, const char* what) const {
    if (!holds) refuse(what);
  }
  std::string shown() const {
    if (value_->is_null()) return "nothing";
    if (value_->is_structured()) return value_->is_array() ? "a list" : "an object";
    return value_->dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 80);
  }

  const Json* value_;
  std::string path_;
};

}  // namespace tenon::llm
