// SPDX-License-Identifier: Apache-2.0
// The fields of a JSON object, read by name with their form and range checked. What was not asked
// for by the end is unknown, and refused. Refusals have the codes of the protocol, where it has one.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "llm/serve/request.hpp"

namespace tenon::llm::serve {

class Fields {
 public:
  // where: the name of the object for messages, "" for the body itself. The object must live
  // longer.
  Fields(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object.is_object()) refuse_type("", "an object");
  }

  // Null if the field is absent or null.
  const Json* find(const std::string& name) {
    known_.insert(name);
    const auto i = object_.find(name);
    return i == object_.end() || i->is_null() ? nullptr : &*i;
  }
  const Json& need(const std::string& name, const char* form) {
    if (const Json* j = find(name)) return *j;
    throw HttpError{400, full(name) + " is missing: it must be " + form, full(name),
                    "missing_required_parameter"};
  }

  std::string text(const std::string& name, const std::string& otherwise) {
    const Json* j = find(name);
    if (!j) return otherwise;
    if (!j->is_string()) refuse_type(name, "a string");
    return j->get<std::string>();
  }
  std::string need_text(const std::string& name) {
    need(name, "a text");
    std::string found = text(name, "");
    if (found.empty()) refuse_form(name, "a text that is not empty");
    return found;
  }
  // One of a few texts. otherwise: for an absent field; null: it must not be absent.
  std::string choice(const std::string& name, std::initializer_list<std::string_view> texts,
                     const char* form, const char* otherwise = nullptr) {
    if (!otherwise) need(name, form);
    std::string found = text(name, otherwise ? otherwise : "");
    if (std::find(texts.begin(), texts.end(), found) == texts.end())
      refuse_form(name, form, "invalid_value");
    return found;
  }
  bool flag(const std::string& name, bool otherwise) {
    const Json* j = find(name);
    if (!j) return otherwise;
    if (!j->is_boolean()) refuse_type(name, "true or false");
    return j->get<bool>();
  }
  int64_t integer(const std::string& name, int64_t otherwise, int64_t least, int64_t most) {
    const Json* j = find(name);
    if (!j) return otherwise;
    const std::string form =
        "an integer from " + std::to_string(least) + " to " + std::to_string(most);
    // Clients that have only one type of number send 5.0 for 5.
    if (j->is_number_float()) {
      const double d = j->get<double>();
      if (d != std::floor(d)) refuse_type(name, form);
      if (d < static_cast<double>(least)) refuse_form(name, form, "integer_below_min_value");
      if (d > static_cast<double>(most) || d >= 0x1p63)
        refuse_form(name, form, "integer_above_max_value");
      return static_cast<int64_t>(d);
    }
    if (!j->is_number_integer()) refuse_type(name, form);
    const bool huge =
        j->is_number_unsigned() && j->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX);
    const int64_t n = huge ? INT64_MAX : j->get<int64_t>();
    if (n < least) refuse_form(name, form, "integer_below_min_value");
    if (n > most || huge) refuse_form(name, form, "integer_above_max_value");
    return n;
  }
  double number(const std::string& name, double otherwise, double least, double most) {
    const Json* j = find(name);
    if (!j) return otherwise;
    const std::string form = "a number from " + shown(least) + " to " + shown(most);
    if (!j->is_number()) refuse_type(name, form);
    const double d = j->get<double>();
    if (d < least) refuse_form(name, form, "decimal_below_min_value");
    if (d > most) refuse_form(name, form, "decimal_above_max_value");
    return d;
  }
  // Fields that change nothing here.
  void ignore(std::initializer_list<const char*> names) {
    for (const char* n : names) known_.insert(n);
  }
  // Fields that change nothing here if they are null.
  void ignore_null(std::initializer_list<const char*> names) {
    for (const char* n : names)
      if (const auto i = object_.find(n); i != object_.end() && i->is_null()) known_.insert(n);
  }
  void refuse_unknown() const {
    for (const auto& [name, value] : object_.items())
      if (!known_.contains(name))
        throw HttpError{400, "unknown field '" + name.substr(0, 80) + "'", full(name),
                        "unknown_parameter"};
  }
  // code: of the protocol; empty where none is certain.
  [[noreturn]] void refuse_form(const std::string& name, const std::string& form,
                                const char* code = "") const {
    throw HttpError{400, full(name) + " must be " + form, full(name), code};
  }
  [[noreturn]] void refuse_type(const std::string& name, const std::string& form) const {
    refuse_form(name, form, "invalid_type");
  }
  [[noreturn]] void refuse_value(const std::string& name, const std::string& why,
                                 const char* code = "") const {
    throw HttpError{400, full(name) + ": " + why, full(name), code};
  }

 private:
  std::string full(const std::string& name) const {
    const std::string all = where_.empty() || name.empty() ? where_ + name : where_ + "." + name;
    return all.empty() ? "the body" : all.substr(0, 120);
  }
  static std::string shown(double d) {
    return d == std::floor(d) ? std::to_string(static_cast<int64_t>(d)) : std::to_string(d);
  }

  const Json& object_;
  std::string where_;
  std::set<std::string, std::less<>> known_;
};

}  // namespace tenon::llm::serve
