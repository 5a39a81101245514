// SPDX-License-Identifier: Apache-2.0
// When a store releases memory that it borrowed: contexts that read it may be idle, have several plans,
// or run. The memory is unmapped at its release, so a later use crashes.
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "rig.hpp"

using namespace tenon;
using namespace tenon::test;

namespace {

constexpr int64_t kCount = 1024;
constexpr uint64_t kBytes = kCount * sizeof(float);

class Mapped {
 public:
  explicit Mapped(float number)
      : data_(static_cast<float*>(
            mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    REQUIRE(data_ != MAP_FAILED);
    std::fill_n(data_, kCount, number);
  }
  void borrow(Store& store, std::vector<int64_t> dims = {kCount}) {
    const TensorType type(f32, std::move(dims));
    const tenon_tensor t = detail::tensor(type, data_, kBytes);
    const auto release = [](void* user) {
      auto& self = *static_cast<Mapped*>(user);
      munmap(self.data_, kBytes);
      self.released_ = true;
    };
    detail::check(tenon_store_borrow(store.handle(), TENON_SPACE_WEIGHT, detail::str("w"), &t,
                                     release, this));
  }
  bool released() const { return released_; }

 private:
  float* data_;
  std::atomic<bool> released_{false};
};

// y = w + w, and with `update`, w becomes y.
Graph doubling(bool update = false) {
  Graph g;
  const Value w = g.weight("w", {f32, {kCount}}), y = w + w;
  g.output("y", y);
  if (update) g.update(w, y);
  return g;
}

bool all_are(const std::vector<float>& v, float number) {
  return std::ranges::all_of(v, [&](float x) { return x == number; });
}
float first_of(Context& run) {
  run.run();
  const auto y = run.get<float>("y");
  CHECK(all_are(y, y[0]));
  return y[0];
}

const std::vector<float> kThrees(kCount, 3);
const char* const kDevices[] = {"cpu:0", "template:0"};

}  // namespace

TEST_SUITE("borrow") {
  TEST_CASE("idle contexts let go of an entry that is set, borrowed anew or updated") {
    for (const char* device : kDevices) {
      CAPTURE(device);
      Mapped a(1), b(2), c(4);
      Store store(runtime());
      a.borrow(store);
      const Executable exe(runtime(), doubling(), store, {.device = device});
      Context one(exe), other(exe);
      CHECK(first_of(one) == 2);
      CHECK(first_of(other) == 2);
      CHECK(!a.released());
      store.set(TENON_SPACE_WEIGHT, "w", {f32, {kCount}}, kThrees.data(), kBytes);
      CHECK(a.released());
      CHECK(first_of(one) == 6);

      b.borrow(store);
      CHECK(first_of(one) == 4);
      c.borrow(store);
      CHECK(b.released());
      CHECK(first_of(one) == 8);
      CHECK(first_of(other) == 8);

      const Executable updating(runtime(), doubling(true), store, {.device = device});
      Context step(updating);
      CHECK(first_of(step) == 8);
      CHECK(c.released());
      CHECK(first_of(other) == 16);
    }
  }

  TEST_CASE("an entry that is removed or gets another type") {
    for (const char* device : kDevices) {
      CAPTURE(device);
      Mapped a(1), b(2), c(3);
      Store store(runtime());
      a.borrow(store);
      const Executable exe(runtime(), doubling(), store, {.device = device});
      Context run(exe);
      CHECK(first_of(run) == 2);
      store.remove(TENON_SPACE_WEIGHT, "w");
      CHECK(a.released());
      CHECK_THROWS_AS(run.run(), Error);
      b.borrow(store);
      CHECK(first_of(run) == 4);
      c.borrow(store, {1, kCount});
      CHECK(b.released());
      CHECK_THROWS_AS(run.run(), Error);
      store.remove(TENON_SPACE_WEIGHT, "w");
      CHECK(c.released());
    }
  }

  TEST_CASE("a context with several plans lets go of all") {
    Mapped a(1);
    Store store(runtime());
    a.borrow(store);
    Graph g;
    const Value x = g.input("x", {f32, {g.symbol("n"), 1}}), w = g.weight("w", {f32, {kCount}});
    g.output("y", x + w);
    const Executable exe(runtime(), g, store, {.device = "cpu:0"});
    Context run(exe);
    for (const int64_t n : {1, 2, 3}) {
      run.set("x", {n, 1}, std::vector<float>(static_cast<size_t>(n), 1));
      CHECK(first_of(run) == 2);
    }
    store.set(TENON_SPACE_WEIGHT, "w", {f32, {kCount}}, kThrees.data(), kBytes);
    CHECK(a.released());
    for (const int64_t n : {2, 1}) {
      run.set("x", {n, 1}, std::vector<float>(static_cast<size_t>(n), 1));
      CHECK(first_of(run) == 4);
    }
  }

  TEST_CASE("a run under way keeps an entry that is removed") {
    // They outlive the runs: the memory is released a moment after a run is seen to end.
    std::vector<std::unique_ptr<Mapped>> all;
    for (int i = 0; i < 200; ++i) {
      all.push_back(std::make_unique<Mapped>(1));
      Store store(runtime());
      all.back()->borrow(store);
      const Executable exe(runtime(), doubling(), store, {.device = "cpu:0"});
      Context run(exe);
      run.run_async();
      store.remove(TENON_SPACE_WEIGHT, "w");
      run.wait();
      CHECK(all_are(run.get<float>("y"), 2));
    }
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    for (const auto& mapped : all) {
      while (!mapped->released() && std::chrono::steady_clock::now() < end)
        std::this_thread::yield();
      CHECK(mapped->released());
    }
  }

  TEST_CASE("threads run while the entry changes") {
    constexpr int kChanges = 300;
    std::vector<std::unique_ptr<Mapped>> all;
    for (int i = 0; i < kChanges; ++i) all.push_back(std::make_unique<Mapped>(1 + i % 7));
    {
      Store store(runtime());
      all[0]->borrow(store);
      const Executable exe(runtime(), doubling(), store, {.device = "cpu:0"});
      std::atomic<bool> end{false}, good{true};
      std::vector<std::thread> threads;
      for (int t = 0; t < 2; ++t)
        threads.emplace_back([&] {
          Context run(exe);
          while (!end) {
            try {
              run.run();
              const auto y = run.get<float>("y");
              if (!all_are(y, y[0])) good = false;
            } catch (const Error& e) {
              if (e.code() != TENON_NOT_FOUND && e.code() != TENON_UNDEFINED_STATE) good = false;
            }
          }
        });
      for (int i = 1; i < kChanges; ++i) {
        if (i % 3 == 0) store.remove(TENON_SPACE_WEIGHT, "w");
        all[static_cast<size_t>(i)]->borrow(store);
        if (i % 3 != 0) CHECK(all[static_cast<size_t>(i - 1)]->released());
      }
      end = true;
      for (std::thread& t : threads) t.join();
      CHECK(good);
    }
    CHECK(std::ranges::all_of(all, [](const auto& m) { return m->released(); }));
  }
}
