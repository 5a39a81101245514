// SPDX-License-Identifier: Apache-2.0
// The building blocks of gemm.cpp, dispatched by instruction set (gemm_core.cpp).
#pragma once

#include <cstdint>

#include "tenon/types.h"

namespace tenon::cpu {

// Elements per panel of a and of b (gemm_panels.cpp).
struct GemmPanels {
  int64_t rows, cols;
};
GemmPanels gemm_panels(tenon_dtype sum);

// Packs panels of `width` elements (the last one padded with zeros) by `steps` steps, converted to
// the accumulation type. Element (w, s) is data[w * width_stride + s * step_stride]. A panel has
// room for panel_steps.
void gemm_pack(tenon_dtype from, const void* data, int64_t width_stride, int64_t step_stride,
               int64_t width, int64_t steps, int64_t panel, int64_t panel_steps, void* packed);

// c[m x n] = (add: +=) a·b from packed panels with the same number of steps, one panel after the
// other.
struct PanelProduct {
  tenon_dtype sum;
  bool add;
  int64_t m, n, steps;
  const void* a;
  const void* b;
  void* c;
  int64_t ldc;
};
void panel_products(const PanelProduct& product);

// c[m x n] = a·b of operands that are not packed. a's element (i, s) is a[i * a_row + s * a_step];
// one of the strides is 1 (a_row for integers). Columns of b come in panels of kTileVectors vectors
// (gemm-inl.h): row s of panel p starts at b[p * b_panel + s * b_step], and whole vectors are read
// there. Modes: set (c = a·b), add (c += a·b), scale_add (c = c * scale[column] + a·b).
enum class TileMode : uint8_t { set, add, scale_add };
struct TileProduct {
  tenon_dtype sum;
  TileMode mode;
  int64_t m, n, steps;
  const void* a;
  int64_t a_row, a_step;
  const void* b;
  int64_t b_panel, b_step;
  void* c;
  int64_t ldc;
  const void* scale;
};
void tile_products(const TileProduct& product);

// For floats: out[i][j] = sum over k of few[i][k]·many(k, j), for `m` <= kSkinny rows and `n`
// columns. `few` is dense in the accumulation type. `many` is read once, in memory order; one of
// its strides is 1.
inline constexpr int64_t kSkinny = 4;
void gemm_skinny(tenon_dtype from, int64_t m, int64_t n, int64_t k, const void* few,
                 const void* many, int64_t k_stride, int64_t n_stride, void* out, int64_t out_row,
                 int64_t out_col);

}  // namespace tenon::cpu
