// SPDX-License-Identifier: Apache-2.0
// Arena layouts of random lifetimes, checked pair by pair and by check_layout, which is checked
// too.
#include <doctest/doctest.h>

#include <algorithm>
#include <ctime>
#include <random>

#include "base/error.hpp"
#include "plan/check/overlap.hpp"
#include "plan/memory/layout.hpp"

using namespace tenon::core;

namespace {

std::vector<ArenaObject> random_objects(std::mt19937& random, size_t count, uint32_t steps,
                                        uint64_t largest) {
  std::vector<ArenaObject> objects(count);
  for (ArenaObject& o : objects) {
    o.size = random() % 8 == 0 ? 0 : random() % largest + 1;
    o.alignment = uint64_t{1} << (random() % 9);
    o.first = random() % steps;
    o.last = std::min<uint32_t>(steps - 1,
                                o.first + (random() % 4 == 0 ? random() % steps : random() % 3));
  }
  return objects;
}

// All pairs; what check_layout does in another way.
bool apart(const std::vector<ArenaObject>& objects) {
  for (size_t i = 0; i < objects.size(); ++i)
    for (size_t k = 0; k < i; ++k) {
      const ArenaObject &a = objects[i], &b = objects[k];
      const bool together = a.size && b.size && a.first <= b.last && b.first <= a.last;
      if (together && a.offset < b.offset + b.size && b.offset < a.offset + a.size) return false;
    }
  return true;
}

uint64_t most_alive(const std::vector<ArenaObject>& objects, uint32_t steps) {
  uint64_t most = 0;
  for (uint32_t t = 0; t < steps; ++t) {
    uint64_t alive = 0;
    for (const ArenaObject& o : objects)
      if (o.first <= t && t <= o.last) alive += o.size;
    most = std::max(most, alive);
  }
  return most;
}

void check_one(std::vector<ArenaObject> objects, uint32_t steps, uint64_t chunk) {
  const ArenaLayout layout = lay_out(objects, chunk);
  CHECK(check_layout(objects, chunk) == "");
  CHECK(apart(objects));
  CHECK(layout.bound == most_alive(objects, steps));
  CHECK(layout.bound == arena_bound(objects));
  CHECK(layout.peak >= layout.bound);
  uint64_t end = 0;
  for (const ArenaObject& o : objects) {
    if (!o.size) continue;
    end = std::max(end, o.offset + o.size);
    CHECK(o.offset % o.alignment == 0);
    const uint64_t index = chunk ? o.offset / chunk : 0, at = chunk ? o.offset % chunk : o.offset;
    REQUIRE(index < layout.chunks.size());
    CHECK(at + o.size <= layout.chunks[index]);
  }
  CHECK(layout.peak == end);
  for (const uint64_t size : layout.chunks) CHECK((chunk == 0 || size <= chunk));
}

}  // namespace

TEST_SUITE("plan/layout") {
  TEST_CASE("lay_out: random lifetimes never overlap, in one buffer and in chunks") {
    std::mt19937 random(1);
    for (int round = 0; round < 150; ++round) {
      const uint32_t steps = random() % 60 + 1;
      const auto objects = random_objects(random, random() % 120, steps, 5000);
      for (const uint64_t chunk : {uint64_t{0}, uint64_t{5120}, uint64_t{16384}})
        check_one(objects, steps, chunk);
    }
  }

  TEST_CASE("lay_out: a chain of equal values takes two of them") {
    std::vector<ArenaObject> chain;
    for (uint32_t i = 0; i < 50; ++i) chain.push_back({.size = 1024, .first = i, .last = i + 1});
    const ArenaLayout layout = lay_out(chain, 0);
    CHECK(layout.bound == 2048);
    CHECK(layout.peak == 2048);
    CHECK(layout.chunks == std::vector<uint64_t>{2048});
  }

  TEST_CASE("lay_out: nothing needs nothing") {
    CHECK(lay_out({}, 0).chunks.empty());
    std::vector<ArenaObject> empty = {{.size = 0, .first = 0, .last = 3}};
    CHECK(lay_out(empty, 4096).peak == 0);
  }

  TEST_CASE("lay_out: arenas over 4 and 16 GiB, in one buffer and in several") {
    constexpr uint64_t kGiB = uint64_t{1} << 30;
    // Five of 4 GiB live at once, behind a small one that no 32-bit offset may be confused with.
    std::vector<ArenaObject> objects = {{.size = 100, .first = 0, .last = 9}};
    for (uint32_t i = 0; i < 5; ++i) objects.push_back({.size = 4 * kGiB, .first = i, .last = 9});
    ArenaLayout layout = lay_out(objects, 0);
    CHECK(layout.bound == 20 * kGiB + 100);
    CHECK(layout.peak >= layout.bound);
    CHECK(layout.peak <= layout.bound + 64);
    REQUIRE(layout.chunks.size() == 1);
    CHECK(layout.chunks[0] == layout.peak);
    CHECK(check_layout(objects, 0).empty());
    layout = lay_out(objects, 6 * kGiB);  // one of them in each
    CHECK(check_layout(objects, 6 * kGiB).empty());
    CHECK(layout.chunks.size() == 5);
  }

  TEST_CASE("lay_out: sizes whose sum is beyond counting are refused") {
    std::vector<ArenaObject> objects(8, {.size = uint64_t{1} << 61, .first = 0, .last = 1});
    CHECK_THROWS_WITH_AS(lay_out(objects, 0), doctest::Contains("2^60 bytes or more"), Error);
    objects = {{.size = ~uint64_t{0} - 63, .first = 0, .last = 1}, {.size = 64, .last = 1}};
    CHECK_THROWS_WITH_AS(lay_out(objects, 0), doctest::Contains("2^60 bytes or more"), Error);
  }

  TEST_CASE("lay_out: a value larger than the largest buffer is refused with both sizes") {
    std::vector<ArenaObject> objects = {{.size = 100}, {.size = 5000}};
    try {
      lay_out(objects, 4096);
      FAIL("accepted");
    } catch (const Error& e) {
      CHECK(e.code() == Code::out_of_memory);
      CHECK(std::string(e.what()).find("5000") != std::string::npos);
      CHECK(std::string(e.what()).find("4096") != std::string::npos);
    }
  }

  TEST_CASE("lay_out: 100,000 values take less than quadratic time") {
    std::mt19937 random(2);
    for (const uint64_t chunk : {uint64_t{0}, uint64_t{1} << 20}) {
      auto objects = random_objects(random, 100000, 100000, 100000);
      // Half of them live for a while, as what a gradient needs does.
      for (size_t i = 0; i < objects.size(); i += 2)
        objects[i].last = std::min<uint32_t>(99999, objects[i].first + random() % 500);
      for (ArenaObject& o : objects)
        if (o.last - o.first > 2000) o.last = o.first + 2000;
      const std::clock_t start = std::clock();
      const ArenaLayout layout = lay_out(objects, chunk);
      const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
      CHECK(seconds < 3);  // of processor time; all pairs would be 5e9
      CHECK(check_layout(objects, chunk) == "");
      CHECK(layout.peak >= layout.bound);
      MESSAGE(
          "peak / bound = ", static_cast<double>(layout.peak) / static_cast<double>(layout.bound),
          ", ", seconds, " s");
    }
  }

  TEST_CASE("lay_out: 100,000 values whose gaps alignment makes useless") {
    std::vector<ArenaObject> objects(100000);
    // Each lives as long as a chain's values live for its gradient.
    for (uint32_t i = 0; i < objects.size(); ++i)
      objects[i] = {.size = 32, .first = i, .last = 2 * 100000 - i};
    const std::clock_t start = std::clock();
    const ArenaLayout layout = lay_out(objects, 0);
    const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    CHECK(seconds < 3);
    CHECK(check_layout(objects, 0) == "");
    CHECK(layout.peak == 64 * 100000 - 32);
  }

  TEST_CASE("check_layout: finds every kind of fault") {
    const std::vector<ArenaObject> good = {{.size = 128, .first = 0, .last = 2, .offset = 0},
                                           {.size = 128, .first = 1, .last = 3, .offset = 128},
                                           {.size = 64, .first = 3, .last = 4, .offset = 0}};
    CHECK(check_layout(good, 0) == "");
    const auto fault = [&](size_t i, uint64_t offset, uint64_t chunk = 0) {
      auto bad = good;
      bad[i].offset = offset;
      return check_layout(bad, chunk);
    };
    CHECK(fault(1, 0).find("overlap") != std::string::npos);    // same place
    CHECK(fault(1, 64).find("overlap") != std::string::npos);   // from the middle
    CHECK(fault(2, 192).find("overlap") != std::string::npos);  // inside, at the last step alone
    CHECK(fault(2, 32).find("aligned") != std::string::npos);
    CHECK(fault(1, 192, 256).find("chunk") != std::string::npos);
    auto backwards = good;
    backwards[0].first = 3;
    CHECK(check_layout(backwards, 0).find("before it begins") != std::string::npos);
  }
}
