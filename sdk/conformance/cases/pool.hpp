// SPDX-License-Identifier: Apache-2.0
// The parts of the pool family's cases.
#pragma once

#include "cases/families.hpp"

namespace tenon::conform {

void pool_general_rows(Suite& s);  // the op pool

}  // namespace tenon::conform
