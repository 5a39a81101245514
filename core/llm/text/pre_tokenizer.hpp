// SPDX-License-Identifier: Apache-2.0
// Pre-tokenizers: they cut a text into the pieces that the model encodes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "llm/text/regex.hpp"

namespace tenon::llm {

struct Range {
  uint32_t begin, end;
};

// A text and its pieces, from left to right. Pre-tokenizers cut pieces, and some change their text.
struct Pieces {
  std::string text;
  std::vector<Range> ranges;
  bool at_start = true;  // the first piece begins where the user's text begins

  std::string_view piece(const Range& r) const {
    return std::string_view(text).substr(r.begin, r.end - r.begin);
  }
};

using PreTokenizer = std::function<void(Pieces&)>;
using PreTokenizers = std::vector<PreTokenizer>;

// What becomes of matches.
enum class Behavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };
enum class PrefixScheme { always, first, never };

// invert: what lies between the matches counts as matches.
PreTokenizer split_by(Regex pattern, Behavior behavior, bool invert);
PreTokenizer split_by_class(bool (*in_class)(char32_t), Behavior behavior);
PreTokenizer split_by_character(char32_t c);
PreTokenizer split_by_length(size_t characters);
PreTokenizer bert_pieces();
PreTokenizer byte_level(bool prefix_space, bool use_regex);
PreTokenizer metaspace(std::string replacement, PrefixScheme scheme, bool split);

}  // namespace tenon::llm
