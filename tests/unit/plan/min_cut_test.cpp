// SPDX-License-Identifier: Apache-2.0
// Minimum cuts next to all cuts of small graphs, and on long chains.
#include "plan/rewrite/min_cut.hpp"

#include <doctest/doctest.h>

#include <random>

using namespace tenon::core;

namespace {

struct Pair {
  uint32_t first, second;
  int cost;  // -1: never
};

// Of a cut; -1 if it is forbidden.
int cost_of(uint32_t second_side, const std::vector<std::pair<int, int>>& sides,
            const std::vector<Pair>& pairs) {
  int sum = 0;
  for (uint32_t n = 0; n < sides.size(); ++n)
    sum += second_side >> n & 1 ? sides[n].second : sides[n].first;
  for (const Pair& p : pairs) {
    if (second_side >> p.first & 1 || !(second_side >> p.second & 1)) continue;
    if (p.cost < 0) return -1;
    sum += p.cost;
  }
  return sum;
}

}  // namespace

TEST_SUITE("plan/min_cut") {
  TEST_CASE("cut: no other cut of a random graph costs less") {
    std::mt19937 random(7);
    for (int round = 0; round < 400; ++round) {
      const uint32_t nodes = 1 + random() % 9;
      std::vector<std::pair<int, int>> sides;
      std::vector<Pair> pairs;
      MinCut cut(nodes);
      for (uint32_t n = 0; n < nodes; ++n) {
        sides.emplace_back(random() % 20, random() % 20);
        cut.add_sides(n, sides[n].first, sides[n].second);
      }
      for (uint32_t k = random() % (3 * nodes); k-- > 0;) {
        const auto any = [&](uint32_t count) { return static_cast<uint32_t>(random() % count); };
        const Pair p{any(nodes), any(nodes), any(8) ? static_cast<int>(any(12)) : -1};
        if (p.first == p.second) continue;
        pairs.push_back(p);
        if (p.cost < 0)
          cut.never(p.first, p.second);
        else
          cut.add_pair(p.first, p.second, p.cost);
      }
      const std::vector<bool> second = cut.run();
      uint32_t found = 0;
      for (uint32_t n = 0; n < nodes; ++n) found |= static_cast<uint32_t>(second[n]) << n;
      int least = -1;
      for (uint32_t c = 0; c < 1u << nodes; ++c)
        if (const int cost = cost_of(c, sides, pairs); cost >= 0 && (least < 0 || cost < least))
          least = cost;
      CHECK(cost_of(found, sides, pairs) == least);
    }
  }

  TEST_CASE("cut: one that is cut short obeys what is forbidden") {
    std::mt19937 random(5);
    constexpr uint32_t kNodes = 500;
    for (const uint64_t most_work : {0, 1, 2}) {
      MinCut cut(kNodes);
      std::vector<std::pair<uint32_t, uint32_t>> forbidden;
      for (uint32_t n = 0; n < kNodes; ++n) {
        cut.add_sides(n, static_cast<double>(random() % 20), static_cast<double>(random() % 20));
        if (n == 0) continue;
        cut.add_pair(static_cast<uint32_t>(random() % n), n, static_cast<double>(random() % 30));
        if (n % 5 == 0) {
          forbidden.emplace_back(n, static_cast<uint32_t>(random() % n));
          cut.never(forbidden.back().first, forbidden.back().second);
        }
      }
      const std::vector<bool> second = cut.run(most_work);
      for (const auto& [a, b] : forbidden) CHECK((second[a] || !second[b]));
    }
  }

  TEST_CASE("cut: a chain that holds one end takes in what it pays for") {
    // The first node must be on the first side; each other one gains 1 on the second side.
    constexpr uint32_t kNodes = 100000;
    for (const double link : {1000.5, 99990.5}) {
      MinCut cut(kNodes);
      cut.add_sides(0, 0, 1e6);
      for (uint32_t n = 1; n < kNodes; ++n) {
        cut.add_sides(n, 1, 0);
        cut.add_pair(n - 1, n, n < 100 ? link : 2 * link);
      }
      const std::vector<bool> second = cut.run();
      CHECK(!second[0]);
      CHECK(second[1]);
      CHECK(second[kNodes - 1]);
    }
    MinCut whole(kNodes);
    whole.add_sides(0, 0, 1e6);
    for (uint32_t n = 1; n < kNodes; ++n) {
      whole.add_sides(n, 1, 0);
      whole.add_pair(n - 1, n, 2e5);
    }
    CHECK(!whole.run()[kNodes - 1]);
  }
}
