// SPDX-License-Identifier: Apache-2.0
// The store's names one by one. What a call allocates is counted, so that the cost of a name is
// seen without a clock.
#include <atomic>
#include <cstdlib>
#include <new>

#include "rig.hpp"

namespace {
std::atomic<uint64_t> allocations{0};
}  // namespace

// Not inlined, so that the compiler sees no new beside a free.
[[gnu::noinline]] void* operator new(size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size ? size : 1)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

using namespace tenon;
using namespace tenon::test;

namespace {

std::string name_of(int64_t i) {
  const std::string digits = std::to_string(i);
  return "tensor." + std::string(6 - digits.size(), '0') + digits;
}

// Of tenon_store_name alone, for each name of a store of so many.
double allocations_per_name(const Runtime& runtime, int64_t count) {
  Store store(runtime);
  for (int64_t i = count; i-- > 0;)
    store.set<int32_t>(TENON_SPACE_WEIGHT, name_of(i), {1}, {static_cast<int32_t>(i)});
  const uint64_t before = allocations;
  const std::vector<std::string> names = store.names(TENON_SPACE_WEIGHT);
  const double each = static_cast<double>(allocations - before) / static_cast<double>(count);
  REQUIRE(static_cast<int64_t>(names.size()) == count);
  for (int64_t i = 0; i < count; ++i) REQUIRE(names[static_cast<size_t>(i)] == name_of(i));
  return each;
}

}  // namespace

TEST_SUITE("store") {
  TEST_CASE("names: a name costs the same in a large store as in a small one") {
    const Runtime runtime;
    const double small = allocations_per_name(runtime, 100),
                 large = allocations_per_name(runtime, 10000);
    CHECK(small >= 1);  // the allocations are seen
    CHECK(large <= small + 1);
  }

  TEST_CASE("names: the list follows what is set and removed") {
    const Runtime runtime;
    Store store(runtime);
    using Names = std::vector<std::string>;
    const auto weights = [&] { return store.names(TENON_SPACE_WEIGHT); };
    CHECK(weights().empty());
    store.set<float>(TENON_SPACE_WEIGHT, "b", {1}, {1});
    store.set<float>(TENON_SPACE_STATE, "s", {1}, {1});
    CHECK(weights() == Names{"b"});
    store.set<float>(TENON_SPACE_WEIGHT, "a", {1}, {1});
    CHECK(weights() == Names{"a", "b"});
    store.remove(TENON_SPACE_WEIGHT, "b");
    CHECK(weights() == Names{"a"});
    CHECK(store.names(TENON_SPACE_STATE) == Names{"s"});
    tenon_text* name = nullptr;
    tenon_status* status = tenon_store_name(store.handle(), TENON_SPACE_WEIGHT, 1, &name);
    CHECK(tenon_status_code(status) == TENON_NOT_FOUND);
    tenon_status_release(status);
  }
}
