// SPDX-License-Identifier: Apache-2.0
// The building blocks of gemm.cpp, dispatched by instruction set (gemm_core.cpp).
#pragma once

#include <cstdint>

#include "tenon/types.h"

namespace tenon::cpu {

// Elements per panel of a and of b (gemm_panels.cpp), and floats per vector.
struct GemmPanels {
  int64_t rows, cols, lanes;
};
GemmPanels gemm_panels(tenon_dtype sum);

// The order in which a sum of `steps` terms adds them. In order: with `lanes` 1, one after the
// other. By lanes: step s belongs to lane s % lanes; each lane adds its terms, then the lanes are
// added one after the other. A dot product of contiguous operands adds by lanes of a vector.
struct LaneOrder {
  int64_t steps, lanes;
  int64_t begin(int64_t lane) const {
    return lane * (steps / lanes) + (lane < steps % lanes ? lane : steps % lanes);
  }
  // Where packed panels have step s: lane by lane.
  int64_t position(int64_t s) const { return begin(s % lanes) + s / lanes; }
};

// Packs panels of `width` elements (the last one padded with zeros) by `steps` steps, converted to
// the accumulation type. Element (w, s) is data[w * width_stride + s * step_stride]. A panel has
// room for panel_steps. With `lanes` above 1, steps follow the LaneOrder of `steps`; it requires
// floats, step_stride 1 and panel_steps == steps.
void gemm_pack(tenon_dtype from, const void* data, int64_t width_stride, int64_t step_stride,
               int64_t width, int64_t steps, int64_t panel, int64_t panel_steps, void* packed,
               int64_t lanes = 1);

// c[m x n] = (add: +=) a·b from packed panels with the same number of steps, one panel after the
// other. lanes: of the order in which both are packed.
struct PanelProduct {
  tenon_dtype sum;
  bool add;
  int64_t m, n, steps;
  const void* a;
  const void* b;
  void* c;
  int64_t ldc, lanes = 1;
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
// its strides is 1. Steps are added in parts of `part` steps, part by part, each one as
// panel_products does it: by lanes if k_stride is 1 and `by_lanes`, else in order. (f64 with k_stride
// 1 is always added by lanes, in an order of its own.)
inline constexpr int64_t kSkinny = 4;
struct SkinnyProduct {
  tenon_dtype from;  // of `many`
  int64_t m, n, k, part;
  const void* few;
  const void* many;
  int64_t k_stride, n_stride;
  void* out;
  int64_t out_row, out_col;
  bool by_lanes = false;
};
void gemm_skinny(const SkinnyProduct& product);

}  // namespace tenon::cpu
