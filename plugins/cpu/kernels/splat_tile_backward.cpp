// SPDX-License-Identifier: Apache-2.0
// Gradients of the entries of a tile, compiled for each instruction set. A first pass finds the light
// behind all entries; a second one walks back and divides each entry's share out again.
#include <algorithm>
#include <cmath>

#include "splat.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/splat_tile_backward.cpp"
#include <hwy/foreach_target.h>
// after foreach_target
#include "splat-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

constexpr int64_t kMostChannels = 32;

template <class T>
struct BackState {
  T* light;             // behind the entries walked so far
  SplatPlace<T>* last;  // the last entry of each pixel
  T* rest;              // what more light behind the entry would change
  T* upstream;          // [channels] planes
};

// Calls f(entry, x, at, lanes of the entry) for the vectors of pixels in which the entry is blended.
template <bool kRays, class T, class F>
HWY_INLINE void each_vector(const SplatTile<T>& s, int64_t place, const BackState<T>& state,
                            SplatEntry<T, kRays>& entry, F&& f) {
  const typename SplatEntry<T, kRays>::D d;
  const hn::RebindToSigned<typename SplatEntry<T, kRays>::D> di;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto before = hn::Set(di, static_cast<SplatPlace<T>>(place - 1));
  for (int64_t y = entry.box.top; y < entry.box.bottom; ++y) {
    entry.to_row(y);
    for (int64_t x = entry.box.left; x < entry.box.right; x += lanes) {
      const int64_t at = y * s.grid.stride() + x;
      const auto open = hn::RebindMask(d, hn::Gt(hn::LoadU(di, state.last + at), before));
      SplatLanes<typename SplatEntry<T, kRays>::D> e;
      if (entry.at(x, open, &e)) f(x, at, e);
    }
  }
}

template <int64_t kChannels, bool kRays, class T>
void gradients(const SplatTile<T>& s, int64_t place, const BackState<T>& state, T* to) {
  using Entry = SplatEntry<T, kRays>;
  using V = typename Entry::V;
  const typename Entry::D d;
  const int64_t channels = kChannels ? kChannels : s.grid.channels, area = s.grid.area();
  const int32_t id = s.ids[place];
  const SplatPair<T>& pair = s.pairs[id];
  const T* const color = s.colors + id * channels;
  Entry entry(s, pair);
  const V zero = hn::Zero(d), one = hn::Set(d, T{1});
  V h = zero, h_u = zero, h_y = zero, h_xx = zero, h_xy = zero, h_yy = zero;
  V h_along = zero, h_along_x = zero, h_along_y = zero, h_near = zero;
  V dcolor[kChannels ? kChannels : kMostChannels];
  for (int64_t c = 0; c < channels; ++c) dcolor[c] = zero;
  bool blended = false;
  each_vector(
      s, place, state, entry,
      [&](int64_t x, int64_t at, const SplatLanes<typename Entry::D>& e) HWY_ATTR {
        blended = true;
        const V light = hn::LoadU(d, state.light + at);
        const V rest = hn::LoadU(d, state.rest + at);
        const V through = hn::Div(one, hn::Sub(one, e.alpha));
        const V before = hn::IfThenElse(e.passes, hn::Mul(light, through), light);
        const V weight = hn::IfThenElseZero(e.passes, hn::Mul(e.alpha, before));
        V match = zero;
        for (int64_t c = 0; c < channels; ++c) {
          const V up = hn::IfThenElseZero(e.passes, hn::LoadU(d, state.upstream + c * area + at));
          dcolor[c] = hn::MulAdd(weight, up, dcolor[c]);
          match = hn::MulAdd(hn::Set(d, color[c]), up, match);
        }
        const V dalpha = hn::MulAdd(before, match, hn::Mul(rest, through));
        hn::StoreU(before, d, state.light + at);
        hn::StoreU(hn::IfThenElse(e.passes, hn::NegMulAdd(weight, match, rest), rest), d,
                   state.rest + at);
        // A saturated alpha does not move.
        const auto free = hn::And(e.passes, hn::Le(e.raw, hn::Set(d, static_cast<T>(kMostAlpha))));
        V part = hn::IfThenElseZero(free, hn::Mul(e.raw, dalpha));
        const V dx = entry.dx(x), dy = hn::Set(d, entry.row_dy);
        h = hn::Add(h, part);
        if constexpr (kRays) {
          // From the power form/(along² + 2·near·form) to the form.
          const V share = hn::IfThenElseZero(free, e.share);
          const V power = hn::IfThenElseZero(free, e.power), steep = hn::Mul(part, power);
          const V along = hn::Mul(steep, share);
          h_along = hn::Add(h_along, along);
          h_along_x = hn::MulAdd(along, dx, h_along_x);
          h_along_y = hn::MulAdd(along, dy, h_along_y);
          h_near = hn::MulAdd(steep, power, h_near);
          part = hn::Mul(part, hn::Mul(share, share));
        }
        const V by_x = hn::Mul(part, dx), by_y = hn::Mul(part, dy);
        h_u = hn::MulAdd(part, e.u, h_u);
        h_y = hn::Add(h_y, by_y);
        h_xx = hn::MulAdd(by_x, dx, h_xx);
        h_xy = hn::MulAdd(by_x, dy, h_xy);
        h_yy = hn::MulAdd(by_y, dy, h_yy);
      });
  // A conic that is not finite times a sum of 0 is NaN.
  if (!blended) return void(std::fill_n(to, s.grid.gradients(), T{0}));
  const auto sum = [&](V v) HWY_ATTR { return hn::GetLane(hn::SumOfLanes(d, v)); };
  const T by_u = sum(h_u), by_y = sum(h_y);
  to[0] = -(2 * pair.square * by_u + pair.mixed * by_y);
  to[1] = -(pair.slant * by_u + 2 * pair.rest * by_y);
  to[2] = -sum(h_xx) / 2;
  to[3] = -sum(h_xy);
  to[4] = -sum(h_yy) / 2;
  if constexpr (kRays) {
    const T along = 2 * sum(h_along);
    to[0] += pair.along_x * along, to[1] += pair.along_y * along;
    to[5] = 2 * sum(h_along_x), to[6] = 2 * sum(h_along_y), to[7] = 2 * sum(h_near);
  }
  T* const rest = to + 2 + s.grid.conic();
  const T total = sum(h);
  rest[0] = total == 0 ? 0 : total / pair.opacity;
  for (int64_t c = 0; c < channels; ++c) rest[1 + c] = sum(dcolor[c]);
}

// Loads what belongs to the pixels. Returns the last entry of all.
template <class T>
int64_t load_tile(const SplatTile<T>& s, const SplatUpstream<T>& up, const BackState<T>& state) {
  const int64_t channels = s.grid.channels, stride = s.grid.stride(), area = s.grid.area();
  std::fill_n(state.light, area, T{1});
  std::fill_n(state.last, area, SplatPlace<T>{-1});
  std::fill_n(state.rest, area, T{0});
  std::fill_n(state.upstream, channels * area, T{0});
  int64_t most = -1;
  for (int64_t y = 0; y < s.rows; ++y)
    for (int64_t x = 0; x < s.columns; ++x) {
      const int64_t at = y * stride + x, pixel = s.pixel + y * s.grid.width + x;
      const int64_t last = std::min<int64_t>(up.last[pixel], s.end - 1);
      state.last[at] = static_cast<SplatPlace<T>>(last);
      most = std::max(most, last);
      T rest = up.dalpha ? up.dalpha[pixel] : T{0};
      for (int64_t c = 0; c < channels; ++c) {
        const T v = up.dimage[pixel * channels + c];
        state.upstream[c * area + at] = v;
        if (s.background) rest -= s.background[c] * v;
      }
      state.rest[at] = rest;
    }
  return most;
}

template <bool kRays, class T>
void backward(const SplatTile<T>& s, const SplatUpstream<T>& up) {
  const typename SplatEntry<T, kRays>::D d;
  const int64_t channels = s.grid.channels, area = s.grid.area(), width = s.grid.gradients();
  T* const light = reinterpret_cast<T*>(s.area);
  const BackState<T> state{light, reinterpret_cast<SplatPlace<T>*>(light + area), light + 2 * area,
                           light + 3 * area};
  const int64_t end = std::max(load_tile(s, up, state) + 1, s.begin);
  for (int64_t place = s.begin; place < end; ++place) {
    const int32_t id = s.ids[place];
    if (id < 0) continue;
    SplatEntry<T, kRays> entry(s, s.pairs[id]);
    each_vector(s, place, state, entry, [&](int64_t, int64_t at, const auto& e) HWY_ATTR {
      const auto v = hn::LoadU(d, light + at);
      hn::StoreU(hn::IfThenElse(e.passes, hn::NegMulAdd(v, e.alpha, v), v), d, light + at);
    });
  }
  for (int64_t i = 0; i < area; ++i) state.rest[i] *= light[i];
  if (up.dbackground)
    for (int64_t c = 0; c < channels; ++c) {
      T sum = 0;
      for (int64_t i = 0; i < area; ++i) sum += light[i] * state.upstream[c * area + i];
      up.dbackground[c] = sum;
    }
  std::fill_n(up.gradients + (end - s.begin) * width, (s.end - end) * width, T{0});
  for (int64_t place = end - 1; place >= s.begin; --place) {
    T* const to = up.gradients + (place - s.begin) * width;
    if (s.ids[place] < 0)
      std::fill_n(to, width, T{0});
    else if (channels == 3)
      gradients<3, kRays>(s, place, state, to);
    else
      gradients<0, kRays>(s, place, state, to);
  }
}
template <class T>
void either(const SplatTile<T>& s, const SplatUpstream<T>& up) {
  s.grid.rays ? backward<true>(s, up) : backward<false>(s, up);
}
void BackwardF32(const SplatTile<float>& s, const SplatUpstream<float>& up) { either(s, up); }
void BackwardF64(const SplatTile<double>& s, const SplatUpstream<double>& up) { either(s, up); }

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {

HWY_EXPORT(BackwardF32);
HWY_EXPORT(BackwardF64);

void splat_tile_backward(const SplatTile<float>& tile, const SplatUpstream<float>& up) {
  HWY_DYNAMIC_DISPATCH(BackwardF32)(tile, up);
}
void splat_tile_backward(const SplatTile<double>& tile, const SplatUpstream<double>& up) {
  HWY_DYNAMIC_DISPATCH(BackwardF64)(tile, up);
}

}  // namespace tenon::cpu
#endif
