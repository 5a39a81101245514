// SPDX-License-Identifier: Apache-2.0
// The loss curve as a picture.
#pragma once

#include <string>

#include "cli/lm/checkpoint.hpp"

namespace tenon::lm {

// An SVG of training and held-out loss over the steps.
std::string loss_chart(const TrainingState& state);

}  // namespace tenon::lm
