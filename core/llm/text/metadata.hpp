// SPDX-License-Identifier: Apache-2.0
// What a tokenizer needs of a GGUF file: values by key.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::llm {

// Each function returns nothing if the file lacks the key, and throws Error if its value has another type.
class Metadata {
 public:
  virtual ~Metadata() = default;
  virtual std::optional<std::string> text(std::string_view key) const = 0;
  virtual std::optional<bool> boolean(std::string_view key) const = 0;
  virtual std::optional<int64_t> integer(std::string_view key) const = 0;
  virtual std::optional<std::vector<std::string>> texts(std::string_view key) const = 0;
  // Lists of integers or of floats of any size.
  virtual std::optional<std::vector<float>> floats(std::string_view key) const = 0;
  virtual std::optional<std::vector<int64_t>> integers(std::string_view key) const = 0;
};

}  // namespace tenon::llm
