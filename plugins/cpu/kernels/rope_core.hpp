// SPDX-License-Identifier: Apache-2.0
// Rotation of many heads, dispatched by instruction set.
#pragma once

#include <cstdint>

#include "tenon/types.h"

namespace tenon::cpu {

struct RopeRows {
  tenon_dtype dtype;
  int64_t dim, half;  // elements of a head; rotated pairs
  bool interleaved, inverse;
  int64_t steps, heads;  // rows are ordered by batch, then by steps and heads as the layout says
  bool heads_first;
  const void *cos, *sin;     // rows of `half` elements, in the accumulation type
  const int64_t* positions;  // table row of each (batch, step); nullptr: offset + step
  int64_t offset;
  bool nontemporal;  // for y
};

// Rotates rows [begin, end) of x into y, which may be x.
void rope_turn(const RopeRows& r, const void* x, void* y, int64_t begin, int64_t end);

}  // namespace tenon::cpu
