// SPDX-License-Identifier: Apache-2.0
// What matmul_check.cu takes.
#pragma once
#include "arguments.cuh"

TENON_ARGUMENTS

// An operand of a product whose terms cancel.
struct Cancelling {
  i64 count = 0, ld = 0;    // elements in memory, from one stored row to the next
  i64 k = 0;                // terms of a sum
  u32 in_rows = 0;          // the terms of a sum are a stored row, else a column
  u32 negated = 0;          // it has the other sign in its second half
  u32 one = 0, random = 0;  // bits of the number 1, and those that may be anything
};

TENON_ARGUMENTS_END
