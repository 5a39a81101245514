// SPDX-License-Identifier: Apache-2.0
// How a number or text is filled into a field: width, sign, precision and type.
#pragma once

#include <string>
#include <string_view>

#include "llm/chat/machine.hpp"

namespace tenon::llm::jinja {

constexpr int64_t kMostWidth = 100'000, kMostPrecision = 300;

struct Spec {
  std::string fill = " ";
  char align = '\0', sign = '-', type = '\0', group = '\0';
  bool alternate = false, zero = false;
  int64_t width = 0, precision = -1;
};

// Reads digits from the offset, which moves behind them.
int64_t read_count(Machine& m, std::string_view text, size_t& at, int64_t most);
std::string padded(Machine& m, const Spec& spec, const std::string& sign, const std::string& body,
                   char otherwise);
std::string format_whole(Machine& m, const Spec& spec, int64_t value);
std::string format_real(Machine& m, const Spec& spec, double value);
std::string format_text(Machine& m, const Spec& spec, std::string_view text);
// A field of str.format() with the text behind its colon.
std::string format_field(Machine& m, const Value& v, std::string_view text);

}  // namespace tenon::llm::jinja
