// SPDX-License-Identifier: Apache-2.0
// Runs placed by hand: sound ones pass, one fault each is named; random ones, judged byte by byte.
#include "plan/check/contents.hpp"

#include <doctest/doctest.h>

#include <array>
#include <map>
#include <random>

using namespace tenon::core;

namespace {

constexpr uint32_t kNamed = 100;

// A run of one region on device 0. Values are known by their index; the graph knows them under the
// same numbers but for those that `within` lists.
struct Run {
  std::vector<ProgramValue> values{};
  std::vector<Place> places{};
  std::vector<Step> steps{};
  std::vector<Place> scratch{};
  std::vector<uint32_t> within{};
  std::vector<PlannedCopy> before{}, after{};
  std::vector<uint32_t> copied{}, copied_after{};
  std::vector<Held> given{}, left{};

  uint32_t value(uint64_t offset, uint64_t size, Home home = Home::arena, uint32_t index = 0) {
    values.push_back({.source = TENON_NONE, .size = size});
    places.push_back({home, index, offset});
    return static_cast<uint32_t>(values.size() - 1);
  }
  Step& step(std::vector<uint32_t> reads, std::vector<uint32_t> writes,
             std::vector<Alias> aliases = {}) {
    scratch.emplace_back();
    return steps.emplace_back(Step{.reads = std::move(reads),
                                   .writes = std::move(writes),
                                   .aliases = std::move(aliases),
                                   .label = "k"});
  }
  void use_scratch(uint64_t offset, uint64_t size) {
    steps.back().scratch = size;
    scratch.back() = {Home::arena, 0, offset};
  }
  Held held(uint32_t v) const { return {0, places[v], values[v].size, v}; }

  std::string wrong() const {
    const auto count = static_cast<uint32_t>(values.size());
    std::vector<uint32_t> contents(count), reports(steps.size(), kNone);
    for (uint32_t v = 0; v < count; ++v) contents[v] = v;
    for (uint32_t v : within) contents[v] = kNone;
    if (!steps.empty()) reports.back() = 7;
    return find_lost(
        {.given = given,
         .regions = {{0, values, steps, places, scratch, contents, before, copied, reports}},
         .after = after,
         .copied_after = copied_after,
         .left = left,
         .count = kNamed,
         .value_text = [](uint32_t v) { return cat("v", v); },
         .node_text = [](uint32_t r) { return cat("node ", r); }});
  }
};

Alias in_place(uint32_t from, uint32_t to) { return {.view = false, .from = from, .to = to}; }
Alias view(uint32_t from, uint32_t to, uint64_t offset) { return {true, from, to, offset}; }

// v0, an input, makes v1, which v2 takes the bytes of; v3 is a view of v2; v4 leaves.
Run sound() {
  Run r;
  r.value(0, 16, Home::input);
  r.value(0, 16);
  r.value(0, 16);
  r.value(8, 8);
  r.value(0, 16, Home::output);
  r.given = {r.held(0)};
  r.step({0}, {1});
  r.use_scratch(16, 64);
  r.step({0, 1}, {2}, {in_place(1, 2)});
  r.use_scratch(16, 8);
  r.step({}, {}, {view(2, 3, 8)});
  r.step({2, 3}, {4});
  r.left = {r.held(0), r.held(4)};
  return r;
}

}  // namespace

TEST_SUITE("plan/contents") {
  TEST_CASE("find_lost: a sound run, and bytes used again behind their last reader") {
    CHECK(sound().wrong() == "");
    Run r = sound();
    r.within = {1, 2, 3};
    CHECK(r.wrong() == "");
    r = sound();
    const uint32_t late = r.value(4, 30);
    r.step({4}, {late});
    CHECK(r.wrong() == "");
  }

  TEST_CASE("find_lost: bytes used again too early") {
    Run r;
    const uint32_t a = r.value(0, 16), b = r.value(12, 16), c = r.value(64, 4);
    r.step({}, {a});
    r.step({}, {b});
    r.step({a}, {c});
    CHECK(
        r.wrong() ==
        "step 2 k of region 0 (node 7) needs v0 at bytes 0 to 16 of chunk 0 of device 0, but byte "
        "12 there holds v1");
    r.within = {b};
    CHECK(r.wrong().ends_with("byte 12 there holds value 1 of the program of region 0"));
    r.places[b].index = 1;
    CHECK(r.wrong() == "");
    r.places[b] = {Home::arena, 0, 16};
    CHECK(r.wrong() == "");
  }

  TEST_CASE("find_lost: a merge in place with what is read later") {
    Run r = sound();
    const uint32_t c = r.value(200, 16);
    r.step({1}, {c});
    CHECK(
        r.wrong() ==
        "step 4 k of region 0 (node 7) needs v1 at bytes 0 to 16 of chunk 0 of device 0, but byte "
        "0 there holds v2");
  }

  TEST_CASE("find_lost: a merge in place that the step does not offer") {
    Run r = sound();
    r.steps[1].aliases.clear();
    CHECK(r.wrong() ==
          "step 1 k of region 0 needs v1 at bytes 0 to 16 of chunk 0 of device 0, but byte 0 there "
          "holds v2");
    r = sound();
    r.places[2].offset = 4;  // offered, but elsewhere
    CHECK(r.wrong().find("byte 4 there holds v2") != std::string::npos);
    r = sound();
    const uint32_t other = r.value(0, 16);
    r.steps[1].writes.push_back(other);  // two outputs of a step in one place
    CHECK(
        r.wrong().ends_with("needs v1 at bytes 0 to 16 of chunk 0 of device 0, but byte 0 there "
                            "holds v5"));
    r.steps[1].reads = {0};
    CHECK(r.wrong() ==
          "step 1 k of region 0 needs v2 at bytes 0 to 16 of chunk 0 of device 0, but byte 0 there "
          "holds v5");
  }

  TEST_CASE("find_lost: a merge in place with bytes that the step reads as two operands") {
    Run r;
    const uint32_t a = r.value(0, 16), same = r.value(0, 16), b = r.value(0, 16);
    r.step({}, {a}, {view(a, same, 0)});
    r.step({a, same}, {b}, {in_place(a, b)});
    CHECK(r.wrong().find("needs v0 at bytes 0 to 16") != std::string::npos);
    r.steps[1].aliases.push_back(in_place(same, b));
    CHECK(r.wrong() == "step 1 k of region 0 (node 7) writes v2 over two of its operands");
    r.steps[1].reads = {same};
    CHECK(r.wrong() == "");
  }

  TEST_CASE("find_lost: a view past its base, or not where it is in it") {
    Run r = sound();
    r.steps[2].aliases[0].offset = 9;
    r.places[3].offset = 9;
    CHECK(r.wrong() ==
          "step 2 k of region 0 views v2 at bytes 9 to 17 of chunk 0 of device 0, 9 bytes into v2 "
          "at bytes 0 to 16 of chunk 0 of device 0");
    r = sound();
    r.places[3].offset = 4;
    CHECK(r.wrong() ==
          "step 2 k of region 0 views v2 at bytes 4 to 12 of chunk 0 of device 0, 8 bytes into v2 "
          "at bytes 0 to 16 of chunk 0 of device 0");
    r = sound();
    r.places[3] = {};
    CHECK(r.wrong() == "step 3 k of region 0 (node 7) needs v2 of 8 bytes in no place");
  }

  TEST_CASE("find_lost: scratch over a live value, an operand, a result") {
    Run r = sound();
    r.scratch[1].offset = 9;  // of the step whose result is read later
    CHECK(r.wrong().find("step 1 k of region 0 needs ") == 0);
    r = sound();
    const uint32_t a = r.value(100, 50), b = r.value(200, 8);
    r.steps[0].writes.push_back(a);
    r.scratch[1].offset = 120;
    CHECK(r.wrong() == "");
    r.step({a}, {b});
    CHECK(r.wrong() ==
          "step 4 k of region 0 (node 7) needs v5 at bytes 100 to 150 of chunk 0 of device 0, but "
          "byte 120 there holds scratch of step 1 k of region 0");
    r = sound();
    r.use_scratch(0, 8);
    CHECK(r.wrong() ==
          "step 3 k of region 0 (node 7) needs v2 at bytes 0 to 16 of chunk 0 of device 0, but "
          "byte 0 there holds scratch of step 3 k of region 0 (node 7)");
    r = sound();
    r.scratch[0].offset = 15;
    CHECK(r.wrong() ==
          "step 0 k of region 0 needs scratch of step 0 k of region 0 at bytes 15 to 79 of chunk 0 "
          "of device 0, but byte 15 there holds v1");
  }

  TEST_CASE("find_lost: what copies carry, before a region and after the run") {
    Run r;
    const uint32_t a = r.value(32, 8), b = r.value(0, 8);
    const Place there{Home::arena, 0, 0}, state{Home::entry, 3, 0};
    r.given = {{1, there, 8, a}, {0, state, 8, 99}};
    r.before = {{1, 0, there, r.places[a], 8}};
    r.copied = {a};
    r.step({a}, {b});
    r.after = {{0, 0, r.places[b], state, 8}};
    r.copied_after = {b};
    r.left = {{0, state, 8, b}};
    CHECK(r.wrong() == "");

    Run other = r;
    other.before[0].from.offset = 4;
    CHECK(
        other.wrong() ==
        "a copy before region 0 needs v0 at bytes 4 to 12 of chunk 0 of device 1, but byte 8 there "
        "holds nothing");
    other = r;
    other.before[0].to.offset = 31;
    CHECK(other.wrong().find("byte 39 there holds nothing") != std::string::npos);
    other = r;
    other.before[0].to_device = 1;
    CHECK(other.wrong().find("byte 32 there holds nothing") != std::string::npos);
    other = r;
    const uint32_t c = other.value(0, 4);
    other.step({}, {c});
    CHECK(other.wrong() ==
          "a copy after the run needs v1 at bytes 0 to 8 of chunk 0 of device 0, but byte 0 there "
          "holds v2");
    other = r;
    other.after.clear();
    CHECK(other.wrong() ==
          "the run leaves v1 at bytes 0 to 8 of entry 3 of device 0, but byte 0 there holds v99");
  }

  TEST_CASE("find_lost: an input that is written, an output that is not, a value without a place") {
    Run r = sound();
    const uint32_t over = r.value(12, 2, Home::input);
    r.step({}, {over});
    CHECK(r.wrong() ==
          "the run leaves v0 at bytes 0 to 16 of input 0 of device 0, but byte 12 there holds v5");
    r = sound();
    r.places[4].index = 1;
    CHECK(r.wrong() ==
          "the run leaves v4 at bytes 0 to 16 of output 0 of device 0, but byte 0 there holds "
          "nothing");
    r = sound();
    r.places[1] = {};
    CHECK(r.wrong() == "step 0 k of region 0 writes v1 of 16 bytes in no place");
    r.values[1].size = 0;
    r.places[2].offset = 64;
    r.places[3].offset = 72;
    CHECK(r.wrong() == "");
  }
}

namespace {

// As find_lost does for steps without views, byte by byte.
bool loses(const Run& r) {
  std::map<std::pair<uint32_t, uint64_t>, uint32_t> holder;
  const auto each = [&](const Place& place, uint64_t size, auto&& byte) {
    for (uint64_t k = 0; k < size; ++k) byte(holder[{place.index, place.offset + k}]);
  };
  for (uint32_t s = 0; s < r.steps.size(); ++s) {
    const Step& step = r.steps[s];
    bool bad = false;
    const auto must_hold = [&](uint32_t v, uint32_t or_too = 0) {
      each(r.places[v], r.values[v].size,
           [&](uint32_t h) { bad |= h != v + 1 && (or_too == 0 || h != or_too); });
    };
    if (step.writes.empty()) continue;
    for (uint32_t v : step.reads) must_hold(v);
    each(r.scratch[s], step.scratch, [&](uint32_t& h) { h = 1000 + s; });
    for (uint32_t v : step.writes)
      each(r.places[v], r.values[v].size, [&](uint32_t& h) { h = v + 1; });
    for (uint32_t v : step.reads) {
      uint32_t taker = 0;
      for (const Alias& a : step.aliases)
        if (a.from == v && r.places[a.to] == r.places[v]) taker = a.to + 1;
      must_hold(v, taker);
    }
    for (uint32_t v : step.writes) must_hold(v);
    each(r.scratch[s], step.scratch, [&](uint32_t h) { bad |= h != 1000 + s; });
    if (bad) return true;
  }
  return false;
}

}  // namespace

TEST_SUITE("plan/contents") {
  TEST_CASE("find_lost: random runs, what a look at each byte finds") {
    std::mt19937 random(3);
    int found = 0, clean = 0, shared = 0;
    for (int round = 0; round < 4000; ++round) {
      Run r;
      const uint32_t count = random() % 7 + 2;
      for (uint32_t s = 0; s < count; ++s) {
        std::vector<uint32_t> reads, writes;
        std::vector<Alias> aliases;
        const auto made = static_cast<uint32_t>(r.values.size());
        if (made > 0 && random() % 3) reads.push_back(made - 1 - random() % std::min(made, 2u));
        for (uint32_t i = random() % 5 ? 1 : 2; i > 0; --i)
          writes.push_back(r.value(random() % 60, random() % 20, Home::arena, random() % 2));
        if (!reads.empty() && random() % 2) {
          const uint32_t from = reads[0], to = writes[0];
          aliases.push_back(in_place(from, to));
          r.values[to].size = std::min(r.values[to].size, r.values[from].size);
          if (random() % 4) r.places[to] = r.places[from], ++shared;
        }
        r.step(reads, writes, aliases);
        if (random() % 3 == 0) r.use_scratch(random() % 60, random() % 20);
      }
      const bool expected = loses(r);
      (expected ? found : clean) += 1;
      CAPTURE(round);
      REQUIRE(!r.wrong().empty() == expected);
    }
    CHECK(found > 400);
    CHECK(clean > 400);
    CHECK(shared > 400);
  }
}
