// SPDX-License-Identifier: Apache-2.0
// What row_groups.cu gives to products: rows order[starts[e]] to order[starts[e + 1]] are those of
// expert e, behind them lie those of none. No order: rows lie as they are.
#pragma once
#include "common.cuh"

typedef RowTile Tile;
