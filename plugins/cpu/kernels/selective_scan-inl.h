// SPDX-License-Identifier: Apache-2.0
// What both directions of selective_scan share: a block has a channel in each lane, and its steps
// lie behind each other. Per target, as simd-inl.h.
#if defined(TENON_CPU_SELECTIVE_SCAN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TENON_CPU_SELECTIVE_SCAN_INL_H_
#undef TENON_CPU_SELECTIVE_SCAN_INL_H_
#else
#define TENON_CPU_SELECTIVE_SCAN_INL_H_
#endif

#include "math-inl.h"
#include "selective_scan.hpp"
#include "transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(D()));
constexpr int64_t kPad = kLanes;  // vectors behind the last step of a chunk that are written too

constexpr float kLog2E = 1.44269504f, kLn2 = 0.693147181f;
constexpr float kSafeExponent = 126;  // 2^x needs no bounds up to here

HWY_INLINE V row(const float* x, int64_t t) { return hn::LoadU(D(), x + t * kLanes); }
HWY_INLINE void put(V v, float* x, int64_t t) { hn::StoreU(v, D(), x + t * kLanes); }

// 2^x. Without kBounds: for |x| <= 126 only. The error shrinks with |x|, so that products of many
// powers near 1 stay accurate.
template <bool kBounds>
HWY_INLINE V power2(V x) {
  const D d;
  if constexpr (kBounds) x = greater_of(d, hn::Set(d, -152.f), less_of(d, hn::Set(d, 130.f), x));
  // Adding 1.5 2^23 rounds; the low bits are the exponent with its bias.
  const auto magic = hn::Set(d, 12582912.f + 127.f);
  const auto shifted = hn::Add(x, magic);
  const auto r = hn::Sub(x, hn::Sub(shifted, magic));
  const auto p = polynomial(d, r, 1.f, 6.931471825e-01f, 2.402264774e-01f, 5.550332367e-02f,
                            9.618436918e-03f, 1.339887502e-03f, 1.535336196e-04f);
  const hn::RebindToUnsigned<D> du;
  if constexpr (kBounds) {
    const hn::RebindToSigned<D> di;
    const auto bias = hn::Set(di, 127);
    // Two factors, as 2^n alone may be out of the range of normal numbers.
    const auto n = hn::Sub(hn::BitCast(di, shifted), hn::BitCast(di, magic));
    const auto half = hn::ShiftRight<1>(n);
    const auto power = [&](auto e) { return hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(e, bias))); };
    return hn::Mul(hn::Mul(p, power(half)), power(hn::Sub(n, half)));
  }
  return hn::Mul(p, hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(du, shifted))));
}

HWY_INLINE V load_floats(const float* p, int64_t n) {
  return n == kLanes ? hn::LoadU(D(), p) : load_n(D(), p, static_cast<size_t>(n));
}

// to[i][r] = from[r * stride + i] for `count` rows r and i in [0, length); 0 for the other lanes.
// Writes up to kPad vectors behind.
template <class T>
void gather_columns(const T* from, int64_t stride, int64_t count, int64_t length, float* to) {
  const D d;
  if (length == 1 && stride == 1) {
    put(count == kLanes ? load(d, from) : load_n(d, from, static_cast<size_t>(count)), to, 0);
    return;
  }
  for (int64_t i = 0; i < length; i += kLanes) {
    const int64_t n = std::min(kLanes, length - i);
    for (int64_t r = 0; r < kLanes; r += 4) {
      V rows[4];
      for (int64_t k = 0; k < 4; ++k) {
        const T* const p = from + (r + k) * stride + i;
        rows[k] = r + k >= count ? hn::Zero(d)
                  : n == kLanes  ? load(d, p)
                                 : load_n(d, p, static_cast<size_t>(n));
      }
      store_columns(rows, to + i * kLanes + r, kLanes);
    }
  }
}
// The other way. `from` has room for kPad vectors behind; lines: room for kLanes * kLanes floats.
template <class T>
void scatter_columns(const float* from, int64_t count, int64_t length, float* lines, T* to,
                     int64_t stride) {
  const D d;
  if (length == 1 && stride == 1) {
    if (count == kLanes) return store(d, row(from, 0), to);
    return store_n(d, row(from, 0), to, static_cast<size_t>(count));
  }
  for (int64_t i = 0; i < length; i += kLanes) {
    for (int64_t t = 0; t < kLanes; t += 4) {
      const V rows[4] = {row(from, i + t), row(from, i + t + 1), row(from, i + t + 2),
                         row(from, i + t + 3)};
      store_columns(rows, lines + t, kLanes);
    }
    const int64_t n = std::min(kLanes, length - i);
    for (int64_t r = 0; r < count; ++r) {
      if (n == kLanes)
        store(d, row(lines, r), to + r * stride + i);
      else
        store_n(d, row(lines, r), to + r * stride + i, static_cast<size_t>(n));
    }
  }
}

// A block and its parameters, a channel in each lane.
class BlockRows {
 public:
  BlockRows(const Scan& s, const ScanBlock& block) : s_(s), block_(block) {}

  // The steps from t on of an operand with the shape of u.
  template <class T>
  void read(const void* operand, int64_t t, int64_t steps, float* to) const {
    const T* const from = static_cast<const T*>(operand) + place(t);
    if (s_.bdl) return gather_columns(from, s_.steps, block_.count, steps, to);
    for (int64_t k = 0; k < steps; ++k) {
      const T* const p = from + k * s_.channels;
      put(block_.count == kLanes ? load(D(), p) : load_n(D(), p, static_cast<size_t>(block_.count)),
          to, k);
    }
  }
  template <class T>
  void write(const float* from, int64_t t, int64_t steps, float* lines, void* operand) const {
    T* const to = static_cast<T*>(operand) + place(t);
    if (s_.bdl) return scatter_columns(from, block_.count, steps, lines, to, s_.steps);
    for (int64_t k = 0; k < steps; ++k) {
      if (block_.count == kLanes)
        store(D(), row(from, k), to + k * s_.channels);
      else
        store_n(D(), row(from, k), to + k * s_.channels, static_cast<size_t>(block_.count));
    }
  }
  // Of [D], or 0.
  V parameter(const float* p) const {
    return p ? load_floats(p + block_.first, block_.count) : hn::Zero(D());
  }
  // Of [B, D].
  void write_sum(V v, float* to) const {
    if (to) store_n_or_all(v, to + block_.sequence * s_.channels + block_.first);
  }
  // States of [B, D, N], zeros if absent, and back.
  void read_states(const float* given, float* to) const {
    if (given)
      gather_columns(given + state_place(), s_.states, block_.count, s_.states, to);
    else
      std::fill_n(to, s_.states * kLanes, 0.f);
  }
  // Zeros in the lanes without a channel: 0 times an infinite b or c has made NaN there.
  void clear_absent(float* x, int64_t steps) const {
    if (block_.count == kLanes) return;
    const auto present = hn::FirstN(D(), static_cast<size_t>(block_.count));
    for (int64_t i = 0; i < steps; ++i) put(hn::IfThenElseZero(present, row(x, i)), x, i);
  }
  void write_states(const float* from, float* lines, float* to) const {
    if (to) scatter_columns(from, block_.count, s_.states, lines, to + state_place(), s_.states);
  }
  // a·log2 e, from [D, N].
  void read_rates(const float* a, float* to) const {
    gather_columns(a + block_.first * s_.states, s_.states, block_.count, s_.states, to);
    for (int64_t n = 0; n < s_.states; ++n) put(hn::Mul(row(to, n), hn::Set(D(), kLog2E)), to, n);
  }
  // Of b or c: floats [B, G, N, L].
  const float* shared(const float* x) const {
    return x + (block_.sequence * s_.groups + block_.group) * s_.states * s_.steps;
  }

 private:
  int64_t place(int64_t t) const {
    return s_.bdl ? (block_.sequence * s_.channels + block_.first) * s_.steps + t
                  : (block_.sequence * s_.steps + t) * s_.channels + block_.first;
  }
  int64_t state_place() const { return (block_.sequence * s_.channels + block_.first) * s_.states; }
  void store_n_or_all(V v, float* to) const {
    if (block_.count == kLanes)
      hn::StoreU(v, D(), to);
    else
      store_n(D(), v, to, static_cast<size_t>(block_.count));
  }

  const Scan& s_;
  const ScanBlock& block_;
};

// The largest δ for which no exponent of the block leaves the range of power2<false>.
HWY_INLINE float safe_delta(const float* rates, int64_t states) {
  const D d;
  V most = hn::Zero(d);
  for (int64_t n = 0; n < states; ++n) most = hn::Max(most, hn::Abs(row(rates, n)));
  return kSafeExponent / hn::GetLane(hn::MaxOfLanes(d, most));
}

// Reads dt and u of some steps: raw becomes dt with its bias, delta δ, input δ·u. Returns whether
// every δ is below `safe`.
template <class T>
bool read_steps(const Scan& s, const ScanOperands& in, const BlockRows& rows, int64_t t,
                int64_t steps, float safe, float* raw, float* delta, float* u, float* input) {
  const D d;
  rows.read<T>(in.dt, t, steps, raw);
  rows.read<T>(in.u, t, steps, u);
  const V bias = rows.parameter(in.dt_bias), limit = hn::Set(d, safe);
  auto fine = hn::Eq(limit, limit);
  for (int64_t k = 0; k < steps; ++k) {
    V x = hn::Add(row(raw, k), bias);
    put(x, raw, k);
    if (s.softplus) x = vsoftplus(d, x);
    fine = hn::And(fine, hn::Lt(hn::Abs(x), limit));
    put(x, delta, k);
    put(hn::Mul(x, row(u, k)), input, k);
  }
  return hn::AllTrue(d, fine);
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
