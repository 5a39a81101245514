// SPDX-License-Identifier: Apache-2.0
// The softmax of an attention tile and its gradient, compiled for each instruction set.
#include "attention_core.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention_core.cpp"
#include <hwy/foreach_target.h>
// after foreach_target
#include "attention-inl.h"
#include "gemm-inl.h"
#include "simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

template <class T>
void transpose(const T* from, int64_t from_stride, int64_t rows, int64_t cols, double scale, T* to,
               int64_t to_stride) {
  const T factor = static_cast<T>(scale);
  int64_t r = 0;
  if constexpr (std::is_same_v<T, float>) {
    const hn::CappedTag<T, 4> d;
    const auto f = hn::Set(d, factor);
    for (; hn::Lanes(d) == 4 && r + 4 <= rows; r += 4) {
      int64_t c = 0;
      for (; c + 4 <= cols; c += 4) {
        const T* const at = from + r * from_stride + c;
        const auto r0 = hn::Mul(f, hn::LoadU(d, at)),
                   r1 = hn::Mul(f, hn::LoadU(d, at + from_stride));
        const auto r2 = hn::Mul(f, hn::LoadU(d, at + 2 * from_stride));
        const auto r3 = hn::Mul(f, hn::LoadU(d, at + 3 * from_stride));
        const auto low01 = hn::InterleaveLower(d, r0, r1), high01 = hn::InterleaveUpper(d, r0, r1);
        const auto low23 = hn::InterleaveLower(d, r2, r3), high23 = hn::InterleaveUpper(d, r2, r3);
        T* const out = to + c * to_stride + r;
        hn::StoreU(hn::ConcatLowerLower(d, low23, low01), d, out);
        hn::StoreU(hn::ConcatUpperUpper(d, low23, low01), d, out + to_stride);
        hn::StoreU(hn::ConcatLowerLower(d, high23, high01), d, out + 2 * to_stride);
        hn::StoreU(hn::ConcatUpperUpper(d, high23, high01), d, out + 3 * to_stride);
      }
      for (; c < cols; ++c)
        for (int64_t i = r; i < r + 4; ++i)
          to[c * to_stride + i] = factor * from[i * from_stride + c];
    }
  }
  for (; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c) to[c * to_stride + r] = factor * from[r * from_stride + c];
}

template <class T>
void dots(int64_t width, int64_t cols, const T* x, const T* y, T* to) {
  const hn::ScalableTag<T> d;
  for (int64_t lane = 0; lane < width; lane += static_cast<int64_t>(hn::Lanes(d))) {
    auto sum = hn::Zero(d);
    for (int64_t at = lane; at < cols * width; at += width)
      sum = hn::MulAdd(hn::LoadU(d, x + at), hn::LoadU(d, y + at), sum);
    hn::StoreU(sum, d, to + lane);
  }
}

// The limits of one vector of lanes, in the lanes' own type. Exact, because keys are counted from
// the first key of the tile.
template <class D>
struct LaneKeys {
  hn::Vec<D> first, last;

  LaneKeys(D d, const AttentionScores& s, int64_t lane) {
    using T = hn::TFromD<D>;
    alignas(64) T low[hn::MaxLanes(d)] = {}, high[hn::MaxLanes(d)] = {};
    const auto within = [&](int64_t limit) {
      return static_cast<T>(std::clamp<int64_t>(limit - s.key, 0, s.keys));
    };
    const int64_t n = std::min<int64_t>(static_cast<int64_t>(hn::Lanes(d)), s.lanes - lane);
    for (int64_t i = 0; i < n; ++i)
      low[i] = within(s.first[lane + i]), high[i] = within(s.last[lane + i]);
    first = hn::Load(d, low), last = hn::Load(d, high);
  }
  hn::Mask<D> allow(D d, int64_t j) const {
    const auto key = hn::Set(d, static_cast<hn::TFromD<D>>(j));
    return hn::And(hn::Ge(key, first), hn::Lt(key, last));
  }
};

// The score from the product q·k, without mask and limits.
template <class D>
HWY_INLINE hn::Vec<D> capped(D d, const AttentionScores& s, hn::Vec<D> z) {
  using T = hn::TFromD<D>;
  if (s.softcap == 0) return z;
  return hn::Mul(hn::Set(d, static_cast<T>(s.softcap)),
                 tanh_of(d, hn::Div(z, hn::Set(d, static_cast<T>(s.softcap)))));
}
template <class D>
HWY_INLINE hn::Vec<D> with_mask(D d, const AttentionScores& s, hn::Vec<D> score, int64_t at) {
  using T = hn::TFromD<D>;
  if (s.added != nullptr) score = hn::Add(score, hn::LoadU(d, static_cast<const T*>(s.added) + at));
  if (s.attend != nullptr) {
    alignas(64) T attend[hn::MaxLanes(d)];
    for (size_t i = 0; i < hn::Lanes(d); ++i)
      attend[i] = static_cast<T>(s.attend[at + static_cast<int64_t>(i)]);
    const auto never = hn::Set(d, -std::numeric_limits<T>::infinity());
    score = hn::IfThenElse(hn::Ne(hn::Load(d, attend), hn::Zero(d)), score, never);
  }
  return score;
}
template <class D>
HWY_INLINE hn::Vec<D> masked(D d, const AttentionScores& s, const LaneKeys<D>& lanes,
                             hn::Vec<D> score, int64_t j, int64_t at) {
  const auto never = hn::Set(d, -std::numeric_limits<hn::TFromD<D>>::infinity());
  score = with_mask(d, s, score, at);
  if (s.edges) score = hn::IfThenElse(lanes.allow(d, j), score, never);
  return score;
}

// The sum of kCount numbers, halves first, in x[0].
template <int64_t kCount, class X, class Add>
HWY_INLINE void fold(X* x, Add&& add) {
  if constexpr (kCount > 1) {
#pragma GCC unroll 8
    for (int64_t i = 0; i < kCount / 2; ++i) x[i] = add(x[i], x[kCount / 2 + i]);
    fold<kCount / 2>(x, add);
  }
}

template <class T>
void weights(const AttentionScores& s, T* scores, T* m, T* l, T* correction) {
  const hn::ScalableTag<T> d;
  constexpr int64_t kLanes = hn::MaxLanes(d);
  const int64_t step = static_cast<int64_t>(hn::Lanes(d));
  const auto never = hn::Set(d, -std::numeric_limits<T>::infinity());
  const bool plain = s.softcap == 0 && s.added == nullptr && s.attend == nullptr && !s.edges;
  for (int64_t lane = 0; lane < s.lanes; lane += step) {
    const LaneKeys<hn::ScalableTag<T>> lanes(d, s, lane);
    auto top0 = never, top1 = never;
    for (int64_t j = 0; j < s.keys; ++j) {
      T* const at = scores + j * s.width + lane;
      auto score = hn::LoadU(d, at);
      if (!plain) {
        score = masked(d, s, lanes, capped(d, s, score), j, j * s.width + lane);
        hn::StoreU(score, d, at);
      }
      if (j & 1) {
        top1 = hn::Max(top1, score);
      } else {
        top0 = hn::Max(top0, score);
      }
    }
    // Max may lose a NaN; the weights restore it. Before the first key, the maximum m is -inf, and
    // 0 is used instead.
    const auto old = hn::LoadU(d, m + lane);
    const auto top = hn::Max(old, hn::Max(top0, top1));
    const auto shift = hn::IfThenElse(hn::Eq(top, never), hn::Zero(d), top);
    // As the lanes of weights_by_row: the sums take turns.
    hn::Vec<decltype(d)> sum[kLanes];
#pragma GCC unroll 16
    for (int64_t i = 0; i < kLanes; ++i) sum[i] = hn::Zero(d);
    for (int64_t j = 0; j < s.keys; j += kLanes)
#pragma GCC unroll 16
      for (int64_t i = 0; i < kLanes; ++i) {
        if (j + i >= s.keys) break;
        T* const at = scores + (j + i) * s.width + lane;
        const auto p = weight(d, hn::Sub(hn::LoadU(d, at), shift));
        hn::StoreU(p, d, at);
        sum[i] = hn::Add(sum[i], p);
      }
    fold<kLanes>(sum, [](auto a, auto b) HWY_ATTR { return hn::Add(a, b); });
    const auto factor = weight(d, hn::Sub(old, shift));
    hn::StoreU(factor, d, correction + lane);
    hn::StoreU(top, d, m + lane);
    hn::StoreU(hn::MulAdd(hn::LoadU(d, l + lane), factor, sum[0]), d, l + lane);
  }
}

// As weights(), for blocks by row, with the same bits.
template <class T>
void weights_by_row(const AttentionScores& s, T* scores, T* m, T* l, T* correction) {
  constexpr T kNever = -std::numeric_limits<T>::infinity();
  const hn::ScalableTag<T> d;
  static_assert(kKeyBlock % hn::MaxLanes(d) == 0);  // the last vector stays within its row
  const int64_t step = static_cast<int64_t>(hn::Lanes(d));
  const auto never = hn::Set(d, kNever);
  for (int64_t lane = 0; lane < s.lanes; ++lane) {
    T* const row = scores + lane * kKeyBlock;
    const auto within = [&](int64_t limit) {
      return hn::Set(d, static_cast<T>(std::clamp<int64_t>(limit - s.key, 0, s.keys)));
    };
    const auto first = within(s.first[lane]), last = within(s.last[lane]);
    auto top = never;
    for (int64_t j = 0; j < s.keys; j += step) {
      auto score = hn::LoadU(d, row + j);
      if (s.softcap != 0) score = capped(d, s, score);
      const int64_t at = lane * kKeyBlock + j;
      if (s.added != nullptr || s.attend != nullptr) score = with_mask(d, s, score, at);
      if (s.edges || j + step > s.keys) {  // no key beyond the block
        const auto key = hn::Iota(d, static_cast<T>(j));
        score = hn::IfThenElse(hn::And(hn::Ge(key, first), hn::Lt(key, last)), score, never);
      }
      hn::StoreU(score, d, row + j);
      top = hn::Max(top, score);
    }
    // MaxOfLanes and std::max may lose a NaN; the weights restore it.
    const T old = m[lane], best = std::max(old, hn::GetLane(hn::MaxOfLanes(d, top))),
            shift = best == kNever ? T{0} : best;
    auto sum = hn::Zero(d);
    for (int64_t j = 0; j < s.keys; j += step) {
      const auto p = weight(d, hn::Sub(hn::LoadU(d, row + j), hn::Set(d, shift)));
      hn::StoreU(p, d, row + j);
      sum = hn::Add(sum, p);
    }
    const auto factor = weight(d, hn::Set(d, old - shift));
    alignas(64) T sums[hn::MaxLanes(d)];
    hn::Store(sum, d, sums);
    fold<hn::MaxLanes(d)>(sums, [](T a, T b) { return a + b; });
    correction[lane] = hn::GetLane(factor), m[lane] = best;
    l[lane] = hn::GetLane(hn::MulAdd(hn::Set(d, l[lane]), factor, hn::Set(d, sums[0])));
  }
}

template <class T>
void slopes(const AttentionScores& s, T* scores, T* slopes, const AttentionRowFacts& rows,
            T* added_slopes) {
  const hn::ScalableTag<T> d;
  const int64_t step = static_cast<int64_t>(hn::Lanes(d));
  const auto one = hn::Set(d, T{1});
  const auto softcap = hn::Set(d, static_cast<T>(s.softcap));
  for (int64_t lane = 0; lane < s.lanes; lane += step) {
    const LaneKeys<hn::ScalableTag<T>> lanes(d, s, lane);
    const auto of_lane = [&](const void* facts) {
      return hn::LoadU(d, static_cast<const T*>(facts) + lane);
    };
    const auto shift = of_lane(rows.shift), factor = of_lane(rows.factor),
               delta = of_lane(rows.delta);
    const auto none = hn::Eq(shift, hn::Set(d, -std::numeric_limits<T>::infinity()));
    for (int64_t j = 0; j < s.keys; ++j) {
      const int64_t at = j * s.width + lane;
      const auto cap = capped(d, s, hn::LoadU(d, scores + at));
      const auto score = masked(d, s, lanes, cap, j, at);
      const auto p = hn::IfThenZeroElse(none, hn::Mul(factor, weight(d, hn::Sub(score, shift))));
      // If a row attends to nothing, its gradient is 0, regardless of k and v.
      const auto nothing = hn::Eq(p, hn::Zero(d));
      auto ds = hn::IfThenZeroElse(nothing, hn::Mul(p, hn::Sub(hn::LoadU(d, slopes + at), delta)));
      if (added_slopes != nullptr) hn::StoreU(ds, d, added_slopes + at);
      if (s.softcap != 0) {
        const auto ratio = hn::Div(cap, softcap);
        ds = hn::IfThenZeroElse(nothing, hn::Mul(ds, hn::NegMulAdd(ratio, ratio, one)));
      }
      hn::StoreU(p, d, scores + at);
      hn::StoreU(ds, d, slopes + at);
    }
  }
}

int64_t Width(tenon_dtype sum) {
  return kTileVectors * static_cast<int64_t>(hn::Lanes(hn::ScalableTag<uint8_t>())) /
         (sum == TENON_DTYPE_F64 ? 8 : 4);
}
void Transpose(tenon_dtype sum, const void* from, int64_t from_stride, int64_t rows, int64_t cols,
               double scale, void* to, int64_t to_stride) {
  with_sum(sum, [&](auto type) {
    using T = decltype(type);
    transpose(static_cast<const T*>(from), from_stride, rows, cols, scale, static_cast<T*>(to),
              to_stride);
  });
}
void Dots(tenon_dtype sum, int64_t width, int64_t cols, const void* x, const void* y, void* to) {
  with_sum(sum, [&](auto type) {
    using T = decltype(type);
    dots(width, cols, static_cast<const T*>(x), static_cast<const T*>(y), static_cast<T*>(to));
  });
}
void Weights(const AttentionScores& s, void* scores, void* m, void* l, void* correction) {
  with_sum(s.sum, [&](auto type) {
    using T = decltype(type);
    const auto run = s.by_row ? weights_by_row<T> : weights<T>;
    run(s, static_cast<T*>(scores), static_cast<T*>(m), static_cast<T*>(l),
        static_cast<T*>(correction));
  });
}
void Slopes(const AttentionScores& s, void* scores, void* slopes_, const AttentionRowFacts& rows,
            void* added_slopes) {
  with_sum(s.sum, [&](auto type) {
    using T = decltype(type);
    slopes(s, static_cast<T*>(scores), static_cast<T*>(slopes_), rows,
           static_cast<T*>(added_slopes));
  });
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {

HWY_EXPORT(Width);
HWY_EXPORT(Transpose);
HWY_EXPORT(Dots);
HWY_EXPORT(Weights);
HWY_EXPORT(Slopes);

int64_t attention_width(tenon_dtype sum) { return HWY_DYNAMIC_DISPATCH(Width)(sum); }
void attention_transpose(tenon_dtype sum, const void* from, int64_t from_stride, int64_t rows,
                         int64_t cols, double scale, void* to, int64_t to_stride) {
  HWY_DYNAMIC_DISPATCH(Transpose)(sum, from, from_stride, rows, cols, scale, to, to_stride);
}
void attention_dots(tenon_dtype sum, int64_t width, int64_t cols, const void* x, const void* y,
                    void* to) {
  HWY_DYNAMIC_DISPATCH(Dots)(sum, width, cols, x, y, to);
}
void attention_weights(const AttentionScores& s, void* scores, void* m, void* l, void* correction) {
  HWY_DYNAMIC_DISPATCH(Weights)(s, scores, m, l, correction);
}
void attention_slopes(const AttentionScores& s, void* scores, void* slopes,
                      const AttentionRowFacts& rows, void* added_slopes) {
  HWY_DYNAMIC_DISPATCH(Slopes)(s, scores, slopes, rows, added_slopes);
}

}  // namespace tenon::cpu
#endif
