// SPDX-License-Identifier: Apache-2.0
// The memory that a plan may use on each device that the app named, and what one plan that needs
// too much tells about the next.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "plan/plan.hpp"

namespace tenon::core {

class Rooms {
 public:
  Rooms(const std::vector<std::shared_ptr<Device>>& devices, const PlanOptions& options);

  // For spread(). Devices that follow each other and are of one kind are a tier.
  std::span<const SpreadDevice> devices() const { return devices_; }

  // Does the plan fit? If not, and another one may, corrects the rooms by what it needs where so
  // many bytes were spread. Throws out_of_memory if no plan was found that keeps the app's limits.
  // Where a device has less memory than the last plan needs, that is only a remark: whether it fits
  // is the device's to say.
  bool accept(const Plan& plan, std::span<const double> spread_bytes,
              std::vector<std::string>& remarks);

 private:
  struct Limit {
    uint64_t bytes = 0;  // 0 = unknown
    bool of_app = false;
  };
  std::vector<Limit> limits_;
  std::vector<SpreadDevice> devices_;
  int round_ = 0;
};

}  // namespace tenon::core
