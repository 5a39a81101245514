// SPDX-License-Identifier: Apache-2.0
// Reads the metadata of a GGUF file of version 2 or 3 that the test trusts.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "llm/text/metadata.hpp"

namespace tenon::test {

class GgufMetadata final : public llm::Metadata {
 public:
  // bytes: the content of the file.
  explicit GgufMetadata(std::string_view bytes) : bytes_(bytes) {
    if (take(4) != "GGUF" || number<uint32_t>() < 2) throw std::runtime_error("no GGUF file");
    number<uint64_t>();  // tensors
    for (auto n = number<uint64_t>(); n > 0; --n) {
      std::string key = text();
      values_[std::move(key)] = value(number<uint32_t>());
    }
  }

  std::optional<std::string> text(std::string_view key) const override {
    return as<std::string>(key);
  }
  std::optional<bool> boolean(std::string_view key) const override {
    const auto i = as<int64_t>(key);
    return i ? std::optional(*i != 0) : std::nullopt;
  }
  std::optional<int64_t> integer(std::string_view key) const override { return as<int64_t>(key); }
  std::optional<std::vector<std::string>> texts(std::string_view key) const override {
    return as<std::vector<std::string>>(key);
  }
  std::optional<std::vector<float>> floats(std::string_view key) const override {
    return as<std::vector<float>>(key);
  }
  std::optional<std::vector<int64_t>> integers(std::string_view key) const override {
    return as<std::vector<int64_t>>(key);
  }

 private:
  using Value = std::variant<int64_t, float, std::string, std::vector<int64_t>, std::vector<float>,
                             std::vector<std::string>>;
  template <class T>
  std::optional<T> as(std::string_view key) const {
    const auto at = values_.find(std::string(key));
    return at == values_.end() ? std::nullopt : std::optional(std::get<T>(at->second));
  }

  std::string_view take(size_t size) {
    if (size > bytes_.size()) throw std::runtime_error("the GGUF file is cut");
    const std::string_view taken = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return taken;
  }
  template <class T>
  T number() {
    T n;
    std::memcpy(&n, take(sizeof n).data(), sizeof n);
    return n;
  }
  std::string text() { return std::string(take(number<uint64_t>())); }

  enum Type { u8, i8, u16, i16, u32, i32, f32, boolean_type, text_type, list, u64, i64, f64 };

  int64_t integer_of(uint32_t type) {
    switch (type) {
      case u8:
      case boolean_type:
        return number<uint8_t>();
      case i8:
        return number<int8_t>();
      case u16:
        return number<uint16_t>();
      case i16:
        return number<int16_t>();
      case u32:
        return number<uint32_t>();
      case i32:
        return number<int32_t>();
      case u64:
        return static_cast<int64_t>(number<uint64_t>());
      case i64:
        return number<int64_t>();
      default:
        throw std::runtime_error("an unknown type");
    }
  }
  float float_of(uint32_t type) {
    return type == f32 ? number<float>() : static_cast<float>(number<double>());
  }
  Value value(uint32_t type) {
    if (type == text_type) return text();
    if (type == f32 || type == f64) return float_of(type);
    if (type != list) return integer_of(type);
    const auto element = number<uint32_t>();
    const auto count = number<uint64_t>();
    std::vector<int64_t> integers;
    std::vector<float> floats;
    std::vector<std::string> texts;
    for (uint64_t i = 0; i < count; ++i) {
      if (element == text_type)
        texts.push_back(text());
      else if (element == f32 || element == f64)
        floats.push_back(float_of(element));
      else
        integers.push_back(integer_of(element));
    }
    if (element == text_type) return texts;
    if (element == f32 || element == f64) return floats;
    return integers;
  }

  std::string_view bytes_;
  std::map<std::string, Value> values_;
};

}  // namespace tenon::test
