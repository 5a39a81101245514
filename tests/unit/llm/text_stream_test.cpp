// SPDX-License-Identifier: Apache-2.0
// Texts from ids that come one at a time, and tokenizers that several threads use.
#include <thread>

#include "text_helpers.hpp"

using namespace tenon;
using namespace tenon::test;

namespace {

// Visible bytes of U+1F680 (F0 9F 9A 80), one token each.
const std::string kBytes =
    R"({"model": {"type": "BPE", "vocab": {"ð": 0, "Ł": 1, "ļ": 2, "Ģ": 3, "a": 4, "Ġb": 5, "<|end|>": 6}, "merges": []},
        "added_tokens": [{"id": 6, "content": "<|end|>", "special": true}],
        "decoder": {"type": "ByteLevel"}})";

std::vector<std::string> stream(const llm::Tokenizer& t, const Ids& ids, bool skip = true) {
  llm::Detokenizer d(t, skip);
  std::vector<std::string> out;
  for (const llm::TokenId id : ids) out.push_back(d.push(id));
  out.push_back(d.flush());
  return out;
}
using Texts = std::vector<std::string>;

}  // namespace

TEST_SUITE("llm/text/stream") {
  TEST_CASE("characters: come as a whole") {
    const auto t = from_json(kBytes);
    CHECK(stream(t, {4, 0, 1, 2, 3, 5}) == Texts{"a", "", "", "", "\xF0\x9F\x9A\x80", " b", ""});
    CHECK(stream(t, {0, 1, 4}) == Texts{"", "",
                                        "\xEF\xBF\xBD"
                                        "a",
                                        ""});
    CHECK(stream(t, {4, 0, 1}) == Texts{"a", "", "", "\xEF\xBF\xBD"});
    CHECK(stream(t, {3}) == Texts{"\xEF\xBF\xBD", ""});
  }

  TEST_CASE("special tokens: left out if asked for") {
    const auto t = from_json(kBytes);
    CHECK(stream(t, {4, 6, 5}) == Texts{"a", "", " b", ""});
    CHECK(stream(t, {4, 6, 5}, false) == Texts{"a", "<|end|>", " b", ""});
    CHECK(has(message([&] { llm::Detokenizer(t).push(7); }), "no token with the id 7"));
  }

  TEST_CASE("spaces: only the first token loses its own") {
    const auto t = from_json(
        R"({"model": {"type": "Unigram", "unk_id": 0, "vocab": [["?", 0], ["▁a", -1], ["<0xC3>", -2], ["<0xA4>", -2]]},
            "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
              {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}})");
    CHECK(stream(t, {1, 1, 2, 3, 1}) == Texts{"a", " a", "", "ä", " a", ""});
    const auto words = from_json(
        R"({"model": {"type": "WordPiece", "vocab": {"[UNK]": 0, "no": 1, "##pe": 2, ".": 3}}, "decoder": {"type": "WordPiece"}})");
    CHECK(stream(words, {1, 2, 3, 1}) == Texts{"no", "pe", ".", " no", ""});
  }

  TEST_CASE("threads: encode and decode at once") {
    const auto t = from_json(
        R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "Ġ": 3}, "merges": ["a b"]},
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, "decoder": {"type": "ByteLevel"}})");
    std::string text;
    for (int i = 0; i < 300; ++i) text += i % 3 ? " ba" : " ab";
    const Ids alone = t.encode(text);
    CHECK(Ids(alone.begin(), alone.begin() + 5) == Ids{3, 2, 3, 1, 0});
    CHECK(t.decode(alone) == text);
    std::vector<std::thread> threads;
    std::vector<int> same(4, 0);
    for (size_t k = 0; k < same.size(); ++k)
      threads.emplace_back([&, k] {
        for (int i = 0; i < 20; ++i) same[k] += t.encode(text) == alone && t.decode(alone) == text;
      });
    for (std::thread& thread : threads) thread.join();
    CHECK(same == std::vector<int>(4, 20));
  }
}
