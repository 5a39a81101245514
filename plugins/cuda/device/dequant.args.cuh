// SPDX-License-Identifier: Apache-2.0
// Arguments of the kernels in dequant*.cu.
#pragma once
#include "arguments.cuh"

TENON_ARGUMENTS
struct BlockRows {
  const u8* w = nullptr;
  void* y = nullptr;
  IndexAxis rows{};
  i64 units = 0;  // of a row
  u32 parts = 1;  // blocks of threads for a row
};

// y [m,n] = x [m,k] · w [n,k]ᵀ + bias [n]. parts: sums of parts of the terms, where they are added later.
struct BlockProduct {
  const u8* w = nullptr;
  const void *x = nullptr, *bias = nullptr;
  void *y = nullptr, *parts = nullptr;
  i64 n = 0, k = 0, m = 0;
};

// The m rows of x [m,k], put in order in `eights` of them at y.
struct RowsToOrder {
  const void* x = nullptr;
  void* y = nullptr;
  i64 eights = 0, k = 0, m = 0;
};
TENON_ARGUMENTS_END
