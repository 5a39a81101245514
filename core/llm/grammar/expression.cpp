// SPDX-License-Identifier: Apache-2.0
// Trees of grammars, and characters as bytes of UTF-8.
#include "llm/grammar/expression.hpp"

#include <algorithm>
#include <string>

#include "tenon/tenon.hpp"

namespace tenon::llm {
namespace {

constexpr uint32_t kMostHeight = 300;

Part done(Expression e) {
  for (const Part& part : e.parts) e.height = std::max(e.height, part->height + 1);
  if (e.height > kMostHeight)
    throw Error(TENON_INVALID_ARGUMENT, "grammar: nested too deeply; expected at most " +
                                            std::to_string(kMostHeight) + " levels");
  return std::make_shared<const Expression>(std::move(e));
}

std::string utf8(char32_t c) {
  const auto byte = [](uint32_t b) { return static_cast<char>(b); };
  if (c < 0x80) return {byte(c)};
  const char last = byte(0x80 | (c & 0x3F)), third = byte(0x80 | (c >> 6 & 0x3F));
  if (c < 0x800) return {byte(0xC0 | c >> 6), last};
  if (c < 0x10000) return {byte(0xE0 | c >> 12), third, last};
  return {byte(0xF0 | c >> 18), byte(0x80 | (c >> 12 & 0x3F)), third, last};
}

// Adds sequences of byte ranges for characters whose UTF-8 has the same size.
void add_ranges(const std::string& low, const std::string& high, std::vector<Part> head,
                std::vector<Part>& out) {
  const auto byte = [](const std::string& s, size_t i) { return static_cast<uint8_t>(s[i]); };
  const size_t at = head.size(), size = low.size();
  if (at == size) {
    out.push_back(sequence(std::move(head)));
    return;
  }
  const std::string first(size, '\x80'), last(size, '\xBF');
  const auto extend = [&](uint8_t a, uint8_t b, const std::string& from, const std::string& to) {
    std::vector<Part> longer = head;
    longer.push_back(bytes(a, b));
    add_ranges(from, to, std::move(longer), out);
  };
  const uint8_t a = byte(low, at), b = byte(high, at);
  if (a == b) return extend(a, b, low, high);
  const auto all_after = [&](const std::string& s, char c) {
    return s.find_first_not_of(c, at + 1) == s.npos;
  };
  const bool whole_low = all_after(low, '\x80'), whole_high = all_after(high, '\xBF');
  if (!whole_low) extend(a, a, low, last);
  const int from = a + !whole_low, to = b - !whole_high;
  if (from <= to) extend(static_cast<uint8_t>(from), static_cast<uint8_t>(to), first, last);
  if (!whole_high) extend(b, b, first, high);
}

}  // namespace

Part bytes(uint8_t low, uint8_t high) {
  Expression e;
  e.kind = Expression::byte_range;
  e.low = low;
  e.high = high;
  return done(std::move(e));
}

Part text(std::string_view utf8) {
  std::vector<Part> parts;
  for (const char c : utf8)
    parts.push_back(bytes(static_cast<uint8_t>(c), static_cast<uint8_t>(c)));
  return sequence(std::move(parts));
}

Part sequence(std::vector<Part> parts) {
  if (parts.size() == 1) return parts[0];
  Expression e;
  e.parts = std::move(parts);
  return done(std::move(e));
}

Part choice(std::vector<Part> parts) {
  if (parts.size() == 1) return parts[0];
  Expression e;
  e.kind = Expression::choice;
  e.parts = std::move(parts);
  return done(std::move(e));
}

Part repeat(Part part, int64_t least, int64_t most) {
  Expression e;
  e.kind = Expression::repeat;
  e.parts = {std::move(part)};
  e.least = least;
  e.most = most;
  return done(std::move(e));
}

Part optional(Part part) { return repeat(std::move(part), 0, 1); }

Part rule(uint32_t index) {
  Expression e;
  e.kind = Expression::rule;
  e.rule_index = index;
  return done(std::move(e));
}

CharSet joined(CharSet set) {
  std::sort(set.begin(), set.end());
  CharSet merged;
  for (const auto& [low, high] : set) {
    if (!merged.empty() && low <= merged.back().second + 1)
      merged.back().second = std::max(merged.back().second, high);
    else
      merged.emplace_back(low, high);
  }
  CharSet out;
  const auto add = [&](char32_t low, char32_t high) {
    if (low <= high) out.emplace_back(low, high);
  };
  for (const auto& [low, high] : merged) {
    add(low, std::min<char32_t>(high, 0xD7FF));
    add(std::max<char32_t>(low, 0xE000), std::min(high, kLastChar));
  }
  return out;
}

CharSet inverse(const CharSet& set) {
  CharSet out;
  char32_t next = 0;
  for (const auto& [low, high] : joined(set)) {
    if (low > next) out.emplace_back(next, low - 1);
    next = high + 1;
  }
  if (next <= kLastChar) out.emplace_back(next, kLastChar);
  return joined(out);
}

CharSet without(const CharSet& set, const CharSet& removed) {
  CharSet both = inverse(set);
  both.insert(both.end(), removed.begin(), removed.end());
  return inverse(both);
}

Part one_of(const CharSet& set) {
  static constexpr char32_t kEnds[] = {0x7F, 0x7FF, 0xFFFF, kLastChar};
  std::vector<Part> out;
  for (auto [low, high] : joined(set))
    for (const char32_t end : kEnds) {
      if (low > end || low > high) continue;
      add_ranges(utf8(low), utf8(std::min(high, end)), {}, out);
      low = end + 1;
    }
  return choice(std::move(out));
}

}  // namespace tenon::llm
