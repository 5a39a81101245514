// SPDX-License-Identifier: Apache-2.0
// Normalizers, pre-tokenizers and decoders of tokenizer.json.
#include "llm/text/json_stages.hpp"

#include <optional>
#include <utility>

#include "base/base64.hpp"
#include "llm/text/unicode.hpp"

namespace tenon::llm {
namespace {

// Precompiled stores its table as base 64.
std::string bytes_of_base64(const JsonNode& node) {
  std::optional<std::string> bytes = core::from_base64(node.text());
  if (!bytes) node.refuse("base 64");
  return std::move(*bytes);
}

Behavior read_behavior(const JsonNode& node, std::string_view otherwise) {
  const std::string name = node.text(otherwise);
  if (name == "Removed") return Behavior::removed;
  if (name == "Isolated") return Behavior::isolated;
  if (name == "MergedWithPrevious") return Behavior::merged_with_previous;
  if (name == "MergedWithNext") return Behavior::merged_with_next;
  if (name == "Contiguous") return Behavior::contiguous;
  node.unknown("Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
}

char32_t read_character(const JsonNode& node) {
  const std::string text = sanitized(node.text());
  size_t at = 0;
  if (text.empty()) node.refuse("one character");
  const char32_t c = next_character(text, at);
  if (at != text.size()) node.refuse("one character");
  return c;
}

PrefixScheme read_prefix_scheme(const JsonNode& node) {
  const JsonNode scheme = node.at("prepend_scheme");
  if (scheme.is_null())
    return node.at("add_prefix_space").boolean(true) ? PrefixScheme::always : PrefixScheme::never;
  const std::string name = scheme.text();
  if (name == "always") return PrefixScheme::always;
  if (name == "first") return PrefixScheme::first;
  if (name == "never") return PrefixScheme::never;
  scheme.unknown("always, first or never");
}

size_t read_count(const JsonNode& node) {
  const int64_t n = node.integer(0);
  if (n < 0 || n > INT32_MAX) node.refuse("a number of characters");
  return static_cast<size_t>(n);
}

Normalizer one_normalizer(const JsonNode& node, const std::string& type) {
  if (type == "NFC") return form_normalizer(Form::nfc);
  if (type == "NFD") return form_normalizer(Form::nfd);
  if (type == "NFKC") return form_normalizer(Form::nfkc);
  if (type == "NFKD") return form_normalizer(Form::nfkd);
  if (type == "Lowercase") return lowercase_normalizer();
  if (type == "StripAccents") return accent_normalizer();
  if (type == "Strip")
    return strip_normalizer(node.at("strip_left").boolean(true),
                            node.at("strip_right").boolean(true));
  if (type == "Prepend") return prepend_normalizer(sanitized(node.at("prepend").text()));
  if (type == "Replace")
    return replace_normalizer(read_pattern(node.at("pattern")),
                              sanitized(node.at("content").text()));
  if (type == "BertNormalizer") {
    const bool lower = node.at("lowercase").boolean(true);
    return bert_normalizer({.clean_text = node.at("clean_text").boolean(true),
                            .ideographs = node.at("handle_chinese_chars").boolean(true),
                            .strip_accents = node.at("strip_accents").boolean(lower),
                            .lowercase = lower});
  }
  if (type == "Nmt") return nmt_normalizer();
  if (type == "ByteLevel") return byte_level_normalizer();
  if (type == "Precompiled")
    return charsmap_normalizer(
        Charsmap(bytes_of_base64(node.at("precompiled_charsmap")), node.path()), false);
  node.at("type").unknown(
      "Sequence, NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Strip, Prepend, Replace, "
      "BertNormalizer, Nmt, ByteLevel or Precompiled");
}

PreTokenizer one_pre_tokenizer(const JsonNode& node, const std::string& type) {
  if (type == "ByteLevel")
    return byte_level(node.at("add_prefix_space").boolean(true),
                      node.at("use_regex").boolean(true));
  if (type == "Split")
    return split_by(read_pattern(node.at("pattern")), read_behavior(node.at("behavior"), "Removed"),
                    node.at("invert").boolean(false));
  if (type == "Whitespace")
    // Here joiners are parts of words.
    return split_by(Regex(R"([\w\x{200C}\x{200D}]+|[^\w\s\x{200C}\x{200D}]+)", node.path()),
                    Behavior::removed, true);
  if (type == "WhitespaceSplit") return split_by_class(is_space, Behavior::removed);
  if (type == "Metaspace")
    return metaspace(character_text(read_character(node.at("replacement"))),
                     read_prefix_scheme(node), node.at("split").boolean(true));
  if (type == "Digits")
    return split_by_class(is_number, node.at("individual_digits").boolean(false)
                                         ? Behavior::isolated
                                         : Behavior::contiguous);
  if (type == "Punctuation")
    return split_by_class(is_punctuation, read_behavior(node.at("behavior"), "Isolated"));
  if (type == "BertPreTokenizer") return bert_pieces();
  if (type == "CharDelimiterSplit") return split_by_character(read_character(node.at("delimiter")));
  if (type == "FixedLength") {
    const size_t length = read_count(node.at("length"));
    if (length == 0) node.at("length").refuse("a length above 0");
    return split_by_length(length);
  }
  node.at("type").unknown(
      "Sequence, ByteLevel, Split, Whitespace, WhitespaceSplit, Metaspace, Digits, Punctuation, "
      "BertPreTokenizer, CharDelimiterSplit or FixedLength");
}

Decoder one_decoder(const JsonNode& node, const std::string& type) {
  if (type == "ByteLevel") return byte_level_decoder();
  if (type == "ByteFallback") return byte_fallback_decoder();
  if (type == "Fuse") return fuse_decoder();
  if (type == "Metaspace")
    return metaspace_decoder(character_text(read_character(node.at("replacement"))),
                             read_prefix_scheme(node) != PrefixScheme::never);
  if (type == "WordPiece")
    return word_piece_decoder(node.at("prefix").text("##"), node.at("cleanup").boolean(true));
  if (type == "Strip")
    return strip_decoder(character_text(read_character(node.at("content"))),
                         read_count(node.at("start")), read_count(node.at("stop")));
  if (type == "Replace")
    return replace_decoder(read_pattern(node.at("pattern")), sanitized(node.at("content").text()));
  if (type == "BPEDecoder") return suffix_decoder(node.at("suffix").text("</w>"));
  node.at("type").unknown(
      "Sequence, ByteLevel, ByteFallback, Fuse, Metaspace, WordPiece, Strip, Replace or "
      "BPEDecoder");
}

// `list`: the key of a Sequence.
template <class Out, class F>
void read_stage(const JsonNode& node, const char* list, int depth, Out& out, F&& one) {
  if (node.is_null()) return;
  const std::string type = node.at("type").text();
  if (type != "Sequence") {
    out.push_back(one(node, type));
    return;
  }
  read_sequence(node.at(list), depth,
                [&](const JsonNode& e) { read_stage(e, list, depth + 1, out, one); });
}

}  // namespace

Regex read_pattern(const JsonNode& node) {
  node.expect_object();
  if (const JsonNode text = node.at("String"); !text.is_null())
    return Regex::literal(sanitized(text.text()), text.path());
  if (const JsonNode regex = node.at("Regex"); !regex.is_null())
    return Regex(sanitized(regex.text()), regex.path());
  node.refuse("an object with 'String' or 'Regex'");
}

void read_normalizer(const JsonNode& node, Normalizers& out) {
  read_stage(node, "normalizers", 0, out, one_normalizer);
}
void read_pre_tokenizer(const JsonNode& node, PreTokenizers& out) {
  read_stage(node, "pretokenizers", 0, out, one_pre_tokenizer);
}
void read_decoder(const JsonNode& node, Decoders& out) {
  read_stage(node, "decoders", 0, out, one_decoder);
}

}  // namespace tenon::llm
