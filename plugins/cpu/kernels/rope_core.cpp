// SPDX-License-Identifier: Apache-2.0
// Rotates pairs of a head by the angles of its position. Compiled for each instruction set.
#include "rope_core.hpp"

#include <algorithm>

#include <cstring>

#include "nontemporal.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rope_core.cpp"
#include <hwy/foreach_target.h>
// after foreach_target
#include "simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

// x1 c - x2 s and x2 c + x1 s; sign is -1 for the inverse.
template <class D>
struct Turned {
  hn::Vec<D> first, second;
  Turned(hn::Vec<D> x1, hn::Vec<D> x2, hn::Vec<D> c, hn::Vec<D> s)
      : first(hn::NegMulAdd(x2, s, hn::Mul(x1, c))), second(hn::MulAdd(x1, s, hn::Mul(x2, c))) {}
};

template <class T, class A>
void turn_halves(int64_t half, const T* x, T* y, const A* cos, const A* sin, A sign) {
  const hn::ScalableTag<A> d;
  using D = hn::ScalableTag<A>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto factor = hn::Set(d, sign);
  int64_t i = 0;
  for (; i + lanes <= half; i += lanes) {
    const Turned<D> t(load(d, x + i), load(d, x + half + i), hn::LoadU(d, cos + i),
                      hn::Mul(factor, hn::LoadU(d, sin + i)));
    store(d, t.first, y + i);
    store(d, t.second, y + half + i);
  }
  if (const int64_t n = half - i; n > 0) {
    const Turned<D> t(load_n(d, x + i, n), load_n(d, x + half + i, n), load_n(d, cos + i, n),
                      hn::Mul(factor, load_n(d, sin + i, n)));
    store_n(d, t.first, y + i, n);
    store_n(d, t.second, y + half + i, n);
  }
}

template <class T, class A>
void turn_neighbours(int64_t half, const T* x, T* y, const A* cos, const A* sin, A sign) {
  const hn::ScalableTag<A> d;
  using D = hn::ScalableTag<A>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto factor = hn::Set(d, sign);
  alignas(64) A wide[2 * hn::MaxLanes(d)];
  alignas(64) T pairs[2 * hn::MaxLanes(d)];
  for (int64_t i = 0; i < half; i += lanes) {
    const int64_t n = std::min(lanes, half - i);
    const bool whole = n == lanes;
    if (!whole) std::fill_n(pairs, 2 * lanes, T{});
    std::memcpy(pairs, x + 2 * i, 2 * n * sizeof(T));
    hn::Store(load(d, pairs), d, wide);
    hn::Store(load(d, pairs + lanes), d, wide + lanes);
    hn::Vec<D> first, second;
    hn::LoadInterleaved2(d, wide, first, second);
    const Turned<D> t(first, second, whole ? hn::LoadU(d, cos + i) : load_n(d, cos + i, n),
                      hn::Mul(factor, whole ? hn::LoadU(d, sin + i) : load_n(d, sin + i, n)));
    hn::StoreInterleaved2(t.first, t.second, d, wide);
    store(d, hn::Load(d, wide), pairs);
    store(d, hn::Load(d, wide + lanes), pairs + lanes);
    std::memcpy(y + 2 * i, pairs, 2 * n * sizeof(T));
  }
}

// Tracks step and batch of the current row. A division per row would cost as much as rotating a
// short row.
class RowPlace {
 public:
  RowPlace(const RopeRows& r, int64_t row)
      : steps_(r.steps),
        inner_(r.heads_first ? 1 : r.heads),
        outer_(r.heads_first ? r.heads : 1),
        step_(row / inner_ % steps_),
        batch_(row / (r.steps * r.heads)),
        inner_at_(row % inner_),
        outer_at_(row / (inner_ * steps_) % outer_) {}
  int64_t step() const { return step_; }
  int64_t batch() const { return batch_; }
  void next() {
    if (++inner_at_ < inner_) return;
    inner_at_ = 0;
    if (++step_ < steps_) return;
    step_ = 0;
    if (++outer_at_ < outer_) return;
    outer_at_ = 0;
    ++batch_;
  }

 private:
  int64_t steps_, inner_, outer_;  // rows are [batch, outer, step, inner]
  int64_t step_, batch_, inner_at_, outer_at_;
};

// x and y point to row `begin`.
template <class T>
void rows(const RopeRows& r, const T* x, T* y, int64_t begin, int64_t end) {
  using A = Acc<T>;
  const A sign = r.inverse ? A{-1} : A{1};
  RowPlace place(r, begin);
  for (int64_t row = begin; row < end; ++row, x += r.dim, y += r.dim, place.next()) {
    const int64_t position = r.positions != nullptr
                                 ? r.positions[place.batch() * r.steps + place.step()]
                                 : r.offset + place.step();
    const A* const cos = static_cast<const A*>(r.cos) + position * r.half;
    const A* const sin = static_cast<const A*>(r.sin) + position * r.half;
    if (r.interleaved) {
      turn_neighbours(r.half, x, y, cos, sin, sign);
    } else {
      turn_halves(r.half, x, y, cos, sin, sign);
    }
    if (x != y) std::copy(x + 2 * r.half, x + r.dim, y + 2 * r.half);
  }
}

// Non-temporal stores take several rows at a time: a single row may be as short as a cache line.
template <class T>
void all_rows(const RopeRows& r, const T* x, T* y, int64_t begin, int64_t end) {
  constexpr int64_t kBlock = 8192;  // bytes
  const int64_t bytes = r.dim * static_cast<int64_t>(sizeof(T));
  const int64_t rows_per_block = bytes > 0 ? kBlock / bytes : 0;
  const int64_t step = r.nontemporal && rows_per_block > 0 ? rows_per_block : end - begin;
  for (int64_t row = begin; row < end; row += step) {
    const int64_t count = std::min(step, end - row);
    NontemporalRow<T> block(r.nontemporal, count * r.dim);
    rows(r, x + row * r.dim, block.at(y + row * r.dim), row, row + count);
    block.done(y + row * r.dim);
  }
}

void Rows(const RopeRows& r, const void* x, void* y, int64_t begin, int64_t end) {
  with_storage(r.dtype, [&]<class T>(T) {
    all_rows(r, static_cast<const T*>(x), static_cast<T*>(y), begin, end);
  });
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {

HWY_EXPORT(Rows);

void rope_turn(const RopeRows& r, const void* x, void* y, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(Rows)(r, x, y, begin, end);
}

}  // namespace tenon::cpu
#endif
