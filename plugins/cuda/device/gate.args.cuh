// SPDX-License-Identifier: Apache-2.0
// Arguments of the kernel in gate.cu.
#pragma once
#include "arguments.cuh"

TENON_ARGUMENTS
struct Gate {
  i64 tokens;
  i32 experts, groups, kept, chosen;  // groups and chosen: at most 32
  f32 scaling;
  bool by_max, normalize;
};
TENON_ARGUMENTS_END
