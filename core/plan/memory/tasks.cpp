// SPDX-License-Identifier: Apache-2.0
// Derives the order of regions and transfers from what the memory layout relies on.
#include "plan/memory/tasks.hpp"

#include <algorithm>

#include "plan/plan.hpp"

namespace tenon::core {
namespace {

class TaskOrder {
 public:
  explicit TaskOrder(const std::vector<PlannedRegion>& regions) : regions_(regions) {
    for (const PlannedRegion& r : regions) {
      grow(r.device);
      for (const PlannedCopy& c : r.before) grow(c.from_device);
    }
  }

  std::vector<PlannedTask> run() {
    for (uint32_t r = 0; r < regions_.size(); ++r) add_region(r);
    return std::move(tasks_);
  }

 private:
  struct Departure {  // a copy from a device
    uint32_t region;  // that needs it
    uint32_t task;
  };
  struct OnDevice {
    std::vector<uint32_t> regions;      // in order
    std::vector<Departure> departures;  // likewise
  };

  void grow(uint32_t device) {
    if (on_.size() <= device) on_.resize(device + 1);
  }

  void add_region(uint32_t r) {
    const PlannedRegion& region = regions_[r];
    OnDevice& here = on_[region.device];
    PlannedTask task{.region = r};
    for (uint32_t c = 0; c < region.before.size(); ++c) task.after.push_back(add_copy(r, c));
    const uint32_t before = here.regions.empty() ? kNone : here.regions.back();
    if (before != kNone) task.behind = task_of_region_[before];
    add_departures(here, before, r, task.after);
    if (region.ordered_after != kNone) task.after.push_back(task_of_region_[region.ordered_after]);
    task_of_region_.push_back(add(std::move(task)));
    here.regions.push_back(r);
  }

  uint32_t add_copy(uint32_t r, uint32_t c) {
    const PlannedCopy& copy = regions_[r].before[c];
    PlannedTask task{.region = r, .copy = c, .after = {task_of_region_[copy.made_in]}};
    // Its target may lie where a value of an earlier region of that device lay, or one that was
    // copied from there before.
    const OnDevice& there = on_[copy.to_device];
    const auto later = std::ranges::upper_bound(there.regions, copy.made_in);
    const uint32_t before = later == there.regions.begin() ? kNone : *std::prev(later);
    if (before != kNone && before != copy.made_in) task.after.push_back(task_of_region_[before]);
    add_departures(there, before, copy.made_in, task.after);
    const uint32_t id = add(std::move(task));
    on_[copy.from_device].departures.push_back({r, id});
    return id;
  }

  // The copies from a device for regions after `first`, up to `last`: what they read may be
  // overwritten afterwards. Those for earlier regions ended before `first` began.
  void add_departures(const OnDevice& device, uint32_t first, uint32_t last,
                      std::vector<uint32_t>& after) const {
    for (auto d = device.departures.rbegin(); d != device.departures.rend(); ++d) {
      if (first != kNone && d->region <= first) break;
      if (d->region <= last) after.push_back(d->task);
    }
  }

  uint32_t add(PlannedTask task) {
    std::ranges::sort(task.after);
    task.after.erase(std::ranges::unique(task.after).begin(), task.after.end());
    tasks_.push_back(std::move(task));
    return static_cast<uint32_t>(tasks_.size() - 1);
  }

  const std::vector<PlannedRegion>& regions_;
  std::vector<PlannedTask> tasks_;
  std::vector<uint32_t> task_of_region_;
  std::vector<OnDevice> on_;
};

}  // namespace

std::vector<PlannedTask> plan_tasks(const std::vector<PlannedRegion>& regions) {
  return TaskOrder(regions).run();
}

}  // namespace tenon::core
