// SPDX-License-Identifier: Apache-2.0
// The parallel loop and its arenas.
#include "parallel.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

namespace tenon::cpu {
namespace {

TEST_SUITE("cpu/parallel") {
  TEST_CASE("parallel_for: every index once, borders at multiples of the grain") {
    const Workers workers;
    for (const int threads : {1, 2, 5, 20}) {  // also more than there are stretches of pieces
      Arena arena(threads);
      arena.execute([&] {
        CHECK(width() == threads);
        for (const int64_t n : {0, 1, 7, 64, 1000}) {
          for (const int64_t grain : {1, 3, 64, 5000}) {
            std::vector<int> seen(n, 0);  // plain: what pieces write is seen after the loop
            std::atomic<bool> bordered = true;
            parallel_for(n, grain, [&](int64_t begin, int64_t end) {
              if (begin % grain != 0 || (end % grain != 0 && end != n) || begin >= end)
                bordered = false;
              for (int64_t i = begin; i < end; ++i) ++seen[i];
            });
            CHECK(bordered);
            CHECK(seen == std::vector<int>(n, 1));
          }
        }
      });
    }
  }

  TEST_CASE("parallel_for: what was written before it is seen inside") {
    const Workers workers;
    Arena arena(4);
    arena.execute([&] {
      std::vector<int64_t> values(4096);
      int64_t factor = 0;
      for (int round = 1; round <= 50; ++round) {
        factor = round;
        parallel_for(4096, 16, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) values[i] += factor;
        });
      }
      CHECK(values == std::vector<int64_t>(4096, 50 * 51 / 2));
    });
  }

  TEST_CASE("parallel_for_slots: no two pieces at once share a slot") {
    const Workers workers;
    Arena arena(4);
    for (const int slots : {1, 2, 3}) {
      std::vector<std::atomic<int>> inside(slots);
      std::atomic<bool> alone = true;
      arena.execute([&] {
        parallel_for_slots(500, 1, slots, [&](int slot, int64_t, int64_t) {
          if (slot < 0 || slot >= slots || inside[slot]++ != 0) alone = false;
          std::this_thread::yield();
          --inside[slot];
        });
      });
      CHECK(alone);
    }
  }

  TEST_CASE("parallel_for: a loop within a loop") {
    const Workers workers;
    Arena arena(3);
    std::atomic<int64_t> sum = 0;
    arena.execute([&] {
      parallel_for(20, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
          parallel_for(100, 10, [&](int64_t from, int64_t to) { sum += to - from; });
      });
    });
    CHECK(sum == 2000);
  }

  TEST_CASE("an exception of a piece comes out of the loop and of the arena") {
    const Workers workers;
    Arena arena(4);
    const auto failing = [&] {
      arena.execute([&] {
        parallel_for(1000, 1, [&](int64_t begin, int64_t end) {
          if (begin <= 700 && 700 < end) throw std::runtime_error("piece");
        });
      });
    };
    for (int i = 0; i < 20; ++i) CHECK_THROWS_WITH(failing(), "piece");
  }

  TEST_CASE("two threads in one arena get their own answers") {
    const Workers workers;
    Arena arena(2);
    std::vector<int64_t> sums(3);
    std::vector<std::thread> threads;
    for (int64_t t = 0; t < 3; ++t)
      threads.emplace_back([&, t] {
        for (int round = 0; round < 100; ++round)
          arena.execute([&] {
            std::vector<int64_t> part(64);
            parallel_for(64, 1, [&](int64_t begin, int64_t end) {
              for (int64_t i = begin; i < end; ++i) part[i] = t + 1;
            });
            for (const int64_t p : part) sums[t] += p;
          });
      });
    for (std::thread& t : threads) t.join();
    CHECK(sums == std::vector<int64_t>{6400, 12800, 19200});
  }
}

}  // namespace
}  // namespace tenon::cpu
