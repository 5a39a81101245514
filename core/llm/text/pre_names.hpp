// SPDX-License-Identifier: Apache-2.0
// The pre-tokenizers of byte-level models by the names that GGUF files give them (tokenizer.ggml.pre).
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace tenon::llm {

struct NamedPreTokenizer {
  std::span<const std::string_view>
      patterns;                // applied one after the other; matches and gaps are pieces
  bool ignore_merges = false;  // a piece that is a token stays one
  bool bos = false;            // add_bos_token is true unless the file says no
  bool separator = false;      // texts end with the separator
  bool raw = false;            // pieces are UTF-8 with visible spaces, not visible bytes
};

// The first name of a pre-tokenizer with these patterns; empty if there is none.
std::string_view pre_tokenizer_name(std::span<const std::string> patterns);
// Throws for an unknown name.
const NamedPreTokenizer& named_pre_tokenizer(std::string_view name, const std::string& file);

}  // namespace tenon::llm
