// SPDX-License-Identifier: Apache-2.0
// selective_scan of a block of channels. The states stay in registers through the steps of a chunk,
// a few of them at a time.
#include <utility>

#include "selective_scan.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/selective_scan_forward.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// after foreach_target
#include "selective_scan-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {
namespace {

constexpr int64_t kSteps = 64;  // of a chunk: its rows stay in the first-level cache
constexpr int kTogether = HWY_TARGET <= HWY_AVX3 ? 4 : 2;  // states

struct Area {
  float *raw, *delta, *u, *input, *sum, *lines, *h, *rates;
  static constexpr int64_t kRows = kSteps + kPad;

  Area(float* p, int64_t states) {
    const auto take = [&](int64_t vectors) { return std::exchange(p, p + vectors * kLanes); };
    raw = take(kRows), delta = take(kRows), u = take(kRows), input = take(kRows), sum = take(kRows);
    lines = take(kLanes), h = take(states + kPad), rates = take(states + kPad);
  }
  static int64_t floats(int64_t states) {
    return (5 * kRows + kLanes + 2 * (states + kPad)) * kLanes;
  }
};

// States n to n + kN - 1 of `steps` steps. b and c: of state n at the first step.
template <bool kBounds, int kN>
HWY_INLINE void states_of(const Area& w, int64_t n, int64_t steps, const float* b, const float* c,
                          int64_t pitch) {
  V h[kN], rate[kN];
#pragma GCC unroll 4
  for (int k = 0; k < kN; ++k) h[k] = row(w.h, n + k), rate[k] = row(w.rates, n + k);
  for (int64_t t = 0; t < steps; ++t) {
    const V delta = row(w.delta, t), input = row(w.input, t);
    V sum = row(w.sum, t);
#pragma GCC unroll 4
    for (int k = 0; k < kN; ++k) {
      const V added = hn::Mul(input, hn::Set(D(), b[k * pitch + t]));
      h[k] = hn::MulAdd(power2<kBounds>(hn::Mul(delta, rate[k])), h[k], added);
      sum = hn::MulAdd(h[k], hn::Set(D(), c[k * pitch + t]), sum);
    }
    put(sum, w.sum, t);
  }
#pragma GCC unroll 4
  for (int k = 0; k < kN; ++k) put(h[k], w.h, n + k);
}

template <bool kBounds>
void all_states(const Scan& s, const Area& w, int64_t steps, const float* b, const float* c) {
  int64_t n = 0;
  for (; n + kTogether <= s.states; n += kTogether)
    states_of<kBounds, kTogether>(w, n, steps, b + n * s.steps, c + n * s.steps, s.steps);
  for (; n < s.states; ++n)
    states_of<kBounds, 1>(w, n, steps, b + n * s.steps, c + n * s.steps, s.steps);
}

template <class T>
void forward(const Scan& s, const ScanOperands& in, const ScanBlock& block, float* area, void* y,
             float* h_last) {
  const D d;
  const Area w(area, s.states);
  const BlockRows rows(s, block);
  rows.read_rates(in.a, w.rates);
  rows.read_states(in.h0, w.h);
  const float safe = safe_delta(w.rates, s.states);
  const float *const b = rows.shared(in.b), *const c = rows.shared(in.c);
  const V skip = rows.parameter(in.d);
  for (int64_t t = 0; t < s.steps; t += kSteps) {
    const int64_t steps = std::min(kSteps, s.steps - t);
    const bool fine = read_steps<T>(s, in, rows, t, steps, safe, w.raw, w.delta, w.u, w.input);
    for (int64_t k = 0; k < steps; ++k)
      put(in.d ? hn::Mul(skip, row(w.u, k)) : hn::Zero(d), w.sum, k);
    if (fine)
      all_states<false>(s, w, steps, b + t, c + t);
    else
      all_states<true>(s, w, steps, b + t, c + t);
    if (in.z) {
      rows.read<T>(in.z, t, steps, w.raw);
      for (int64_t k = 0; k < steps; ++k) {
        const V z = row(w.raw, k);
        put(vsigmoid(d, z).times(hn::Mul(z, row(w.sum, k))), w.sum, k);
      }
    }
    rows.write<T>(w.sum, t, steps, w.lines, y);
  }
  rows.write_states(w.h, w.lines, h_last);
}

void Forward(const Scan& s, const ScanOperands& in, const ScanBlock& block, float* area, void* y,
             float* h_last) {
  with_f32_or_half(s.dtype, [&]<class T>(T) { forward<T>(s, in, block, area, y, h_last); });
}

int64_t ForwardArea(const Scan& s) { return Area::floats(s.states); }
int64_t LanesOf() { return kLanes; }

}  // namespace
}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {

HWY_EXPORT(Forward);
HWY_EXPORT(ForwardArea);
HWY_EXPORT(LanesOf);

void scan_forward(const Scan& s, const ScanOperands& in, const ScanBlock& block, float* area,
                  void* y, float* h_last) {
  HWY_DYNAMIC_DISPATCH(Forward)(s, in, block, area, y, h_last);
}
int64_t scan_forward_area(const Scan& s) { return HWY_DYNAMIC_DISPATCH(ForwardArea)(s); }
int64_t scan_lanes() { return HWY_DYNAMIC_DISPATCH(LanesOf)(); }

}  // namespace tenon::cpu
#endif
