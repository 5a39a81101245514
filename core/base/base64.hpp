// SPDX-License-Identifier: Apache-2.0
// Bytes as base 64 (RFC 4648, section 4), and back.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tenon::core {

inline constexpr std::string_view kBase64Digits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

inline std::string to_base64(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k)
      group = group << 8 | (i + k < bytes.size() ? static_cast<uint8_t>(bytes[i + k]) : 0u);
    for (size_t k = 0; k < 4; ++k)
      out += k <= bytes.size() - i ? kBase64Digits[group >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

// Returns nullopt if a character is wrong, or if the size is no multiple of 4.
inline std::optional<std::string> from_base64(std::string_view text) {
  static const auto values = [] {
    std::array<int, 256> table;
    table.fill(-1);
    for (size_t i = 0; i < kBase64Digits.size(); ++i)
      table[static_cast<uint8_t>(kBase64Digits[i])] = static_cast<int>(i);
    return table;
  }();
  if (text.size() % 4) return std::nullopt;
  std::string out;
  out.reserve(text.size() / 4 * 3);
  for (size_t i = 0; i < text.size(); i += 4) {
    const bool last = i + 4 == text.size();
    const size_t filler = !last || text[i + 3] != '=' ? 0 : text[i + 2] != '=' ? 1 : 2;
    uint32_t group = 0;
    for (size_t k = 0; k < 4; ++k) {
      const int value = k < 4 - filler ? values[static_cast<uint8_t>(text[i + k])] : 0;
      if (value < 0) return std::nullopt;
      group = group << 6 | static_cast<uint32_t>(value);
    }
    for (size_t k = 0; k < 3 - filler; ++k) out += static_cast<char>(group >> (16 - 8 * k) & 255);
  }
  return out;
}

}  // namespace tenon::core
