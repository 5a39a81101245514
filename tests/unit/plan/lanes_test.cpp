// SPDX-License-Identifier: Apache-2.0
// Lanes of small programs, of which one knows what is best, and of random ones, checked pair by
// pair; races, which are found where a brute search finds them.
#include <doctest/doctest.h>

#include <algorithm>
#include <ctime>
#include <random>
#include <set>

#include "plan/check/race.hpp"
#include "plan/memory/lanes.hpp"

using namespace tenon::core;

namespace {

constexpr uint64_t kLong = 64 << 20;  // beside it a wait costs nothing

LaneStep step(std::vector<uint32_t> reads, std::vector<uint32_t> writes, uint64_t cost = kLong) {
  return {.reads = std::move(reads), .writes = std::move(writes), .cost = cost};
}

// Which steps are done before which begin, from lanes and waits alone; without one wait, if asked.
class Closure {
 public:
  Closure(const Lanes& lanes, size_t count, size_t without = SIZE_MAX)
      : before_(count, std::vector<bool>(count)) {
    std::vector<std::vector<uint32_t>> direct(count);
    std::vector<uint32_t> tail(lanes.count, UINT32_MAX);
    for (uint32_t s = 0; s < count; ++s) {
      const uint32_t l = lanes.lane.empty() ? 0 : lanes.lane[s];
      if (tail[l] != UINT32_MAX) direct[s].push_back(tail[l]);
      tail[l] = s;
    }
    for (size_t w = 0; w < lanes.waits.size(); ++w)
      if (w != without) direct[lanes.waits[w].step].push_back(lanes.waits[w].after);
    for (uint32_t s = 0; s < count; ++s)
      for (uint32_t d : direct[s]) {
        before_[d][s] = true;
        for (uint32_t e = 0; e < d; ++e)
          if (before_[e][d]) before_[e][s] = true;
      }
  }
  bool operator()(uint32_t a, uint32_t b) const { return before_[a][b]; }

 private:
  std::vector<std::vector<bool>> before_;
};

bool meet(const std::vector<uint32_t>& a, const std::vector<uint32_t>& b) {
  return std::any_of(a.begin(), a.end(),
                     [&](uint32_t x) { return std::find(b.begin(), b.end(), x) != b.end(); });
}
bool conflict(const LaneStep& a, const LaneStep& b) {
  return meet(a.writes, b.writes) || meet(a.writes, b.reads) || meet(a.reads, b.writes) ||
         (a.ordered && b.ordered);
}

// Steps that read a few pieces of memory and write one or two, some of it over again.
std::vector<LaneStep> random_steps(std::mt19937& random, size_t count) {
  const uint32_t ids = random() % 20 + 2;
  std::vector<LaneStep> steps(count);
  for (LaneStep& s : steps) {
    for (uint32_t i = random() % 4; i > 0; --i) s.reads.push_back(random() % ids);
    s.writes.push_back(random() % ids);
    if (random() % 5 == 0) s.writes.push_back(random() % ids);
    s.cost = random() % 3 == 0 ? random() % 1000 : uint64_t{random() % 64} << 20;
    s.work = random() % 8 != 0;
    s.ordered = random() % 16 == 0;
  }
  return steps;
}

}  // namespace

TEST_SUITE("plan/lanes") {
  TEST_CASE("assign: a chain keeps to one lane and waits for nothing") {
    std::vector<LaneStep> chain;
    for (uint32_t i = 0; i < 40; ++i) chain.push_back(step({i}, {i + 1}));
    const Lanes lanes = assign_lanes(chain, 8);
    CHECK(lanes.count == 1);
    CHECK(lanes.lane.empty());
    CHECK(lanes.waits.empty());
  }

  TEST_CASE("assign: a diamond takes two lanes and two waits") {
    const std::vector<LaneStep> diamond = {step({}, {0}), step({0}, {1}), step({0}, {2}),
                                           step({1, 2}, {3})};
    const Lanes lanes = assign_lanes(diamond, 4);
    CHECK(lanes.count == 2);
    CHECK(lanes.lane == std::vector<uint32_t>{0, 0, 1, lanes.lane[3]});
    REQUIRE(lanes.waits.size() == 2);
    CHECK(lanes.waits[0] == LaneWait{2, 0});
    CHECK(lanes.waits[1] == LaneWait{3, lanes.lane[3] == 0 ? 2u : 1u});
  }

  TEST_CASE("assign: a fan fills the lanes that are allowed, each waits for its root once") {
    std::vector<LaneStep> fan = {step({}, {0})};
    for (uint32_t i = 1; i <= 6; ++i) fan.push_back(step({0}, {i}));
    for (const uint32_t most : {1u, 2u, 3u, 6u, 32u}) {
      CAPTURE(most);
      const Lanes lanes = assign_lanes(fan, most);
      CHECK(lanes.count == std::min(most, 6u));
      CHECK(lanes.waits.size() == lanes.count - 1);
      for (const LaneWait& w : lanes.waits) CHECK(w.after == 0);
    }
  }

  TEST_CASE("assign: memory that is written again is waited for") {
    // 2 writes over what 1 reads, and on another lane it would not know.
    const std::vector<LaneStep> steps = {step({}, {0}), step({0}, {1}), step({5}, {0})};
    const Lanes lanes = assign_lanes(steps, 4);
    const Closure before(lanes, steps.size());
    CHECK(before(0, 2));
    CHECK(before(1, 2));
  }

  TEST_CASE("assign: steps without work wait for nothing and nobody waits for them") {
    std::vector<LaneStep> steps = {step({}, {0}), step({0}, {1}), step({0}, {2}), step({1}, {3})};
    steps[1].work = false;
    const Lanes lanes = assign_lanes(steps, 4);
    for (const LaneWait& w : lanes.waits) CHECK((w.step != 1 && w.after != 1));
  }

  TEST_CASE("assign: random programs, every conflict ordered, no wait too many") {
    std::mt19937 random(1);
    size_t parallel = 0;
    for (int round = 0; round < 400; ++round) {
      const auto steps = random_steps(random, random() % 60 + 2);
      const uint32_t most = random() % 6 + 1;
      CAPTURE(round);
      const Lanes lanes = assign_lanes(steps, most);
      REQUIRE(lanes.count <= most);
      if (lanes.count > 1) REQUIRE(lanes.lane.size() == steps.size());
      for (uint32_t l : lanes.lane) REQUIRE(l < lanes.count);
      const Closure before(lanes, steps.size());
      const LaneOrder order(lanes, steps.size());
      std::vector<uint32_t> worked;
      for (uint32_t b = 0; b < steps.size(); ++b) {
        uint32_t latest = b;
        for (uint32_t p = 0; p < steps.size(); ++p) {
          REQUIRE(order.before(b, p) == before(b, p));
          if (!before(b, p)) latest = std::max(latest, p);
        }
        REQUIRE(order.latest_beside(b) == latest);
        if (!steps[b].work) continue;
        for (uint32_t a : worked) {
          if (conflict(steps[a], steps[b])) REQUIRE(before(a, b));
          if (!before(a, b)) ++parallel;
        }
        if (worked.size() >= 2 * kLaneBlock)
          REQUIRE(before(worked[worked.size() - 2 * kLaneBlock], b));
        worked.push_back(b);
      }
      for (size_t w = 0; w < lanes.waits.size(); ++w) {
        const LaneWait& wait = lanes.waits[w];
        REQUIRE(lanes.lane[wait.step] != lanes.lane[wait.after]);
        REQUIRE_FALSE(Closure(lanes, steps.size(), w)(wait.after, wait.step));
      }
    }
    CHECK(parallel > 1000);
  }

  TEST_CASE("assign: 100,000 steps take less than quadratic time") {
    std::mt19937 random(3);
    std::vector<LaneStep> steps(100'000);
    for (uint32_t i = 0; i < steps.size(); ++i) {
      const auto near = static_cast<uint32_t>(i == 0 ? 0 : i - 1 - random() % std::min(i, 30u));
      const auto any = static_cast<uint32_t>(random() % (i + 1));
      steps[i] = step({near, any}, {i});
    }
    const std::clock_t start = std::clock();
    const Lanes lanes = assign_lanes(steps, 4);
    const LaneOrder order(lanes, steps.size());
    for (uint32_t i = 0; i < steps.size(); ++i) order.latest_beside(i);
    CHECK(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC < 3);
    CHECK(lanes.count > 1);
  }
}

namespace {

// As find_race, pair by pair.
bool races(const Lanes& lanes, const std::vector<std::vector<Access>>& steps) {
  const Closure before(lanes, steps.size());
  for (uint32_t b = 0; b < steps.size(); ++b)
    for (uint32_t a = 0; a < b; ++a) {
      if (before(a, b)) continue;
      for (const Access& x : steps[a])
        for (const Access& y : steps[b])
          if (x.size && y.size && (x.writes || y.writes) && x.place.home == y.place.home &&
              x.place.index == y.place.index && x.place.offset < y.place.offset + y.size &&
              y.place.offset < x.place.offset + x.size)
            return true;
    }
  return false;
}

}  // namespace

TEST_SUITE("plan/race") {
  TEST_CASE("find_race: random accesses, what a search of all pairs finds") {
    std::mt19937 random(2);
    int found = 0, clean = 0;
    for (int round = 0; round < 2000; ++round) {
      const size_t count = random() % 8 + 2;
      Lanes lanes{.count = 3};
      std::vector<std::vector<Access>> steps(count);
      for (uint32_t s = 0; s < count; ++s) {
        lanes.lane.push_back(random() % 3);
        if (s > 0 && random() % 2 == 0) lanes.waits.push_back({s, uint32_t(random() % s)});
        for (uint32_t i = random() % 3; i > 0; --i)
          steps[s].push_back({{random() % 8 == 0 ? Home::none : Home::arena, uint32_t(random() % 2),
                               random() % 200},
                              random() % 30,
                              random() % 2 == 0});
      }
      for (auto& list : steps)
        for (Access& a : list)
          if (a.place.home == Home::none) a.size = 0;
      const bool expected = races(lanes, steps);
      (expected ? found : clean) += 1;
      CAPTURE(round);
      REQUIRE(!find_race(lanes, steps).empty() == expected);
    }
    CHECK(found > 200);
    CHECK(clean > 200);
  }

  TEST_CASE("find_race: names both steps") {
    const Lanes lanes{.count = 2, .lane = {0, 1}};
    const Place here{Home::arena, 0, 64};
    CHECK(find_race(lanes, {{{here, 8, true}}, {{here, 8, false}}}) ==
          "steps 0 and 1 touch the same bytes, and neither waits");
    CHECK(find_race(lanes, {{{here, 8, false}}, {{here, 8, false}}}) == "");
    const Lanes waits{.count = 2, .lane = {0, 1}, .waits = {{1, 0}}};
    CHECK(find_race(waits, {{{here, 8, true}}, {{here, 8, false}}}) == "");
  }
}
