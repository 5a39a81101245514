// SPDX-License-Identifier: Apache-2.0
// Grammars over bytes as trees. Regular expressions and JSON schemas become these.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

namespace tenon::llm {

struct Expression;
// Trees share parts, so a repetition costs one pointer.
using Part = std::shared_ptr<const Expression>;

struct Expression {
  enum Kind : uint8_t { byte_range, sequence, choice, repeat, rule } kind = sequence;
  uint8_t low = 0, high = 0;    // of a byte_range
  std::vector<Part> parts;      // of a sequence or choice; the one of a repetition
  int64_t least = 0, most = 0;  // of a repetition; most < 0: any number
  uint32_t rule_index = 0;
  uint32_t height = 1;
};

Part bytes(uint8_t low, uint8_t high);
Part text(std::string_view utf8);
Part sequence(std::vector<Part> parts);
Part choice(std::vector<Part> parts);  // without parts: matches nothing
Part repeat(Part part, int64_t least, int64_t most);
Part optional(Part part);
Part rule(uint32_t index);

// Characters as sorted, separate ranges; both ends are included.
using CharSet = std::vector<std::pair<char32_t, char32_t>>;
constexpr char32_t kLastChar = 0x10FFFF;
CharSet joined(CharSet set);  // any ranges, sorted and merged; surrogates are removed
CharSet inverse(const CharSet& set);
CharSet without(const CharSet& set, const CharSet& removed);
Part one_of(const CharSet& set);  // the UTF-8 of one character

}  // namespace tenon::llm
