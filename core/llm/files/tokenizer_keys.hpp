// SPDX-License-Identifier: Apache-2.0
// Tokenizers of Hugging Face folders as keys of GGUF, and back.
#pragma once

#include <string>

#include "llm/files/json.hpp"

namespace tenon::llm::files {

// Sets tokenizer.ggml.* and the chat template from the files of a folder. pre: the name of the
// pre-tokenizer, or empty to recognize it by its expression. Returns what the user should know, such
// as that there is no tokenizer.
std::string set_tokenizer_keys(GgufWriter& out, const std::string& folder, const Json& config,
                               const std::string& pre);

struct TokenizerFiles {
  std::string tokenizer{};         // content of tokenizer.json, empty if there is none
  std::string tokenizer_config{};  // content of tokenizer_config.json
  std::string note{};              // why there is no tokenizer.json
};
TokenizerFiles tokenizer_files(const Gguf& model, const std::string& file);

}  // namespace tenon::llm::files
