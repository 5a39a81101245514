// SPDX-License-Identifier: Apache-2.0
// Helpers for backends: the cache of built kernels and the table of handles.
#include <doctest/doctest.h>

#include <tenon/build_cache.hpp>
#include <tenon/handle_map.hpp>

#include <latch>
#include <thread>

namespace tenon::test {

namespace {

using sdk::Failure;
using Cache = sdk::BuildCache<std::string>;

void in_threads(int count, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int t = 0; t < count; ++t) threads.emplace_back(body, t);
  for (auto& t : threads) t.join();
}
template <class Body>
std::string thrown_by(Body body) {
  try {
    body();
  } catch (const std::exception& e) {
    return e.what();
  }
  return "nothing";
}

// Counts the objects that live.
struct Counted {
  explicit Counted(int* live) : live_(live) { ++*live_; }
  Counted(Counted&& other) noexcept : live_(other.live_) { ++*live_; }
  ~Counted() { --*live_; }

 private:
  int* live_;
};

}  // namespace

TEST_SUITE("abi/helpers") {
  TEST_CASE("build cache: threads that want one key share one build") {
    Cache cache;
    std::atomic<int> builds = 0;
    std::latch start(8);
    std::vector<const std::string*> got(8);
    std::vector<Cache::EntryPtr> entries(8);
    in_threads(8, [&](int t) {
      const auto k = static_cast<size_t>(t);
      start.arrive_and_wait();
      entries[k] = cache.entry("a", [&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        return "built " + std::to_string(++builds);
      });
      got[k] = &entries[k]->build();
    });
    CHECK(builds == 1);
    CHECK(cache.size() == 1);
    for (const std::string* s : got) CHECK(s == got[0]);
    CHECK(*got[0] == "built 1");
    CHECK(entries[3]->built() == "built 1");
  }

  TEST_CASE("build cache: a build does not hold up another key, nor entries of its own key") {
    Cache cache;
    std::latch second(1);
    const auto a = cache.entry("a", [&] {
      second.wait();  // for the build of b
      return std::string("a");
    });
    const auto b = cache.entry("b", [] { return std::string("b"); });
    std::thread thread([&] { a->build(); });
    CHECK(cache.entry("a", {}) == a);
    CHECK_FALSE(a->is_built());
    CHECK(b->build() == "b");
    second.count_down();
    thread.join();
    CHECK(a->built() == "a");
  }

  TEST_CASE("build cache: a failure is remembered, unless it may pass") {
    Cache cache;
    int builds = 0;
    const auto broken = cache.entry("broken", [&]() -> std::string {
      throw Failure(TENON_UNSUPPORTED, "line " + std::to_string(++builds));
    });
    for (int k = 0; k < 3; ++k) {
      CHECK(thrown_by([&] { broken->build(); }) == "line 1");
      CHECK(thrown_by([&] { cache.entry("broken", {})->build(); }) == "line 1");
    }
    CHECK(builds == 1);
    CHECK_FALSE(broken->is_built());

    for (const tenon_code code : {TENON_OUT_OF_MEMORY, TENON_DEVICE_LOST, TENON_CANCELLED}) {
      int attempts = 0;
      const auto passing = cache.entry("passing " + std::to_string(code), [&] {
        if (++attempts < 3) throw Failure(code, "attempt " + std::to_string(attempts));
        return "attempt " + std::to_string(attempts);
      });
      CHECK(thrown_by([&] { passing->build(); }) == "attempt 1");
      CHECK(thrown_by([&] { passing->build(); }) == "attempt 2");
      CHECK(passing->build() == "attempt 3");
      CHECK(passing->build() == "attempt 3");
      CHECK(attempts == 3);
    }
    int attempts = 0;
    const auto full = cache.entry("full", [&] {
      if (++attempts == 1) throw std::bad_alloc();
      return std::string("room");
    });
    CHECK_THROWS_AS(full->build(), std::bad_alloc);
    CHECK(full->build() == "room");
  }

  TEST_CASE("build cache: what was not built cannot be used") {
    Cache cache;
    const auto entry = cache.entry("a", [] { return std::string("a"); });
    CHECK(thrown_by([&] {
            static_cast<void>(entry->built());
          }).find("a kernel runs before its code is built") == 0);
  }

  TEST_CASE("build cache: entries in use stay; of the others, the ones asked for last") {
    int live = 0;
    sdk::BuildCache<Counted> cache(3);
    const auto build = [&] { return Counted(&live); };
    const auto used = cache.entry("used", build);
    used->build();
    for (const char* key : {"a", "b", "a", "c"}) cache.entry(key, build)->build();
    CHECK(cache.size() == 3);  // used, a, c
    CHECK(live == 3);
    CHECK(cache.entry("a", {})->is_built());
    CHECK(cache.entry("c", {})->is_built());
    CHECK_FALSE(cache.entry("b", build)->is_built());  // drops a
    CHECK(live == 2);
    CHECK(cache.entry("used", {}) == used);
    cache.drop_unused();
    CHECK(cache.size() == 1);
    CHECK(live == 1);
    CHECK(cache.entry("used", {}) == used);
  }

  TEST_CASE("build cache: entries outlive the cache") {
    int live = 0;
    auto cache = std::make_unique<sdk::BuildCache<Counted>>();
    auto entry = cache->entry("a", [&] { return Counted(&live); });
    cache.reset();
    entry->build();
    CHECK(live == 1);
    entry.reset();
    CHECK(live == 0);
  }

  TEST_CASE("handle map: a handle finds its object until it is taken, and never again") {
    sdk::HandleMap<std::string> map;
    void *a = map.add("a"), *b = map.add("b");
    CHECK(a != b);
    CHECK(a != nullptr);
    CHECK(map.at(a) == "a");
    map.at(b) += "!";
    CHECK(map.at(b) == "b!");
    const std::string* place = &map.at(a);
    for (int k = 0; k < 1000; ++k) map.add(std::to_string(k));
    CHECK(&map.at(a) == place);
    CHECK(map.size() == 1002);

    CHECK(*map.take(a) == "a");
    CHECK(map.size() == 1001);
    CHECK(map.take(a) == nullptr);
    CHECK(map.find(a) == nullptr);
    CHECK(map.add("c") != a);
    for (const void* wrong :
         {static_cast<const void*>(nullptr), static_cast<const void*>(a),
          static_cast<const void*>(static_cast<char*>(b) + 8), static_cast<const void*>(&map)}) {
      CHECK(map.find(wrong) == nullptr);
      try {
        map.at(wrong);
        FAIL("a wrong handle was accepted");
      } catch (const Failure& e) {
        CHECK(e.code() == TENON_INVALID_ARGUMENT);
        CHECK(e.what() == "a handle of this device: expected one that is in use, got " +
                              std::to_string(reinterpret_cast<uintptr_t>(wrong)));
      }
    }
  }

  TEST_CASE("handle map: threads add, use and take at the same time") {
    sdk::HandleMap<int> map;
    void* shared = map.add(7);
    std::atomic<int> right = 0;
    in_threads(4, [&](int t) {
      for (int k = 0; k < 500; ++k) {
        void* mine = map.add(1000 * t + k);
        right += map.at(mine) == 1000 * t + k && map.at(shared) == 7;
        right += *map.take(mine) == 1000 * t + k;
      }
    });
    CHECK(right == 4000);
    CHECK(map.size() == 1);
  }
}

}  // namespace tenon::test
