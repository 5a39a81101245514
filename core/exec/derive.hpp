// SPDX-License-Identifier: Apache-2.0
// Makes a derived weight of a plan from the dense one.
#pragma once

#include "plan/plan.hpp"

namespace tenon::core {

// Both buffers are of the derived weight's device. Returns when it is done.
void derive(const Plan& plan, const PlannedDerived& planned, Buffer& dense, Buffer& derived);

}  // namespace tenon::core
