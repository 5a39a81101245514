// SPDX-License-Identifier: Apache-2.0
// A step of a recurrent layer: the sums of all gates of a unit stay in registers until its state is
// updated. A sum begins with x and adds the products in the order of h, whatever the tile.
#include "recurrent.hpp"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/recurrent_step.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// after foreach_target
#include "math-inl.h"
#include "simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// Rows of a tile: with four gates, most of the registers.
constexpr int kTileRows = HWY_TARGET <= HWY_AVX3 ? 6 : 2;

// The units of a panel that exist.
struct Units {
  int64_t first;
  size_t count;

  V load(const float* p) const {
    const D d;
    return count == hn::Lanes(d) ? hn::LoadU(d, p + first) : load_n(d, p + first, count);
  }
  void store(V v, float* p) const {
    const D d;
    if (count == hn::Lanes(d))
      hn::StoreU(v, d, p + first);
    else
      store_n(d, v, p + first, count);
  }
};

// What the sum of a gate begins with. The candidate of a gru sums the products alone: its x is added
// after the reset.
template <Cell kCell>
HWY_INLINE V begin(const RecurrentStep& s, const Units& u, int64_t row, int gate) {
  if (kCell == Cell::gru && gate == 2) return s.n_bias ? u.load(s.n_bias) : hn::Zero(D());
  return u.load(s.x + row * s.x_row + s.gate[gate]);
}

// The next state of a row from the sums of its gates.
template <Cell kCell>
HWY_INLINE void finish(const RecurrentStep& s, const Units& u, int64_t row, const float* sums) {
  const D d;
  const auto sum = [&](int g) HWY_ATTR { return hn::LoadU(d, sums + g * hn::Lanes(d)); };
  const float* const h = s.h + row * s.hidden;
  float *const next_h = s.next_h + row * s.hidden, *const y = s.y + row * s.y_row;
  if (s.lengths && s.t >= s.lengths[row]) {
    u.store(u.load(h), next_h);
    u.store(hn::Zero(d), y);
    return;
  }
  V next;
  if constexpr (kCell == Cell::lstm) {
    float* const c = s.c + row * s.hidden;
    const V added = vsigmoid(d, sum(0)).times(vtanh(d, sum(2)));
    const V cell = hn::Add(vsigmoid(d, sum(1)).times(u.load(c)), added);
    u.store(cell, c);
    next = vsigmoid(d, sum(3)).times(vtanh(d, cell));
  } else {
    const V inner = vsigmoid(d, sum(0)).times(sum(2));
    const V fresh = vtanh(d, hn::Add(u.load(s.x + row * s.x_row + s.gate[2]), inner));
    next = hn::Add(fresh, vsigmoid(d, sum(1)).times(hn::Sub(u.load(h), fresh)));
  }
  u.store(next, next_h);
  u.store(next, y);
}

template <Cell kCell, int kRows>
void tile(const RecurrentStep& s, const Units& u, int64_t row) {
  constexpr int kGates = gates_of(kCell);
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t panels = (s.hidden + lanes - 1) / lanes;
  V sum[kRows][kGates];
#pragma GCC unroll 6
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
    for (int g = 0; g < kGates; ++g) sum[i][g] = begin<kCell>(s, u, row + i, g);
  const float* r = s.r + u.first * s.hidden;
  const int64_t gate = panels * s.hidden * lanes;
  const float* h = s.h + row * s.hidden;
  for (int64_t k = 0; k < s.hidden; ++k, r += lanes, ++h) {
    V weight[kGates];
#pragma GCC unroll 4
    for (int g = 0; g < kGates; ++g) weight[g] = hn::LoadU(d, r + g * gate);
#pragma GCC unroll 6
    for (int i = 0; i < kRows; ++i) {
      const V factor = hn::Set(d, h[i * s.hidden]);
#pragma GCC unroll 4
      for (int g = 0; g < kGates; ++g) sum[i][g] = hn::MulAdd(factor, weight[g], sum[i][g]);
    }
  }
  HWY_ALIGN float sums[kRows][kGates * hn::MaxLanes(d)];
#pragma GCC unroll 6
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
    for (int g = 0; g < kGates; ++g) hn::StoreU(sum[i][g], d, sums[i] + g * lanes);
  for (int i = 0; i < kRows; ++i) finish<kCell>(s, u, row + i, sums[i]);
}

template <Cell kCell, int kRows = kTileRows>
HWY_INLINE void tile_of(const RecurrentStep& s, const Units& u, int64_t row, int64_t rows) {
  if (rows == kRows) return tile<kCell, kRows>(s, u, row);
  if constexpr (kRows > 1) tile_of<kCell, kRows - 1>(s, u, row, rows);
}

template <Cell kCell>
void step_of(const RecurrentStep& s, int64_t first_row, int64_t end_row, int64_t first_panel,
             int64_t end_panel) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(D()));
  const int64_t rows = end_row - first_row, tiles = (rows + kTileRows - 1) / kTileRows;
  for (int64_t p = first_panel; p < end_panel; ++p) {
    const Units u{p * lanes, static_cast<size_t>(std::min(lanes, s.hidden - p * lanes))};
    for (int64_t k = 0; k < tiles; ++k) {
      const int64_t row = first_row + rows * k / tiles;
      tile_of<kCell>(s, u, row, first_row + rows * (k + 1) / tiles - row);
    }
  }
}

void StepOf(const RecurrentStep& s, int64_t first_row, int64_t end_row, int64_t first_panel,
            int64_t end_panel) {
  if (s.cell == Cell::lstm)
    step_of<Cell::lstm>(s, first_row, end_row, first_panel, end_panel);
  else
    step_of<Cell::gru>(s, first_row, end_row, first_panel, end_panel);
}

int64_t LanesOf() { return static_cast<int64_t>(hn::Lanes(D())); }

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {

HWY_EXPORT(StepOf);
HWY_EXPORT(LanesOf);

void recurrent_step(const RecurrentStep& step, int64_t first_row, int64_t end_row,
                    int64_t first_panel, int64_t end_panel) {
  HWY_DYNAMIC_DISPATCH(StepOf)(step, first_row, end_row, first_panel, end_panel);
}
int64_t recurrent_lanes() { return HWY_DYNAMIC_DISPATCH(LanesOf)(); }

}  // namespace tenon::cpu
#endif
