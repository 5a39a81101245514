// SPDX-License-Identifier: Apache-2.0
// The decoders of tokenizer.json.
#include "llm/text/decoder.hpp"

#include <memory>
#include <utility>

#include "llm/text/model.hpp"
#include "llm/text/normalizer.hpp"
#include "llm/text/unicode.hpp"

namespace tenon::llm {
namespace {

// The bytes of a token of a byte-level model. A token with another character keeps its text.
std::string bytes_of(const std::string& token) {
  std::string bytes;
  for (size_t at = 0; at < token.size();) {
    const int byte = visible_byte(next_character(token, at));
    if (byte < 0) return token;
    bytes += static_cast<char>(byte);
  }
  return bytes;
}

bool is_valid(std::string_view bytes) {
  std::string storage;
  return sanitize(bytes, storage).data() == bytes.data();
}

void join(Decoding& d) {
  std::string all;
  for (const std::string& token : d.tokens) all += token;
  d.tokens.assign(1, std::move(all));
}

// English spacing, as the tokenizer of BERT restores it.
constexpr std::pair<std::string_view, std::string_view> kSpacing[] = {
    {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
    {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
    {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};

}  // namespace

Decoder byte_level_decoder() {
  return [](Decoding& d) {
    for (std::string& token : d.tokens) token = bytes_of(token);
    join(d);
    if (!d.raw) d.tokens[0] = sanitized(d.tokens[0]);
  };
}

Decoder byte_fallback_decoder() {
  return [](Decoding& d) {
    std::vector<std::string> out;
    std::string bytes;
    const auto flush = [&] {
      if (bytes.empty()) return;
      if (d.raw || is_valid(bytes)) {
        out.push_back(bytes);
      } else {
        for (size_t i = 0; i < bytes.size(); ++i) out.emplace_back(kReplacement);
      }
      bytes.clear();
    };
    for (std::string& token : d.tokens) {
      if (const auto byte = byte_of_token(token)) {
        bytes += static_cast<char>(*byte);
        continue;
      }
      flush();
      out.push_back(std::move(token));
    }
    flush();
    d.tokens = std::move(out);
  };
}

Decoder fuse_decoder() { return join; }

Decoder strip_decoder(std::string character, size_t left, size_t right) {
  return [=](Decoding& d) {
    for (std::string& token : d.tokens) {
      std::string_view t = token;
      for (size_t i = 0; i < left && t.starts_with(character); ++i)
        t.remove_prefix(character.size());
      for (size_t i = 0; i < right && t.ends_with(character); ++i)
        t.remove_suffix(character.size());
      token = std::string(t);
    }
  };
}

Decoder replace_decoder(Regex pattern, std::string by) {
  const Normalizer replace = replace_normalizer(std::move(pattern), std::move(by));
  return [replace](Decoding& d) {
    for (std::string& token : d.tokens) {
      std::string storage;
      // Raw bytes between tokens are no text.
      if (!d.raw || is_valid(token)) token = replace(sanitize(token, storage));
    }
  };
}

Decoder metaspace_decoder(std::string replacement, bool first) {
  return [=](Decoding& d) {
    for (size_t i = 0; i < d.tokens.size(); ++i)
      d.tokens[i] = replace_all(d.tokens[i], replacement, i == 0 && first ? "" : " ");
  };
}

Decoder word_piece_decoder(std::string prefix, bool cleanup) {
  return [=](Decoding& d) {
    for (size_t i = 0; i < d.tokens.size(); ++i) {
      std::string& token = d.tokens[i];
      if (i > 0 && token.starts_with(prefix))
        token.erase(0, prefix.size());
      else if (i > 0)
        token.insert(0, 1, ' ');
      if (!cleanup) continue;
      for (const auto& [what, by] : kSpacing) token = replace_all(token, what, by);
    }
  };
}

Decoder suffix_decoder(std::string suffix) {
  return [=](Decoding& d) {
    for (size_t i = 0; i < d.tokens.size(); ++i)
      d.tokens[i] = replace_all(d.tokens[i], suffix, i + 1 < d.tokens.size() ? " " : "");
  };
}

}  // namespace tenon::llm
