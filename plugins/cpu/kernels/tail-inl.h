// SPDX-License-Identifier: Apache-2.0
// gelu and silu, as max(x, 0) - |x| F(|x|) with a tail F: Phi(-a) or 1/(1 + e^a). On targets that
// permute two registers in one instruction, F is a table of polynomials, one for each of 32
// intervals, with all coefficients in registers. Lanes are independent. Per target, as simd-inl.h.
#if defined(TENON_CPU_TAIL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TENON_CPU_TAIL_INL_H_
#undef TENON_CPU_TAIL_INL_H_
#else
#define TENON_CPU_TAIL_INL_H_
#endif

#include <utility>

#include "math-inl.h"
#include "tail_table.hpp"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

// For any x.
template <class D>
HWY_NOINLINE hn::Vec<D> gelu_anywhere(D d, hn::Vec<D> x) {
  const auto normal = vnormal(d, x);
  const auto above =
      hn::Mul(x, hn::NegMulAdd(normal.density.value(), normal.ratio, hn::Set(d, 1.f)));
  return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), normal.density.times(hn::Mul(x, normal.ratio)),
                        above);
}
template <class D>
HWY_NOINLINE hn::Vec<D> silu_anywhere(D d, hn::Vec<D> x) {
  return vsigmoid(d, x).times(x);
}
// silu and its slope.
template <class V>
struct Gate {
  V value, slope;
};
template <class D>
HWY_NOINLINE Gate<hn::Vec<D>> silu_gate_anywhere(D d, hn::Vec<D> x) {
  const auto s = vsigmoid(d, x);
  return {s.times(x), s.times(hn::MulAdd(x, s.complement(), hn::Set(d, 1.f)))};
}

#if HWY_TARGET <= HWY_AVX3

// F(a) where the table covers a >= 0. In interval i, centred at i step, a polynomial of a - i step.
// Accurate to 2 ulp.
template <int Degree>
class PieceTable {
  using D = hn::ScalableTag<float>;
  using V = hn::Vec<D>;

 public:
  explicit HWY_INLINE PieceTable(const TailTable<Degree>& t)
      : step_(hn::Set(D(), t.step)),
        scale_(hn::Set(D(), 1 / t.step)),
        limit_(hn::Set(D(), 31.5f * t.step)) {
    fill(t, std::make_index_sequence<Degree + 1>());
  }
  HWY_INLINE hn::Mask<D> covers(V a) const { return hn::Lt(a, limit_); }
  HWY_INLINE V operator()(V a) const {
    // Adding 1.5 2^23 rounds to an integer in the low bits.
    const auto magic = hn::Set(D(), 12582912.f);
    const auto shifted = hn::MulAdd(a, scale_, magic);
    const auto t = hn::NegMulAdd(hn::Sub(shifted, magic), step_, a);
    return horner<0>(_mm512_castps_si512(shifted.raw), t);
  }

 private:
  // Unrolled by hand: an array indexed by a variable would stay in memory.
  template <size_t... K>
  HWY_INLINE void fill(const TailTable<Degree>& t, std::index_sequence<K...>) {
    ((low_[K] = hn::LoadU(D(), t.coefficients[K])), ...);
    ((high_[K] = hn::LoadU(D(), t.coefficients[K] + 16)), ...);
  }
  template <int K>
  HWY_INLINE V horner(__m512i piece, V t) const {
    const V c{_mm512_permutex2var_ps(low_[K].raw, piece, high_[K].raw)};
    if constexpr (K == Degree)
      return c;
    else
      return hn::MulAdd(horner<K + 1>(piece, t), t, c);
  }

  V step_, scale_, limit_;
  V low_[Degree + 1], high_[Degree + 1];
};

// Vector functors, constructed before the loop.
class Gelu {
  using D = hn::ScalableTag<float>;

 public:
  HWY_INLINE Gelu() : tail_(kNormalTail) {}
  HWY_INLINE hn::Vec<D> operator()(hn::Vec<D> x) const {
    const auto a = hn::Abs(x), y = hn::NegMulAdd(a, tail_(a), hn::Max(x, hn::Zero(D())));
    const auto covered = tail_.covers(a);
    if (HWY_LIKELY(hn::AllTrue(D(), covered))) return y;
    return hn::IfThenElse(covered, y, gelu_anywhere(D(), x));
  }

 private:
  PieceTable<6> tail_;
};
class Silu {
  using D = hn::ScalableTag<float>;
  using V = hn::Vec<D>;

 public:
  HWY_INLINE Silu() : tail_(kLogisticTail) {}
  HWY_INLINE V operator()(V x) const {
    const auto a = hn::Abs(x), y = hn::NegMulAdd(a, tail_(a), hn::Max(x, hn::Zero(D())));
    const auto covered = tail_.covers(a);
    if (HWY_LIKELY(hn::AllTrue(D(), covered))) return y;
    return hn::IfThenElse(covered, y, silu_anywhere(D(), x));
  }
  HWY_INLINE Gate<V> gate(V x) const {
    const auto a = hn::Abs(x), one = hn::Set(D(), 1.f), zero = hn::Zero(D());
    // The slope has the symmetry of the sigmoid: with s at -a, it is s (1 - a (1 - s)) at -a.
    const auto s = tail_(a);
    const auto below = hn::Mul(s, hn::NegMulAdd(a, hn::Sub(one, s), one));
    const auto value = hn::NegMulAdd(a, s, hn::Max(x, zero));
    const auto slope = hn::IfThenElse(hn::Lt(x, zero), below, hn::Sub(one, below));
    const auto covered = tail_.covers(a);
    if (HWY_LIKELY(hn::AllTrue(D(), covered))) return {value, slope};
    const auto far = silu_gate_anywhere(D(), x);
    return {hn::IfThenElse(covered, value, far.value), hn::IfThenElse(covered, slope, far.slope)};
  }

 private:
  PieceTable<5> tail_;
};

#else

class Gelu {
  using D = hn::ScalableTag<float>;

 public:
  // For |x| < 9 nothing is subnormal, and e^(-x^2/2) needs no second factor.
  HWY_INLINE hn::Vec<D> operator()(hn::Vec<D> x) const {
    const D d;
    const auto a = hn::Abs(x);
    const auto covered = hn::Lt(a, hn::Set(d, 9.f));
    const auto square = product(d, a, a);
    const auto density = vexp_weight(d, hn::Mul(square.hi, hn::Set(d, -0.5f)));
    const auto rest = hn::Mul(square.lo, hn::Set(d, -0.5f));
    const auto tail =
        hn::Mul(hn::MulAdd(density, rest, density), tail_ratio(d, hn::Add(a, hn::Set(d, 4.f))));
    const auto y =
        hn::Mul(x, hn::IfThenElse(hn::Lt(x, hn::Zero(d)), tail, hn::Sub(hn::Set(d, 1.f), tail)));
    if (HWY_LIKELY(hn::AllTrue(d, covered))) return y;
    return hn::IfThenElse(covered, y, gelu_anywhere(d, x));
  }
};
class Silu {
  using D = hn::ScalableTag<float>;
  using V = hn::Vec<D>;

 public:
  HWY_INLINE V operator()(V x) const {
    const auto covered = covers(x);
    const auto s = logistic(x);
    const auto y = hn::Mul(x, hn::IfThenElse(s.negative, s.small, s.large));
    if (HWY_LIKELY(hn::AllTrue(D(), covered))) return y;
    return hn::IfThenElse(covered, y, silu_anywhere(D(), x));
  }
  HWY_INLINE Gate<V> gate(V x) const {
    const auto covered = covers(x);
    const auto s = logistic(x);
    const auto above = hn::IfThenElse(s.negative, s.small, s.large);
    const auto below = hn::IfThenElse(s.negative, s.large, s.small);
    const auto value = hn::Mul(x, above);
    const auto slope = hn::Mul(above, hn::MulAdd(x, below, hn::Set(D(), 1.f)));
    if (HWY_LIKELY(hn::AllTrue(D(), covered))) return {value, slope};
    const auto far = silu_gate_anywhere(D(), x);
    return {hn::IfThenElse(covered, value, far.value), hn::IfThenElse(covered, slope, far.slope)};
  }

 private:
  // 1 / (1 + e^-|x|) and 1 / (1 + e^|x|)
  struct Logistic {
    hn::Mask<D> negative;
    V large, small;
  };
  // Here nothing is subnormal, and e^-|x| needs no second factor.
  HWY_INLINE hn::Mask<D> covers(V x) const { return hn::Lt(hn::Abs(x), hn::Set(D(), 80.f)); }
  HWY_INLINE Logistic logistic(V x) const {
    const auto one = hn::Set(D(), 1.f);
    const auto e = vexp_weight(D(), hn::Neg(hn::Abs(x)));
    const auto large = hn::Div(one, hn::Add(one, e));
    return {hn::Lt(x, hn::Zero(D())), large, hn::Mul(e, large)};
  }
};

#endif

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
