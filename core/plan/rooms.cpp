// SPDX-License-Identifier: Apache-2.0
// Judges plans by the limits of devices, and learns from them.
#include "plan/rooms.hpp"

#include <algorithm>
#include <cmath>

#include "base/log.hpp"

namespace tenon::core {

Rooms::Rooms(const std::vector<std::shared_ptr<Device>>& devices, const PlanOptions& options) {
  for (uint32_t d = 0; d < options.named; ++d) {
    const DeviceInfo& info = devices[d]->info();
    const uint64_t limit = d < options.memory_limits.size() ? options.memory_limits[d] : 0;
    limits_.push_back({.bytes = limit ? limit : info.memory_size, .of_app = limit != 0});
    uint32_t tier = 0;
    if (d > 0) tier = devices_.back().tier + (info.kind != devices[d - 1]->info().kind);
    devices_.push_back({.room = static_cast<double>(limits_[d].bytes), .tier = tier});
  }
}

// The room that makes the estimate match the limit, given what the plan really needs. Returns
// whether it changed.
bool Rooms::learn(uint32_t device, double need, double estimate) {
  constexpr double kMargin = 0.98;  // what is needed does not grow quite as the estimate does
  if (estimate <= 0) return false;
  const auto limit = static_cast<double>(limits_[device].bytes);
  const double room = kMargin * limit * estimate / std::max(need, 1.0);
  const double before = std::exchange(devices_[device].room, room);
  return std::abs(room - before) > 0.01 * before;
}

bool Rooms::take(Plan plan, std::span<const double> estimate, bool follows) {
  constexpr int kMostRounds = 6;
  constexpr double kRoomLeft = 0.9;  // of a limit: with less left it is not worth another plan
  const bool several = limits_.size() > 1;
  double over = 0, later = 0;
  bool over_app = false, any_room = false, news = false;
  const bool same = std::ranges::equal(estimate, last_estimate_);
  last_estimate_.assign(estimate.begin(), estimate.end());
  std::string excess;
  for (uint32_t d = 0; d < limits_.size(); ++d) {
    const auto [limit, of_app] = limits_[d];
    if (devices_[d].tier > 0) later += estimate[d];
    if (limit == 0 || (!several && !of_app)) continue;
    const MemoryNeed need = memory_need(plan, d);
    const auto total = static_cast<double>(need.total()), most = static_cast<double>(limit);
    news |= learn(d, total, estimate[d]);
    any_room |= devices_[d].tier < devices_.back().tier && total < kRoomLeft * most;
    if (need.total() <= limit) continue;
    over += total - most;
    over_app |= of_app;
    excess += cat(excess.empty() ? "" : "; ", plan.devices[d]->info().id, ": the graph needs ",
                  need.text(), ", ", of_app ? "its limit is " : "the device has ", limit);
  }
  if (over_app) {
    excess_ = excess;
  } else if (!best_ || over < over_ || (over == over_ && later < later_)) {
    if (!excess.empty()) plan.remarks.push_back(excess);
    best_ = std::move(plan);
    over_ = over, later_ = later;
  }
  const bool may_be_better = over > 0 || (later > 0 && any_room && !follows);
  return several && news && !same && may_be_better && ++round_ < kMostRounds;
}

Plan Rooms::best() && {
  if (!best_) fail(Code::out_of_memory, excess_);
  if (over_ > 0) log(LogLevel::warning, best_->remarks.back());
  return std::move(*best_);
}

}  // namespace tenon::core
