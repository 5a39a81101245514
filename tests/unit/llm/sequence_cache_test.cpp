// SPDX-License-Identifier: Apache-2.0
// Blocks of the cache: who has them, what is found, and what is evicted.
#include <doctest/doctest.h>

#include <numeric>
#include <random>
#include <set>

#include "llm/sequence_cache.hpp"
#include "tenon/tenon.hpp"

TEST_SUITE("llm/sequence_cache") {
  using namespace tenon::llm;
  using Tokens = std::vector<int64_t>;

  Tokens from(int64_t first, size_t count) {
    Tokens t(count);
    std::iota(t.begin(), t.end(), first);
    return t;
  }
  Tokens joined(Tokens a, const Tokens& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  }
  void read(SequenceCache & cache, int64_t slot, const Tokens& tokens) {
    cache.reserve(slot, static_cast<int64_t>(tokens.size()));
    cache.append(slot, tokens);
  }
  std::set<int64_t> rows(const SequenceCache& cache, int64_t slot) {
    std::set<int64_t> all;
    for (int64_t p = 0; p < cache.length(slot); ++p) all.insert(cache.row(slot, p));
    return all;
  }
  CacheShape pool(int64_t slots, int64_t blocks) {
    return {.slots = slots, .context = 100, .block = 4, .blocks = blocks};
  }

  TEST_CASE("blocks: a live prefix is shared, and the rest has rows of its own") {
    SequenceCache cache(pool(3, 20));
    read(cache, 0, from(0, 10));
    CHECK(cache.available() == 17);
    CHECK_FALSE(cache.reuse(1, joined(from(0, 9), from(50, 3))));
    CHECK(cache.tokens(1) == from(0, 8));
    CHECK(cache.available() == 17);
    read(cache, 1, joined(from(8, 1), from(50, 3)));
    CHECK(cache.available() == 16);
    const auto a = rows(cache, 0), b = rows(cache, 1);
    CHECK(a.size() == 10);
    CHECK(b.size() == 12);
    std::set<int64_t> both;
    std::ranges::set_intersection(a, b, std::inserter(both, both.end()));
    CHECK(both.size() == 8);
    // Not all tokens: the last one has to be read.
    CHECK_FALSE(cache.reuse(2, from(0, 8)));
    CHECK(cache.tokens(2) == from(0, 4));
    // Other tokens, and the same tokens behind others, are not it.
    cache.reuse(2, joined(from(70, 4), from(4, 6)));
    CHECK(cache.length(2) == 0);
    CHECK(cache.blocks(2).empty());
  }

  TEST_CASE("blocks: to go back into a block that others have copies its rows") {
    SequenceCache cache(pool(2, 20));
    read(cache, 0, from(0, 10));
    cache.reuse(1, from(0, 10));
    CHECK(cache.length(1) == 8);
    const int64_t shared = cache.row(1, 4);
    const auto copy = cache.truncate(1, 6);
    REQUIRE(copy);
    CHECK(copy->from == shared);
    CHECK(copy->to == cache.row(1, 4));
    CHECK(copy->count == 2);
    CHECK(cache.row(0, 4) == shared);
    CHECK(cache.row(1, 4) != shared);
    // Its own block needs no copy, and is not found any more.
    CHECK_FALSE(cache.truncate(0, 6));
    CHECK(cache.row(0, 4) == shared);
    cache.truncate(1, 0);
    cache.reuse(1, from(0, 10));
    CHECK(cache.length(1) == 4);
    // To read again is taken where a copy would be.
    read(cache, 0, from(6, 2));
    cache.reuse(1, from(0, 10));
    CHECK(cache.length(1) == 8);
    CHECK_FALSE(cache.reuse(1, joined(from(0, 6), from(90, 4))));
    CHECK(cache.length(1) == 4);
  }

  TEST_CASE("blocks: what nobody uses is found until its memory is needed, the oldest goes first") {
    SequenceCache cache(pool(2, 4));
    read(cache, 0, from(0, 8));
    cache.truncate(0, 0);
    CHECK(cache.available() == 4);
    read(cache, 0, from(50, 8));
    cache.truncate(0, 0);
    read(cache, 1, from(70, 4));  // evicts the end of the first sequence
    cache.truncate(1, 0);
    cache.reuse(0, from(0, 9));
    CHECK(cache.length(0) == 4);
    cache.reuse(1, from(50, 9));
    CHECK(cache.length(1) == 8);
    CHECK(cache.available() == 1);
    CHECK(cache.needed(0, 4) == 1);
    CHECK(cache.needed(0, 5) == 2);
    try {
      cache.reserve(0, 5);
      FAIL("expected an error");
    } catch (const tenon::Error& e) {
      CHECK(e.code() == TENON_OUT_OF_MEMORY);
      CHECK(std::string(e.what()).find("4 blocks of 4 tokens") != std::string::npos);
    }
    CHECK(cache.available() == 1);
    cache.reserve(0, 4);
    CHECK(cache.available() == 0);
  }

  TEST_CASE("blocks: tokens that are not findable leave free blocks") {
    SequenceCache cache(pool(2, 4));
    cache.reserve(0, 8);
    cache.append(0, from(0, 8), false);
    CHECK(cache.free() == 2);
    cache.reuse(1, from(0, 9));
    CHECK(cache.length(1) == 0);
    cache.truncate(0, 0);
    CHECK(cache.free() == 4);
    // The rest of a sequence makes it findable.
    cache.reserve(0, 8);
    cache.append(0, from(0, 6), false);
    cache.append(0, from(6, 2));
    cache.reuse(1, from(0, 9));
    CHECK(cache.length(1) == 8);
    cache.truncate(0, 0), cache.truncate(1, 0);
    CHECK(cache.free() == 2);
    CHECK(cache.available() == 4);
  }

  TEST_CASE("blocks: random sequences never write what another one has") {
    std::mt19937 random(7);
    SequenceCache cache(pool(4, 16));
    std::vector<std::pair<int64_t, int64_t>> content(64, {-1, 0});  // of rows: token, sum before it
    const auto sum = [](const Tokens& t, size_t n) {
      return std::accumulate(t.begin(), t.begin() + static_cast<ptrdiff_t>(n), int64_t{0});
    };
    const auto move = [&](const std::optional<RowCopy>& copy) {
      for (int64_t k = 0; copy && k < copy->count; ++k)
        content[static_cast<size_t>(copy->to + k)] = content[static_cast<size_t>(copy->from + k)];
    };
    for (int step = 0; step < 4000; ++step) {
      const auto slot = static_cast<int64_t>(random() % 4);
      const int64_t length = cache.length(slot);
      if (random() % 3 == 0) {
        Tokens wanted(1 + random() % 30);
        for (int64_t& t : wanted) t = random() % 8 == 0;
        move(cache.reuse(slot, wanted));
        CHECK(std::ranges::equal(cache.tokens(slot),
                                 std::span(wanted).first(cache.tokens(slot).size())));
        CHECK(cache.tokens(slot).size() < wanted.size());
      } else if (random() % 4 == 0) {
        const auto left = static_cast<int64_t>(random() % static_cast<uint64_t>(length + 1));
        if (cache.available() == 0 && left > 0) continue;
        move(cache.truncate(slot, left));
        CHECK(cache.length(slot) == left);
      } else {
        Tokens more(1 + random() % 6);
        for (int64_t& t : more) t = random() % 8 == 0;
        if (cache.needed(slot, static_cast<int64_t>(more.size())) > cache.available()) continue;
        cache.reserve(slot, static_cast<int64_t>(more.size()));
        int64_t before = sum(cache.tokens(slot), cache.tokens(slot).size());
        for (size_t k = 0; k < more.size(); ++k) {
          content[static_cast<size_t>(cache.row(slot, length + static_cast<int64_t>(k)))] = {
              more[k], before};
          before += more[k];
        }
        cache.append(slot, more);
      }
      for (int64_t s = 0; s < 4; ++s)
        for (int64_t p = 0; p < cache.length(s); ++p) {
          const auto& [token, before] = content[static_cast<size_t>(cache.row(s, p))];
          REQUIRE(token == cache.tokens(s)[static_cast<size_t>(p)]);
          REQUIRE(before == sum(cache.tokens(s), static_cast<size_t>(p)));
        }
    }
    for (int64_t s = 0; s < 4; ++s) cache.truncate(s, 0);
    CHECK(cache.available() == 16);
  }

  TEST_CASE("rows of slots: a prefix is copied from the slot that has most of it") {
    SequenceCache cache({.slots = 3, .context = 20});
    read(cache, 0, from(0, 6));
    read(cache, 1, from(0, 10));
    read(cache, 2, joined(from(0, 3), from(60, 2)));
    const auto copy = cache.reuse(2, from(0, 9));
    REQUIRE(copy);
    CHECK(copy->from == 20 + 3);
    CHECK(copy->to == 40 + 3);
    CHECK(copy->count == 5);
    CHECK(cache.tokens(2) == from(0, 8));
    CHECK_FALSE(cache.reuse(1, from(0, 9)));
    CHECK(cache.length(1) == 8);
    CHECK(cache.needed(1, 12) == 0);
  }

  TEST_CASE("recurrent models: all of a sequence, or nothing") {
    SequenceCache cache({.slots = 2, .context = 20, .recurrent = true});
    read(cache, 0, from(0, 6));
    cache.reuse(1, from(0, 8));
    CHECK(cache.length(1) == 0);
    cache.reuse(0, from(0, 8));
    CHECK(cache.length(0) == 6);
    cache.reuse(0, from(0, 6));
    CHECK(cache.length(0) == 0);
  }
}
