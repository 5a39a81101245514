// SPDX-License-Identifier: Apache-2.0
// The fields of a JSON object, read by name with their form and range checked. What was not asked
// for by the end is unknown, and refused.
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>

#include "llm/serve/request.hpp"

namespace tenon::llm::serve {

class Fields {
 public:
  // where: the name of the object for messages, "" for the body itself. The object must live
  // longer.
  Fields(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object.is_object()) refuse_form("", "an object");
  }

  // Null if the field is absent or null.
  const Json* find(const std::string& name) {
    known_.insert(name);
    const auto i = object_.find(name);
    return i == object_.end() || i->is_null() ? nullptr : &*i;
  }
  const Json& need(const std::string& name, const char* form) {
    if (const Json* j = find(name)) return *j;
    throw HttpError{400, full(name) + " is missing: it must be " + form, full(name)};
  }

  std::string text(const std::string& name, const std::string& otherwise) {
    const Json* j = find(name);
    if (!j) return otherwise;
    if (!j->is_string()) refuse_form(name, "a string");
    return j->get<std::string>();
  }
  bool flag(const std::string& name, bool otherwise) {
    const Json* j = find(name);
    if (!j) return otherwise;
    if (!j->is_boolean()) refuse_form(name, "true or false");
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
      if (!(d >= static_cast<double>(least) && d <= static_cast<double>(most)) || d >= 0x1p63 ||
          d != std::floor(d))
        refuse_form(name, form);
      return static_cast<int64_t>(d);
    }
    if (!j->is_number_integer() ||
        (j->is_number_unsigned() && j->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)))
      refuse_form(name, form);
    const int64_t n = j->get<int64_t>();
    if (n < least || n > most) refuse_form(name, form);
    return n;
  }
  double number(const std::string& name, double otherwise, double least, double most) {
    const Json* j = find(name);
    if (!j) return otherwise;
    const double d = j->is_number() ? j->get<double>() : std::nan("");
    if (!(d >= least && d <= most))
      refuse_form(name, "a number from " + shown(least) + " to " + shown(most));
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
        throw HttpError{400, "unknown field '" + name.substr(0, 80) + "'", full(name)};
  }
  [[noreturn]] void refuse_form(const std::string& name, const std::string& form) const {
    throw HttpError{400, full(name) + " must be " + form, full(name)};
  }
  [[noreturn]] void refuse_value(const std::string& name, const std::string& why) const {
    throw HttpError{400, full(name) + ": " + why, full(name)};
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
