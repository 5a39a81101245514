// SPDX-License-Identifier: Apache-2.0
// Types with and without the axis of a batch.
#pragma once

#include "ir/graph.hpp"

namespace tenon::core {

Type without_axis(const Type& type, int axis);
Type with_axis(const Type& type, int axis, int64_t length);

}  // namespace tenon::core
