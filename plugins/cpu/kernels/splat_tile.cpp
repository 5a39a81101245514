// SPDX-License-Identifier: Apache-2.0
// The entries of a tile are blended front to back, compiled for each instruction set.
#include <algorithm>
#include <cmath>

#include "splat.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/splat_tile.cpp"
#include <hwy/foreach_target.h>
// after foreach_target
#include "splat-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

// light: what reaches the next entry; negative where a pixel takes no more entries.
template <class T>
struct TileState {
  T* light;
  SplatPlace<T>* last;
  T* colors;
};

// Blends one entry. Returns true if a pixel became full.
template <int64_t kChannels, bool kRays, class T>
HWY_INLINE bool blend(const SplatTile<T>& s, int64_t place, const TileState<T>& state) {
  using Entry = SplatEntry<T, kRays>;
  const typename Entry::D d;
  const hn::RebindToSigned<typename Entry::D> di;
  const int32_t id = s.ids[place];
  if (id < 0) return false;
  Entry entry(s, s.pairs[id]);
  if (entry.box.empty()) return false;
  const int64_t channels = kChannels ? kChannels : s.grid.channels;
  const int64_t stride = s.grid.stride(), area = s.grid.area();
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const T* const color = s.colors + id * channels;
  bool closed = false;
  for (int64_t y = entry.box.top; y < entry.box.bottom; ++y) {
    entry.to_row(y);
    for (int64_t x = entry.box.left; x < entry.box.right; x += lanes) {
      const int64_t at = y * stride + x;
      const auto light = hn::LoadU(d, state.light + at);
      SplatLanes<typename Entry::D> e;
      if (!entry.at(x, hn::Gt(light, hn::Zero(d)), &e)) continue;
      const auto left = hn::NegMulAdd(light, e.alpha, light);
      const auto full = hn::And(e.passes, hn::Le(left, hn::Set(d, static_cast<T>(kLeastLight))));
      const auto adds = hn::AndNot(full, e.passes);
      const auto weight = hn::Mul(light, e.alpha);
      closed |= !hn::AllFalse(d, full);
      hn::StoreU(hn::IfThenElse(adds, left, hn::IfThenElse(full, hn::Neg(light), light)), d,
                 state.light + at);
      hn::StoreU(
          hn::IfThenElse(hn::RebindMask(di, adds), hn::Set(di, static_cast<SplatPlace<T>>(place)),
                         hn::LoadU(di, state.last + at)),
          di, state.last + at);
      for (int64_t c = 0; c < channels; ++c) {
        T* const to = state.colors + c * area + at;
        const auto sum = hn::LoadU(d, to);
        hn::StoreU(hn::IfThenElse(adds, hn::MulAdd(weight, hn::Set(d, color[c]), sum), sum), d, to);
      }
    }
  }
  return closed;
}

template <class T>
bool any_open(const T* light, int64_t count) {
  const hn::ScalableTag<T> d;
  for (int64_t i = 0; i < count; i += static_cast<int64_t>(hn::Lanes(d)))
    if (!hn::AllFalse(d, hn::Gt(hn::LoadU(d, light + i), hn::Zero(d)))) return true;
  return false;
}

template <class T>
void write(const SplatTile<T>& s, const TileState<T>& state, const SplatOutputs<T>& to) {
  const int64_t channels = s.grid.channels, stride = s.grid.stride(), area = s.grid.area();
  for (int64_t y = 0; y < s.rows; ++y)
    for (int64_t x = 0; x < s.columns; ++x) {
      const int64_t at = y * stride + x, pixel = s.pixel + y * s.grid.width + x;
      const T light = std::abs(state.light[at]);
      to.alpha[pixel] = 1 - light;
      to.last[pixel] = static_cast<int32_t>(state.last[at]);
      for (int64_t c = 0; c < channels; ++c) {
        const T color = state.colors[c * area + at];
        to.image[pixel * channels + c] = s.background ? color + light * s.background[c] : color;
      }
    }
}

template <bool kRays, class T>
void tile(const SplatTile<T>& s, const SplatOutputs<T>& to) {
  const int64_t area = s.grid.area(), stride = s.grid.stride();
  T* const light = reinterpret_cast<T*>(s.area);
  const TileState<T> state{light, reinterpret_cast<SplatPlace<T>*>(light + area), light + 2 * area};
  std::fill_n(light, area, T{-1});
  for (int64_t y = 0; y < s.rows; ++y) std::fill_n(light + y * stride, s.columns, T{1});
  std::fill_n(state.last, area, SplatPlace<T>{-1});
  std::fill_n(state.colors, s.grid.channels * area, T{0});
  for (int64_t place = s.begin; place < s.end; ++place) {
    const bool closed =
        s.grid.channels == 3 ? blend<3, kRays>(s, place, state) : blend<0, kRays>(s, place, state);
    if (closed && !any_open(light, area)) break;
  }
  write(s, state, to);
}
template <class T>
void either(const SplatTile<T>& s, const SplatOutputs<T>& to) {
  s.grid.rays ? tile<true>(s, to) : tile<false>(s, to);
}
void TileF32(const SplatTile<float>& s, const SplatOutputs<float>& to) { either(s, to); }
void TileF64(const SplatTile<double>& s, const SplatOutputs<double>& to) { either(s, to); }

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {

HWY_EXPORT(TileF32);
HWY_EXPORT(TileF64);

void splat_tile(const SplatTile<float>& tile, const SplatOutputs<float>& to) {
  HWY_DYNAMIC_DISPATCH(TileF32)(tile, to);
}
void splat_tile(const SplatTile<double>& tile, const SplatOutputs<double>& to) {
  HWY_DYNAMIC_DISPATCH(TileF64)(tile, to);
}

}  // namespace tenon::cpu
#endif
