// SPDX-License-Identifier: Apache-2.0
// Normalizers, pre-tokenizers and decoders alone.
#include "llm/text/charsmap.hpp"
#include "llm/text/decoder.hpp"
#include "llm/text/normalizer.hpp"
#include "llm/text/pre_tokenizer.hpp"
#include "text_helpers.hpp"

using namespace tenon;
using namespace tenon::test;
using namespace tenon::llm;

namespace {

using Texts = std::vector<std::string>;

Texts pieces(const PreTokenizer& p, const std::string& text) {
  Pieces all{text, {{0, static_cast<uint32_t>(text.size())}}};
  p(all);
  Texts out;
  for (const Range& r : all.ranges) out.emplace_back(all.piece(r));
  return out;
}

Texts split(const std::string& pattern, Behavior b, bool invert, const std::string& text) {
  return pieces(split_by(Regex(pattern, "test"), b, invert), text);
}

Texts decoded(const Decoder& d, Texts tokens) {
  Decoding all{std::move(tokens), false};
  d(all);
  return all.tokens;
}

void append_word(std::string& blob, uint32_t word) {
  for (int i = 0; i < 4; ++i) blob += static_cast<char>(word >> 8 * i & 0xFF);
}

}  // namespace

TEST_SUITE("llm/text/stages") {
  TEST_CASE("split: what becomes of matches") {
    CHECK(split("-", Behavior::isolated, false, "the-final--cut") ==
          Texts{"the", "-", "final", "-", "-", "cut"});
    CHECK(split("-", Behavior::removed, false, "the-final--cut") == Texts{"the", "final", "cut"});
    CHECK(split("-", Behavior::merged_with_previous, false, "the-final--cut") ==
          Texts{"the-", "final-", "-", "cut"});
    CHECK(split("-", Behavior::merged_with_next, false, "the-final--cut") ==
          Texts{"the", "-final", "-", "-cut"});
    CHECK(split("-", Behavior::merged_with_next, false, "a-") == Texts{"a", "-"});
    CHECK(split("-", Behavior::contiguous, false, "the-final--cut") ==
          Texts{"the", "-", "final", "--", "cut"});
    CHECK(split("[a-z]+", Behavior::removed, true, "the-final") == Texts{"the", "final"});
  }

  TEST_CASE("pre-tokenizers") {
    CHECK(pieces(bert_pieces(), " a,b  c") == Texts{"a", ",", "b", "c"});
    CHECK(pieces(split_by_length(2), "aäbcd") == Texts{"aä", "bc", "d"});
    CHECK(pieces(split_by_character('x'), "axxb") == Texts{"a", "b"});
    CHECK(pieces(byte_level(true, true), "a\nb") == Texts{"Ġa", "Ċ", "b"});
    CHECK(pieces(metaspace("▁", PrefixScheme::always, true), "a  b") == Texts{"▁a", "▁", "▁b"});
    CHECK(pieces(metaspace("▁", PrefixScheme::never, false), "a b") == Texts{"a▁b"});
    Pieces inside{"a b", {{0, 3}}, false};
    metaspace("▁", PrefixScheme::first, true)(inside);
    CHECK(inside.piece(inside.ranges.at(0)) == "a");
  }

  TEST_CASE("normalizers") {
    CHECK(bert_normalizer({})("\tÄ\u200d世b\u0378") == " a 世 b\u0378");
    CHECK(bert_normalizer({.strip_accents = false, .lowercase = false})("Ä") == "Ä");
    CHECK(strip_normalizer(true, false)("\u3000 a ") == "a ");
    CHECK(strip_normalizer(false, true)("\u3000 a ") == "\u3000 a");
    CHECK(strip_normalizer(true, true)("  ") == "");
    CHECK(prepend_normalizer("▁")("") == "");
    CHECK(replace_normalizer(Regex(" {2,}", "test"), "_")("a  b c   ") == "a_b c_");
    CHECK(accent_normalizer()("e\u0301\u0903") == "e");
    CHECK(nmt_normalizer()("a\x01"
                           "b\u200bc") == "ab c");
    CHECK(byte_level_normalizer()("ä ") == "Ã¤Ġ");
    CHECK(space_normalizer({.prefix = true, .remove_extra = true})("  a  b ") == "▁a▁b");
    CHECK(space_normalizer({.prefix = false, .remove_extra = true})("  a  b ") == "a▁b");
    CHECK(space_normalizer({.prefix = true})(" ") == "▁▁");
    CHECK(space_normalizer({.prefix = true})("a  b") == "▁a▁▁b");
    CHECK(space_normalizer({.prefix = true, .suffix = true})("a b") == "a▁b▁");
  }

  TEST_CASE("visible bytes: each byte has a character of its own") {
    std::string bytes, visible;
    for (int b = 0; b < 256; ++b) bytes += static_cast<char>(b);
    append_visible(visible, bytes);
    CHECK(decoded(byte_level_decoder(), {visible})[0] == sanitized(bytes));
    size_t at = 0;
    for (int b = 0; b < 256; ++b) CHECK(visible_byte(next_character(visible, at)) == b);
    CHECK(visible_byte(' ') == -1);
    CHECK(visible_byte(0x4E00) == -1);
  }

  TEST_CASE("decoders") {
    CHECK(decoded(byte_fallback_decoder(), {"<0xC3>", "<0xA4>", "x", "<0xC3>", "y"}) ==
          Texts{"ä", "x", "\uFFFD", "y"});
    CHECK(decoded(byte_fallback_decoder(), {"<0xE4>", "<0xB8>"}) == Texts{"\uFFFD", "\uFFFD"});
    CHECK(decoded(fuse_decoder(), {"a", "b"}) == Texts{"ab"});
    CHECK(decoded(strip_decoder("x", 1, 2), {"xxaxxx"}) == Texts{"xax"});
    CHECK(decoded(metaspace_decoder("▁", true), {"▁a", "▁b▁"}) == Texts{"a", " b "});
    CHECK(decoded(metaspace_decoder("▁", false), {"▁a"}) == Texts{" a"});
    CHECK(decoded(word_piece_decoder("##", true), {"do", "n", "##'t", ".", "##x"}) ==
          Texts{"do", " n", "'t", ".", "x"});
    CHECK(decoded(suffix_decoder("</w>"), {"a</w>", "b", "c</w>"}) == Texts{"a ", "b", "c"});
    CHECK(decoded(replace_decoder(Regex("a+", "test"), "b"), {"caat"}) == Texts{"cbt"});
  }

  TEST_CASE("charsmap: a table of one entry, and damaged ones") {
    // The root's offset is 1; the byte 'A' leads to unit 1 ^ 'A' = 64, whose value is at its offset.
    std::string blob;
    append_word(blob, 66 * 4);
    for (uint32_t i = 0; i < 66; ++i) {
      uint32_t unit = 0;
      if (i == 0) unit = 1u << 10;
      if (i == 64) unit = 'A' | 1u << 8 | 1u << 10;  // has a value, at 64 ^ 1 = 65
      if (i == 65) unit = 1u << 31 | 0;              // the string at 0
      append_word(blob, unit);
    }
    blob += std::string("xyz\0", 4);
    const Charsmap map(blob, "test");
    CHECK(map.longest("bAA") == "bxyzxyz");
    CHECK(map.by_clusters("bA") == "bxyz");
    CHECK(map.by_clusters("A\u0301") ==
          "xyz");  // the cluster becomes what its first prefix becomes
    CHECK(has(message([] { Charsmap("abc", "test"); }), "3 bytes; expected at least 4"));
    CHECK(has(message([] { Charsmap(std::string("\x08\0\0\0ab", 6), "test"); }),
              "expected a multiple of 4, at most 2"));
    // Offsets and strings outside of the table find nothing.
    std::string wild = blob;
    for (size_t i = 4; i < 4 + 66 * 4; ++i) wild[i] = static_cast<char>(0xFF);
    CHECK(Charsmap(wild, "test").longest("bA") == "bA");
    CHECK(Charsmap(blob.substr(0, 4 + 66 * 4), "test").longest("bA") == "bA");
  }
}
