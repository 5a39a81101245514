// SPDX-License-Identifier: Apache-2.0
// Compares the memory that a plan needs with the limits of its devices, and adjusts each device's
// share for the next plan.
#pragma once

#include <memory>
#include <optional>
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

  // Takes a plan, and what spread() estimated for each device. follows: the plan keeps weights where
  // other executables have them. Returns whether another plan may be better: this one exceeds a
  // limit, or uses a later tier by choice while an earlier one has room. Then the rooms are those
  // for the next plan.
  bool take(Plan plan, std::span<const double> estimate, bool follows);

  // The best plan that was taken. Throws out_of_memory if every plan exceeds a limit of the app. A
  // plan that needs more than a device has is accepted, with a remark and a warning: the device
  // decides.
  Plan best() &&;

 private:
  struct Limit {
    uint64_t bytes = 0;  // 0 = unknown
    bool of_app = false;
  };
  bool learn(uint32_t device, double need, double estimate);

  std::vector<Limit> limits_;
  std::vector<SpreadDevice> devices_;
  std::vector<double> last_estimate_;
  int round_ = 0;
  std::optional<Plan> best_;
  double over_ = 0, later_ = 0;  // of the best plan: bytes over limits, bytes on later tiers
  std::string excess_;           // of the last plan that exceeds a limit of the app
};

}  // namespace tenon::core
