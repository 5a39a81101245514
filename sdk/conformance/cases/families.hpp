// SPDX-License-Identifier: Apache-2.0
// Each family's rows; the stems are those of core/ops.
#pragma once

#include "kit.hpp"

namespace tenon::conform {

void elementwise_cases(Suite& s);

}  // namespace tenon::conform
