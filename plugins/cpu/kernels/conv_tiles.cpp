// SPDX-License-Identifier: Apache-2.0
// Register tiles of convolutions: windows by channels. The numbers of windows are broadcast from
// where they are in x or in a padded copy, at an offset of its own in each step; the weights of a
// panel of channels follow each other. So planes of any width fill the tiles, and x is not packed.
// The sums are transposed on the way out.
#include "conv.hpp"
#include "gemm_core.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/conv_tiles.cpp"
#include <hwy/foreach_target.h>
// after foreach_target
#include "gemm-inl.h"
#include "simd-inl.h"
#include "transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

// Windows per tile: the sizes that there are, from the largest. The sums, a row of weights and a
// factor fill the registers.
#if HWY_TARGET <= HWY_AVX3
inline constexpr int kSizes[] = {14, 10, 7, 4, 2, 1};
#elif HWY_TARGET <= HWY_AVX2
inline constexpr int kSizes[] = {6, 4, 2, 1};
#else
inline constexpr int kSizes[] = {4, 2, 1};
#endif

// sums[row][channel] -> columns[channel][row], which has room for kRows rounded up to blocks of
// four, with a stride of kColumns.
template <int kRows, int kColumns, class V>
HWY_INLINE void transpose_sums(const V* sums, int stride, float* columns) {
  const hn::ScalableTag<float> d;
#pragma GCC unroll 4
  for (int r = 0; r < kRows; r += 4) {
    V from[4];
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) from[k] = r + k < kRows ? sums[(r + k) * stride] : hn::Zero(d);
    store_columns(from, columns + r, kColumns);
  }
}
template <int kRows, int kColumns, class V>
HWY_INLINE void transpose_sums(const V* sums, int stride, double* columns) {
  const hn::ScalableTag<double> d;
  for (int r = 0; r < kRows; ++r) {
    alignas(64) double line[hn::MaxLanes(d)];
    hn::Store(sums[r * stride], d, line);
    for (size_t k = 0; k < hn::Lanes(d); ++k) columns[k * kColumns + r] = line[k];
  }
}

// A tile: windows from x on, of which the first `skipped` are there already, and a panel of which
// `channels` exist. Each step fetches `stride` bytes from `fetched` on.
template <class T>
struct Tile {
  const T* x;
  const T* w;
  T* c;
  int64_t skipped, channels;
  const char* fetched;
  int64_t stride;
};

template <int kRows, int kVectors, class T>
void sum_tile(const TapTiles& p, const Tile<T>& tile) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(d));
  constexpr int kColumns = 16;
  V sum[kRows][kVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::Zero(d);
  const int64_t* const offsets = p.offsets;
  const T* w = tile.w;
  const char* fetched = tile.fetched;
  for (int64_t k = 0; k < p.steps; ++k, w += 2 * kLanes, fetched += tile.stride) {
    const T* const at = tile.x + offsets[k];
    hwy::Prefetch(fetched);
    V row[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) row[v] = hn::LoadU(d, w + v * kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const V factor = hn::Set(d, at[r]);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) sum[r][v] = multiply_add(factor, row[v], sum[r][v]);
    }
  }
  alignas(64) T columns[kVectors * kLanes * kColumns + kColumns];  // read beyond by `skipped`
#pragma GCC unroll 2
  for (int v = 0; v < kVectors; ++v)
    transpose_sums<kRows, kColumns>(&sum[0][v], kVectors, columns + v * kLanes * kColumns);
  T* c = tile.c;
  if (!p.add && tile.skipped == 0) {
    for (int64_t k = 0; k < tile.channels; ++k, c += p.ldc)
      std::memcpy(c, columns + k * kColumns, kRows * sizeof(T));
    return;
  }
  const int64_t count = kRows - tile.skipped;
  const T* from = columns + tile.skipped;
  c += tile.skipped;
  for (int64_t k = 0; k < tile.channels; ++k, c += p.ldc, from += kColumns)
    p.add ? map(
                d, count, [](auto, V x, V y) { return hn::Add(x, y); }, c, c, from)
          : map(
                d, count, [](auto, V x) { return x; }, c, from);
}

template <int kVectors, class T, size_t kIndex = 0>
void sum_tile_of(int size, const TapTiles& p, const Tile<T>& tile) {
  if (size == kSizes[kIndex]) return sum_tile<kSizes[kIndex], kVectors>(p, tile);
  if constexpr (kIndex + 1 < std::size(kSizes)) sum_tile_of<kVectors, T, kIndex + 1>(size, p, tile);
}

// The size of the tile for the last `left` of `width` windows. A larger one may begin before them,
// not before the row.
int tile_size(int64_t left, int64_t width) {
  int holds = 0;
  for (const int size : kSizes) {
    if (size >= left && size <= width) holds = size;
    if (size <= left) return holds > 0 ? holds : size;
  }
  return holds;
}

// Calls f(where, size, skipped) for the tiles of a row.
template <class F>
HWY_INLINE void for_tiles(int64_t width, F&& f) {
  for (int64_t j = 0; j < width;) {
    const int64_t left = width - j;
    const int size = tile_size(left, width);
    const int64_t skipped = std::max<int64_t>(size - left, 0);
    f(j - skipped, size, skipped);
    j += size - skipped;
  }
}

template <class T>
void tiles_of(const TapTiles& p) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<T>())), panel = 2 * lanes;
  const T* w = static_cast<const T*>(p.w);
  T* c = static_cast<T*>(p.c);
  int64_t tiles = 0;
  for_tiles(p.width, [&](int64_t, int, int64_t) { ++tiles; });
  // The next weights, of which each tile fetches its part.
  const int64_t stride =
      p.next ? panel * static_cast<int64_t>(sizeof(T)) / std::max<int64_t>(p.rows * tiles, 1) : 0;
  for (int64_t i = 0; i < p.m; i += panel, w += panel * p.steps, c += panel * p.ldc) {
    Tile<T> tile{.x = nullptr,
                 .w = w,
                 .c = nullptr,
                 .skipped = 0,
                 .channels = std::min(panel, p.m - i),
                 .fetched = static_cast<const char*>(p.next ? p.next : p.w),
                 .stride = stride};
    for (int64_t row = 0; row < p.rows; ++row) {
      const T* const x = static_cast<const T*>(p.x) + row * p.x_pitch;
      T* const to = c + row * p.width;
      for_tiles(p.width, [&](int64_t at, int size, int64_t skipped) {
        tile.x = x + at, tile.c = to + at, tile.skipped = skipped;
        tile.channels > lanes ? sum_tile_of<2>(size, p, tile) : sum_tile_of<1>(size, p, tile);
        tile.fetched += p.steps * stride;
      });
    }
  }
}

int64_t Cost(int64_t width) {
  int64_t all = 0;
  for_tiles(width, [&](int64_t, int size, int64_t) { all += size; });
  return all;
}

void Tiles(const TapTiles& p) {
  p.sum == TENON_DTYPE_F64 ? tiles_of<double>(p) : tiles_of<float>(p);
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {

HWY_EXPORT(Tiles);
HWY_EXPORT(Cost);

void tap_tiles(const TapTiles& tiles) { HWY_DYNAMIC_DISPATCH(Tiles)(tiles); }
int64_t tap_tiles_cost(int64_t width) { return HWY_DYNAMIC_DISPATCH(Cost)(width); }

}  // namespace tenon::cpu
#endif
