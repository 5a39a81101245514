// SPDX-License-Identifier: Apache-2.0
// Vector code of group_norm (along a plane) and layer_norm2d (pixels in lanes, one channel after
// another).
#include <array>
#include <cmath>
#include <limits>

#include "channel_norm.hpp"
#include "nontemporal.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/channel_norm_vector.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// after foreach_target
#include "norm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

// ---- planes

void moments_target(tenon_dtype dtype, const void* data, int64_t n, PlaneMoments& out) {
  with_storage(dtype, [&]<class T>(T) {
    const hn::ScalableTag<Acc<T>> d;
    const T* x = static_cast<const T*>(data);
    const auto value = [&](auto at) HWY_ATTR { return load(d, x, at); };
    out.mean = mean_of(d, n, value);
    const Split<decltype(d)> middle(d, out.mean);
    out.squares = sums<1>(d, n, [&](auto at) HWY_ATTR {
      const auto v = middle.taken_from(value(at));
      return std::array{hn::Mul(v, v)};
    })[0];
  });
}

// The normalized values of a plane.
template <class D, class T>
struct Normalized {
  HWY_INLINE Normalized(D tag, const T* data, double mean, double scale)
      : d(tag), x(data), middle(tag, mean), inv(hn::Set(tag, static_cast<hn::TFromD<D>>(scale))) {}
  template <class At>
  HWY_INLINE hn::Vec<D> operator()(At at) const {
    return hn::Mul(middle.taken_from(load(d, x, at)), inv);
  }
  D d;
  const T* x;
  Split<D> middle;
  hn::Vec<D> inv;
};

template <class T>
void normalize(const T* x, T* y, int64_t n, const PlaneScale& s) {
  using A = Acc<T>;
  const hn::ScalableTag<A> d;
  const Normalized<decltype(d), T> x_hat(d, x, s.mean, s.inv);
  const auto gamma = hn::Set(d, static_cast<A>(s.gamma));
  const auto beta = hn::Set(d, static_cast<A>(s.beta));
  each(d, 0, n, [&](auto at) HWY_ATTR { store(d, hn::MulAdd(x_hat(at), gamma, beta), y, at); });
}

void normalize_target(tenon_dtype dtype, const void* data, void* result, int64_t n,
                      const PlaneScale& s, bool nontemporal) {
  with_storage(dtype, [&]<class T>(T) {
    const T* x = static_cast<const T*>(data);
    nontemporal_parts(nontemporal, n, static_cast<T*>(result),
                      [&](int64_t i, int64_t count, T* y) { normalize(x + i, y, count, s); });
  });
}

void sums_target(tenon_dtype dtype, const void* upstream, const void* data, int64_t n, double mean,
                 double inv, PlaneSums& out) {
  with_storage(dtype, [&]<class T>(T) {
    const hn::ScalableTag<Acc<T>> d;
    const Normalized<decltype(d), T> x_hat(d, static_cast<const T*>(data), mean, inv);
    const T* dy = static_cast<const T*>(upstream);
    const auto total = sums<2>(d, n, [&](auto at) HWY_ATTR {
      const auto v = load(d, dy, at);
      return std::array{v, hn::Mul(v, x_hat(at))};
    });
    out = {total[0], total[1]};
  });
}

template <class T>
void gradient(const T* dy, const T* x, T* dx, int64_t n, const PlaneScale& s, double mean_of_g,
              double mean_of_gx) {
  using A = Acc<T>;
  const hn::ScalableTag<A> d;
  const Normalized<decltype(d), T> x_hat(d, x, s.mean, s.inv);
  const auto gamma = hn::Set(d, static_cast<A>(s.gamma));
  const auto mean_g = hn::Set(d, static_cast<A>(mean_of_g));
  const auto mean_gx = hn::Set(d, static_cast<A>(mean_of_gx));
  each(d, 0, n, [&](auto at) HWY_ATTR {
    const auto g = hn::MulSub(load(d, dy, at), gamma, mean_g);
    store(d, hn::Mul(x_hat.inv, hn::NegMulAdd(x_hat(at), mean_gx, g)), dx, at);
  });
}

void gradient_target(tenon_dtype dtype, const void* upstream, const void* data, void* result,
                     int64_t n, const PlaneScale& s, double mean_g, double mean_gx,
                     bool nontemporal) {
  with_storage(dtype, [&]<class T>(T) {
    const T *dy = static_cast<const T*>(upstream), *x = static_cast<const T*>(data);
    nontemporal_parts(nontemporal, n, static_cast<T*>(result),
                      [&](int64_t i, int64_t count, T* dx) {
                        gradient(dy + i, x + i, dx, count, s, mean_g, mean_gx);
                      });
  });
}

// ---- pixels

// The sum of f(channel), over blocks that are short enough for a small rounding error.
template <class D, class F>
HWY_INLINE hn::Vec<D> channel_sum(D d, int64_t channels, F&& f) {
  constexpr int64_t kBlock = 64;
  auto total = hn::Zero(d);
  for (int64_t begin = 0; begin < channels; begin += kBlock) {
    const int64_t end = std::min(channels, begin + kBlock);
    auto even = hn::Zero(d), odd = hn::Zero(d);
    int64_t c = begin;
    for (; c + 2 <= end; c += 2) {
      even = hn::Add(even, f(c));
      odd = hn::Add(odd, f(c + 1));
    }
    if (c < end) even = hn::Add(even, f(c));
    total = hn::Add(total, hn::Add(even, odd));
  }
  return total;
}

// A tile: p.tile numbers per channel. Copies n of them from and to the image.
template <class T>
HWY_INLINE void take_tile(const PixelNorm& p, const T* image, int64_t n, Acc<T>* tile) {
  const hn::ScalableTag<Acc<T>> d;
  for (int64_t c = 0; c < p.channels; ++c)
    each(d, 0, n, [&](auto at) HWY_ATTR {
      store(d, load(d, image + c * p.pixels, at), tile + c * p.tile, at);
    });
}
template <class T>
HWY_INLINE void give_tile(const PixelNorm& p, const Acc<T>* tile, int64_t n, T* image) {
  const hn::ScalableTag<Acc<T>> d;
  for (int64_t c = 0; c < p.channels; ++c)
    each(d, 0, n, [&](auto at) HWY_ATTR {
      store(d, load(d, tile + c * p.tile, at), image + c * p.pixels, at);
    });
}

// Distances of a vector of pixels from their means, as (x - pivot) - rest, so that a large mean
// costs no bits. The pivot is the given mean, and rest corrects its rounding; without a given mean,
// the pivot is the first channel.
template <class D, class At>
struct Pixels {
  using V = hn::Vec<D>;
  using A = hn::TFromD<D>;
  HWY_INLINE Pixels(D tag, const PixelNorm& p, const A* tile, At place, const A* mean,
                    const A* scale)
      : d(tag), at(place), x(tile), step(p.tile) {
    const auto count = hn::Set(d, static_cast<A>(p.channels));
    pivot = mean             ? load(d, mean, at)
            : p.channels > 0 ? load(d, x, at)
                             : hn::Set(d, std::numeric_limits<A>::quiet_NaN());
    const auto from_pivot = [&](int64_t c)
                                HWY_ATTR { return hn::Sub(load(d, x + c * step, at), pivot); };
    rest = hn::Div(channel_sum(d, p.channels, from_pivot), count);
    if (scale) {
      inv = load(d, scale, at);
    } else {
      const auto squared = [&](int64_t c) HWY_ATTR {
        const auto v = distance(c);
        return hn::Mul(v, v);
      };
      const auto variance = hn::Div(channel_sum(d, p.channels, squared), count);
      const auto root = hn::Sqrt(hn::Add(variance, hn::Set(d, static_cast<A>(p.eps))));
      inv = hn::Div(hn::Set(d, A{1}), root);
    }
  }
  HWY_INLINE V distance(int64_t c) const {
    return hn::Sub(hn::Sub(load(d, x + c * step, at), pivot), rest);
  }
  HWY_INLINE V normalized(int64_t c) const { return hn::Mul(distance(c), inv); }

  D d;
  At at;
  const A* x;
  int64_t step;
  V pivot, rest, inv;
};

// Advances a pointer to an image or its statistics by `begin` pixels; null stays null.
template <class T>
T* moved(void* base, int64_t begin) {
  return base ? static_cast<T*>(base) + begin : nullptr;
}
template <class T>
const T* moved(const void* base, int64_t begin) {
  return base ? static_cast<const T*>(base) + begin : nullptr;
}

template <class T>
void forward_pixels(const PixelNorm& p, const PixelForward& a, int64_t begin, int64_t n) {
  using A = Acc<T>;
  const hn::ScalableTag<A> d;
  const A* gamma = static_cast<const A*>(a.gamma);
  const A* beta = static_cast<const A*>(a.beta);
  A* mean = moved<A>(a.mean, begin);
  A* inv = moved<A>(a.inv, begin);
  A* tile = static_cast<A*>(a.tile);
  take_tile(p, moved<T>(a.x, begin), n, tile);
  each(d, 0, n, [&](auto at) HWY_ATTR {
    const Pixels pixels(d, p, tile, at, nullptr, nullptr);
    for (int64_t c = 0; c < p.channels; ++c) {
      auto v = pixels.normalized(c);
      if (gamma) v = hn::Mul(v, hn::Set(d, gamma[c]));
      if (beta) v = hn::Add(v, hn::Set(d, beta[c]));
      store(d, v, tile + c * p.tile, at);
    }
    if (mean) store(d, hn::Add(pixels.pivot, pixels.rest), mean, at);
    if (inv) store(d, pixels.inv, inv, at);
  });
  give_tile(p, tile, n, moved<T>(a.y, begin));
}
void forward_target(const PixelNorm& p, const PixelForward& a, int64_t begin, int64_t end) {
  with_storage(p.dtype, [&]<class T>(T) { forward_pixels<T>(p, a, begin, end - begin); });
}

template <class T>
void backward_pixels(const PixelNorm& p, const PixelBackward& a, int64_t begin, int64_t n) {
  using A = Acc<T>;
  const hn::ScalableTag<A> d;
  const A* gamma = static_cast<const A*>(a.gamma);
  A* x = static_cast<A*>(a.tile);
  A* dy = x + p.channels * p.tile;
  take_tile(p, moved<T>(a.x, begin), n, x);
  take_tile(p, moved<T>(a.dy, begin), n, dy);
  const auto add = [&](void* sums, int64_t c, auto v) HWY_ATTR {
    A* to = reinterpret_cast<A*>(static_cast<char*>(sums) + c * kPixelSumBytes);
    hn::Store(hn::Add(hn::Load(d, to), v), d, to);
  };
  each(d, 0, n, [&](auto at) HWY_ATTR {
    const Pixels pixels(d, p, x, at, moved<A>(a.mean, begin), moved<A>(a.inv, begin));
    const auto up = [&](int64_t c) HWY_ATTR { return load(d, dy + c * p.tile, at); };
    const auto scaled = [&](int64_t c) HWY_ATTR {
      return gamma ? hn::Mul(up(c), hn::Set(d, gamma[c])) : up(c);
    };
    for (int64_t c = 0; c < p.channels && (a.dgamma || a.dbeta); ++c) {
      const auto v = up(c), zero = hn::Zero(d);
      if (a.dgamma) add(a.dgamma, c, existing(d, hn::Mul(v, pixels.normalized(c)), zero, at));
      if (a.dbeta) add(a.dbeta, c, existing(d, v, zero, at));
    }
    if (!a.dx) return;
    const auto count = hn::Set(d, static_cast<A>(p.channels));
    const auto along = [&](int64_t c) HWY_ATTR { return hn::Mul(scaled(c), pixels.normalized(c)); };
    const auto mean_g = hn::Div(channel_sum(d, p.channels, scaled), count);
    const auto mean_gx = hn::Div(channel_sum(d, p.channels, along), count);
    for (int64_t c = 0; c < p.channels; ++c) {
      const auto g = hn::NegMulAdd(pixels.normalized(c), mean_gx, hn::Sub(scaled(c), mean_g));
      store(d, hn::Mul(pixels.inv, g), x + c * p.tile, at);
    }
  });
  if (a.dx) give_tile(p, x, n, moved<T>(a.dx, begin));
}
void backward_target(const PixelNorm& p, const PixelBackward& a, int64_t begin, int64_t end) {
  with_storage(p.dtype, [&]<class T>(T) { backward_pixels<T>(p, a, begin, end - begin); });
}

template <class A>
double lanes_of(const void* sums, int64_t channel) {
  const hn::ScalableTag<A> d;
  const char* from = static_cast<const char*>(sums) + channel * kPixelSumBytes;
  alignas(64) A lanes[hn::MaxLanes(d)];
  hn::Store(hn::Load(d, reinterpret_cast<const A*>(from)), d, lanes);
  double total = 0;
  for (size_t k = 0; k < hn::Lanes(d); ++k) total += lanes[k];
  return total;
}
double pixel_sum_target(tenon_dtype dtype, const void* sums, int64_t channel) {
  if (dtype == TENON_DTYPE_F64) return lanes_of<double>(sums, channel);
  return lanes_of<float>(sums, channel);
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {

HWY_EXPORT(moments_target);
HWY_EXPORT(normalize_target);
HWY_EXPORT(sums_target);
HWY_EXPORT(gradient_target);
HWY_EXPORT(forward_target);
HWY_EXPORT(backward_target);
HWY_EXPORT(pixel_sum_target);

PlaneMoments plane_moments(tenon_dtype dtype, const void* x, int64_t n) {
  PlaneMoments out{};
  HWY_DYNAMIC_DISPATCH(moments_target)(dtype, x, n, out);
  return out;
}
void plane_normalize(tenon_dtype dtype, const void* x, void* y, int64_t n, const PlaneScale& s,
                     bool nontemporal) {
  HWY_DYNAMIC_DISPATCH(normalize_target)(dtype, x, y, n, s, nontemporal);
}
PlaneSums plane_sums(tenon_dtype dtype, const void* dy, const void* x, int64_t n, double mean,
                     double inv) {
  PlaneSums out{};
  HWY_DYNAMIC_DISPATCH(sums_target)(dtype, dy, x, n, mean, inv, out);
  return out;
}
void plane_gradient(tenon_dtype dtype, const void* dy, const void* x, void* dx, int64_t n,
                    const PlaneScale& s, double mean_g, double mean_gx, bool nontemporal) {
  HWY_DYNAMIC_DISPATCH(gradient_target)(dtype, dy, x, dx, n, s, mean_g, mean_gx, nontemporal);
}
void pixel_forward(const PixelNorm& p, const PixelForward& a, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(forward_target)(p, a, begin, end);
}
void pixel_backward(const PixelNorm& p, const PixelBackward& a, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(backward_target)(p, a, begin, end);
}
double pixel_sum(tenon_dtype dtype, const void* sums, int64_t channel) {
  return HWY_DYNAMIC_DISPATCH(pixel_sum_target)(dtype, sums, channel);
}

}  // namespace tenon::cpu
#endif
