// SPDX-License-Identifier: Apache-2.0
// Arguments of the kernels in scan.cu.
#pragma once
#include "arguments.cuh"

TENON_ARGUMENTS
struct ScanShape {
  i64 rows, inner, n;
  u32 pieces, piece;
};
TENON_ARGUMENTS_END
