// SPDX-License-Identifier: Apache-2.0
// The order of merges, with one algorithm for short pieces and one for long ones.
#include "llm/text/bpe.hpp"

#include <doctest/doctest.h>

#include <random>
#include <string>

using namespace tenon::llm;

namespace {

// Tokens: all texts of a and b up to three letters.
Vocab small_vocab() {
  Vocab v;
  TokenId id = 0;
  for (const char* text : {"a", "b", "aa", "ab", "ba", "aab", "bab", "aaaa"}) v.add(text, id++);
  return v;
}

std::vector<TokenId> encode(const Model& model, const std::string& text) {
  std::vector<TokenId> out;
  const auto memory = model.memory();
  model.encode(text, out, *memory);
  return out;
}

// Merges one pair at a time, by the definition.
std::vector<TokenId> by_definition(const Vocab& vocab, const MergeList& merges,
                                   const std::string& text) {
  std::vector<TokenId> ids;
  for (const char c : text) ids.push_back(vocab.find(std::string(1, c)));
  for (;;) {
    size_t best = ids.size();
    const Merge* by = nullptr;
    for (size_t i = 0; i + 1 < ids.size(); ++i)
      if (const Merge* m = merges.find(ids[i], ids[i + 1]); m && (!by || m->rank < by->rank)) {
        best = i;
        by = m;
      }
    if (!by) return ids;
    ids[best] = by->id;
    ids.erase(ids.begin() + static_cast<int64_t>(best) + 1);
  }
}

MergeList some_merges(const Vocab& v) {
  MergeList merges;
  const auto add = [&](const char* a, const char* b, uint32_t rank) {
    CHECK(merges.add(v.find(a), v.find(b), {rank, v.find(std::string(a) + b)}));
  };
  add("a", "b", 0);
  add("a", "a", 1);
  add("a", "ab", 2);
  add("b", "ab", 3);
  add("aa", "aa", 4);
  return merges;
}

}  // namespace

TEST_SUITE("llm/text/bpe") {
  TEST_CASE("merges: lowest rank first, then the leftmost") {
    const Vocab v = small_vocab();
    const auto model = make_bpe(v, some_merges(v), {});
    CHECK(encode(*model, "aaa") == std::vector<TokenId>{2, 0});    // aa a
    CHECK(encode(*model, "aab") == std::vector<TokenId>{5});       // ab first, then a+ab
    CHECK(encode(*model, "aaaab") == std::vector<TokenId>{2, 5});  // aa aab
    CHECK(encode(*model, "aaaaa") == std::vector<TokenId>{7, 0});
    CHECK(encode(*model, "").empty());
  }

  TEST_CASE("merges: long pieces have the ids of the definition") {
    const Vocab v = small_vocab();
    const MergeList merges = some_merges(v);
    const auto model = make_bpe(v, some_merges(v), {});
    std::mt19937 random(1);
    for (size_t size = 0; size < 120; ++size) {
      std::string text;
      for (size_t i = 0; i < size; ++i) text += random() % 3 ? 'a' : 'b';
      CAPTURE(text);
      CHECK(encode(*model, text) == by_definition(v, merges, text));
    }
  }

  TEST_CASE("merges: a million equal letters") {
    const Vocab v = small_vocab();
    const auto model = make_bpe(v, some_merges(v), {});
    const auto ids = encode(*model, std::string(1'000'000, 'a'));
    CHECK(ids == std::vector<TokenId>(250'000, 7));
  }

  TEST_CASE("scores: the highest one first, equal ones from the left") {
    Vocab v;
    TokenId id = 0;
    for (const char* text : {"<unk>", "a", "b", "c", "ab", "bc", "abc", "<0xC3>"})
      v.add(text, id++);
    const auto ids = [&](std::vector<float> scores, const char* text) {
      return encode(*make_scored_bpe(v, scores, 0), text);
    };
    CHECK(ids({0, 0, 0, 0, -1, -2, -3, 0}, "abc") == std::vector<TokenId>{6});
    CHECK(ids({0, 0, 0, 0, -1, -2, -3, 0}, "bcab") == std::vector<TokenId>{5, 4});
    CHECK(ids({0, 0, 0, 0, -2, -1, -3, 0}, "abcbc") == std::vector<TokenId>{6, 5});
    // Of a character without a token, all bytes or the unknown token.
    CHECK(ids({0, 0, 0, 0, -2, -1, -3, 0}, "\xC3\xA4") == std::vector<TokenId>{0});
  }

  TEST_CASE("vocabulary: bytes before visible spaces") {
    Vocab v;
    CHECK(bytes_before_spaces(v).all());
    v.add("\xE2\x96\x81", 0);
    v.add("\xE2\x96\x81\xE2\x96\x81x", 1);
    CHECK(bytes_before_spaces(v).none());
    v.add(">\xE2\x96\x81<", 2);
    CHECK(bytes_before_spaces(v).count() == 1);
    CHECK(bytes_before_spaces(v).test('>'));
  }
}
