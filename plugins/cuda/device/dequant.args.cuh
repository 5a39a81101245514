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

// Which matrix of w a row of x meets, and by what its results are multiplied: dequant_groups.cuh.
struct GroupsOfRows {
  const void *ids = nullptr, *factors = nullptr;
  const RowTile* tiles = nullptr;
  const i32* order = nullptr;
  i64 experts = 0;
  ErrorSink sink{};
};

// y [m,n] = x [m,k] · w [n,k]ᵀ + bias [n]; of grouped products w is [experts,n,k], and there is no bias.
// parts: sums of parts of the terms, where they are added later. gamma, residual, sum, eps: of the norm
// of a row, by dequant_row.cu alone.
struct BlockProduct {
  const u8* w = nullptr;
  const void *x = nullptr, *bias = nullptr;
  void *y = nullptr, *parts = nullptr;
  i64 n = 0, k = 0, m = 0;
  const void *gamma = nullptr, *residual = nullptr;
  void* sum = nullptr;
  f64 eps = 0;
  GroupsOfRows groups{};
};

// The m rows of x [m,k], put in order in `eights` of them at y.
struct RowsToOrder {
  const void* x = nullptr;
  void* y = nullptr;
  i64 eights = 0, k = 0, m = 0;
  GroupsOfRows groups{};
};
TENON_ARGUMENTS_END
