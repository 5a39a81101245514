// SPDX-License-Identifier: Apache-2.0
// Compares plans with limits, and learns from those that exceed them.
#include "plan/rooms.hpp"

#include <algorithm>

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

bool Rooms::accept(const Plan& plan, std::span<const double> spread_bytes,
                   std::vector<std::string>& remarks) {
  constexpr int kMostRounds = 6;
  constexpr double kMargin = 0.98;  // what is needed does not grow quite as the estimate does
  const bool several = limits_.size() > 1;
  std::string over;
  bool over_app = false;
  for (uint32_t d = 0; d < limits_.size(); ++d) {
    const auto [limit, of_app] = limits_[d];
    if (limit == 0 || (!several && !of_app)) continue;
    const MemoryNeed need = memory_need(plan, d);
    if (spread_bytes[d] > 0 && need.total() > 0)
      devices_[d].room = kMargin * static_cast<double>(limit) * spread_bytes[d] /
                         static_cast<double>(need.total());
    if (need.total() <= limit) continue;
    over += cat(over.empty() ? "" : "; ", plan.devices[d]->info().id, ": the graph needs ",
                need.text(), ", ", of_app ? "its limit is " : "the device has ", limit);
    over_app |= of_app;
  }
  if (over.empty()) return true;
  if (several && ++round_ < kMostRounds) return false;
  if (over_app) fail(Code::out_of_memory, over);
  remarks.push_back(over);
  return true;
}

}  // namespace tenon::core
