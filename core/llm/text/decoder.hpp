// SPDX-License-Identifier: Apache-2.0
// Decoders: they turn the texts of tokens back into text.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "llm/text/regex.hpp"

namespace tenon::llm {

struct Decoding {
  std::vector<std::string> tokens;
  // Keeps bytes that are no valid UTF-8, because the rest of their character may follow.
  bool raw = false;
};
using Decoder = std::function<void(Decoding&)>;
using Decoders = std::vector<Decoder>;

Decoder byte_level_decoder();
Decoder byte_fallback_decoder();
Decoder fuse_decoder();
// Removes up to `left` and `right` of this character from the ends of each token.
Decoder strip_decoder(std::string character, size_t left, size_t right);
Decoder replace_decoder(Regex pattern, std::string by);
// first: the first token loses its replacements.
Decoder metaspace_decoder(std::string replacement, bool first);
Decoder word_piece_decoder(std::string prefix, bool cleanup);
Decoder suffix_decoder(std::string suffix);

}  // namespace tenon::llm
