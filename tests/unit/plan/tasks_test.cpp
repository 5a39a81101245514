// SPDX-License-Identifier: Apache-2.0
// The order of regions and transfers, and the check that finds what it forgets.
#include <doctest/doctest.h>

#include "plan/check/race.hpp"

namespace tenon::core {
namespace {

using List = std::vector<uint32_t>;

PlannedRegion region(uint32_t device, std::vector<PlannedCopy> before = {}) {
  PlannedRegion r;
  r.device = device;
  r.before = std::move(before);
  return r;
}
PlannedCopy copy(uint32_t from, uint32_t to, uint32_t made_in) {
  PlannedCopy c;
  c.from_device = from;
  c.to_device = to;
  c.made_in = made_in;
  return c;
}

TEST_SUITE("plan/tasks") {
  TEST_CASE("a transfer waits for the region that makes its value, not for the one before it") {
    const auto tasks = plan_tasks({region(0), region(0), region(1, {copy(0, 1, 0)})});
    REQUIRE(tasks.size() == 4);
    CHECK(tasks[0].after.empty());
    CHECK(tasks[0].behind == kNone);
    CHECK(tasks[1].after.empty());
    CHECK(tasks[1].behind == 0);
    CHECK(tasks[2].copy == 0);
    CHECK(tasks[2].after == List{0});
    CHECK(tasks[3].region == 2);
    CHECK(tasks[3].copy == kNone);
    CHECK(tasks[3].after == List{2});
    CHECK(tasks[3].behind == kNone);
  }

  TEST_CASE("a region waits for transfers of what it may overwrite") {
    // 0: region 0; 1: copy to device 1, 2: region 1; 3: region 2, again on device 0.
    const auto tasks = plan_tasks({region(0), region(1, {copy(0, 1, 0)}), region(0), region(0)});
    CHECK(tasks[3].after == List{1});
    CHECK(tasks[3].behind == 0);
    CHECK(tasks[4].after.empty());  // region 2 has waited for it
    CHECK(tasks[4].behind == 3);
  }

  TEST_CASE("a transfer waits for what lay in its target before") {
    // 0: region 0 on device 1; 1: region 1 on device 0; 2: copy of it, 3: region 2 on device 1.
    const auto after_region = plan_tasks({region(1), region(0), region(1, {copy(0, 1, 1)})});
    CHECK(after_region[2].after == List{0, 1});
    CHECK(after_region[3].after == List{2});
    CHECK(after_region[3].behind == 0);
    // 0: region 0 on device 1; 1: copy to device 0, 2: region 1; 3: copy back, 4: region 2.
    const auto after_copy =
        plan_tasks({region(1), region(0, {copy(1, 0, 0)}), region(1, {copy(0, 1, 1)})});
    CHECK(after_copy[3].after == List{0, 1, 2});
  }

  TEST_CASE("ordered regions wait for one another across devices") {
    std::vector<PlannedRegion> regions = {region(0), region(1)};
    regions[1].ordered_after = 0;
    CHECK(plan_tasks(regions)[1].after == List{0});
  }

  TEST_CASE("find_race: tasks that touch the same bytes of a device are ordered") {
    const Place here{Home::arena, 0, 0};
    const std::vector<std::vector<Access>> accesses = {
        {{here, 8, true, 0}}, {{here, 8, false, 0}, {here, 8, true, 1}}, {{here, 8, true, 0}}};
    std::vector<PlannedTask> tasks(3);
    tasks[1].after = {0};
    tasks[2].after = {0};
    CHECK(find_race(tasks, accesses) == "tasks 1 and 2 touch the same bytes, and neither waits");
    tasks[2].after = {1};
    CHECK(find_race(tasks, accesses).empty());
    tasks[2].after = {};
    tasks[2].behind = 1;
    CHECK(find_race(tasks, accesses).empty());
    tasks[1].after = {};
    CHECK(find_race(tasks, accesses) == "tasks 0 and 1 touch the same bytes, and neither waits");
    // Another device is other memory.
    tasks[2].behind = kNone;
    CHECK(find_race(tasks, {{{here, 8, true, 0}}, {{here, 8, true, 1}}, {{here, 8, true, 2}}})
              .empty());
  }
}

}  // namespace
}  // namespace tenon::core
