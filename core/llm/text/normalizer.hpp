// SPDX-License-Identifier: Apache-2.0
// Normalizers: changes of the text before it is cut into pieces.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "llm/text/charsmap.hpp"
#include "llm/text/regex.hpp"
#include "llm/text/unicode.hpp"

namespace tenon::llm {

// Takes and returns valid UTF-8.
using Normalizer = std::function<std::string(std::string_view)>;
using Normalizers = std::vector<Normalizer>;

struct BertOptions {
  bool clean_text = true, ideographs = true, strip_accents = true, lowercase = true;
};
// What SentencePiece does with spaces.
struct SpaceOptions {
  bool prefix = true;         // the text starts with a space
  bool suffix = false;        // the prefix's place is the end
  bool remove_extra = false;  // runs of spaces become one; none at the ends
};

Normalizer form_normalizer(Form form);
Normalizer lowercase_normalizer();
Normalizer accent_normalizer();
Normalizer strip_normalizer(bool left, bool right);
Normalizer prepend_normalizer(std::string text);
Normalizer replace_normalizer(Regex pattern, std::string by);
Normalizer bert_normalizer(BertOptions options);
Normalizer nmt_normalizer();
Normalizer byte_level_normalizer();
// sentence_piece: the longest prefixes; else by clusters.
Normalizer charsmap_normalizer(Charsmap map, bool sentence_piece);
Normalizer space_normalizer(SpaceOptions options);

// Byte-level models write each byte as one visible character.
void append_visible(std::string& out, std::string_view bytes);
// The byte of a visible character, or -1.
int visible_byte(char32_t c);

std::string replace_all(std::string_view text, std::string_view what, std::string_view by);

}  // namespace tenon::llm
