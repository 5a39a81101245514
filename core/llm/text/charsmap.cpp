// SPDX-License-Identifier: Apache-2.0
// Each unit of the double array packs, from the lowest bit: the byte that leads to it (8 bits), whether its first child
// is a value (bit 8), the size of its offset (bit 9), the offset (from bit 10). A unit with the top bit is a value.
#include "llm/text/charsmap.hpp"

#include "llm/text/unicode.hpp"
#include "tenon/tenon.hpp"

namespace tenon::llm {
namespace {

constexpr uint32_t kValueBit = 1u << 31;
bool has_value(uint32_t unit) { return unit >> 8 & 1; }
uint32_t label(uint32_t unit) { return unit & (kValueBit | 0xFF); }
uint32_t offset(uint32_t unit) { return unit >> 10 << ((unit & 1u << 9) >> 6); }

}  // namespace

Charsmap::Charsmap(std::string_view blob, const std::string& where) {
  const auto word = [&](size_t at) {
    uint32_t value = 0;
    for (size_t i = 4; i-- > 0;) value = value << 8 | static_cast<unsigned char>(blob[at + i]);
    return value;
  };
  if (blob.size() < 4)
    throw Error(TENON_CORRUPT, where + ": the table of characters has " +
                                   std::to_string(blob.size()) + " bytes; expected at least 4");
  const size_t size = word(0);
  if (size % 4 != 0 || size > blob.size() - 4)
    throw Error(TENON_CORRUPT,
                where + ": the array of the table of characters has " + std::to_string(size) +
                    " bytes; expected a multiple of 4, at most " + std::to_string(blob.size() - 4));
  for (size_t i = 0; i < size / 4; ++i) units_.push_back(word(4 + 4 * i));
  strings_ = blob.substr(4 + size);
}

template <class F>
void Charsmap::prefixes(std::string_view text, F&& found) const {
  if (units_.empty()) return;
  uint32_t at = offset(units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    at ^= byte;
    if (byte == 0 || at >= units_.size() || label(units_[at]) != byte) return;
    const uint32_t unit = units_[at];
    at ^= offset(unit);
    if (!has_value(unit)) continue;
    const uint32_t place = at < units_.size() ? units_[at] & ~kValueBit : ~0u;
    if (place >= strings_.size()) return;
    const std::string_view rest = std::string_view(strings_).substr(place);
    if (!found(i + 1, rest.substr(0, rest.find('\0')))) return;
  }
}

std::string Charsmap::longest(std::string_view text) const {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    size_t size = 0;
    std::string_view by;
    prefixes(text.substr(at), [&](size_t n, std::string_view replacement) {
      size = n;
      by = replacement;
      return true;
    });
    if (size == 0) {
      size = std::min(text.size() - at, character_size(static_cast<unsigned char>(text[at])));
      by = text.substr(at, size);
    }
    out += by;
    at += size;
    check_growth(text.size(), out.size());
  }
  return sanitized(out);  // hostile tables cut characters
}

bool Charsmap::replaced(std::string_view chunk, std::string& out) const {
  bool is = false;
  prefixes(chunk, [&](size_t, std::string_view by) {
    out += by;
    is = true;
    return false;
  });
  return is;
}

std::string Charsmap::by_clusters(std::string_view text) const {
  constexpr size_t kLongCluster = 6;  // bytes; longer ones go character by character
  std::string out;
  out.reserve(text.size());
  Graphemes clusters(text);
  for (size_t begin = 0, end = 0; clusters.next(begin, end);) {
    check_growth(text.size(), out.size());
    const std::string_view cluster = text.substr(begin, end - begin);
    if (cluster.size() < kLongCluster && replaced(cluster, out)) continue;
    for (size_t at = 0; at < cluster.size();) {
      const size_t from = at;
      next_character(cluster, at);
      const std::string_view character = cluster.substr(from, at - from);
      if (!replaced(character, out)) out += character;
      check_growth(text.size(), out.size());
    }
  }
  return sanitized(out);
}

}  // namespace tenon::llm
