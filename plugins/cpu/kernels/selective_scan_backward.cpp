// SPDX-License-Identifier: Apache-2.0
// The gradients of selective_scan for a block of channels. A first pass keeps the states before each
// chunk of steps. A second one goes from the last chunk to the first, computes the states of a chunk
// again, and walks back through them.
#include <utility>

#include "selective_scan.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/selective_scan_backward.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// after foreach_target
#include "lane_sums-inl.h"
#include "selective_scan-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {
namespace {

constexpr int kTogether = 2;    // states
constexpr int64_t kSteps = 32;  // of a chunk: what a state needs stays in the first-level cache
static_assert(kSteps % kLanes == 0);

struct Area {
  float *raw, *delta, *u, *input, *dy, *sum, *through, *change;  // rows of a chunk
  float *power, *kept;                                           // of a few states
  float *lines, *g, *da, *rates, *before;  // before: the states before each chunk
  static constexpr int64_t kRows = kSteps + kPad;

  Area(float* p, int64_t states) {
    const auto take = [&](int64_t vectors) { return std::exchange(p, p + vectors * kLanes); };
    for (float** rows : {&raw, &delta, &u, &input, &dy, &sum, &through, &change})
      *rows = take(kRows);
    power = take(kTogether * kRows), kept = take(kTogether * kRows);
    lines = take(kLanes);
    g = take(states + kPad), da = take(states + kPad), rates = take(states + kPad);
    before = p;
  }
  static int64_t floats(const Scan& s) {
    const int64_t chunks = std::max<int64_t>(divide_up(s.steps, kSteps), 1);
    return ((8 + 2 * kTogether) * kRows + kLanes + 3 * (s.states + kPad) + chunks * s.states +
            kPad) *
           kLanes;
  }
};

template <class T>
class Walk {
 public:
  Walk(const Scan& s, const ScanOperands& in, const ScanBlock& block, float* area,
       const ScanGradients& out)
      : s_(s),
        in_(in),
        out_(out),
        rows_(s, block),
        w_(area, s.states),
        skip_(rows_.parameter(in.d)),
        b_(rows_.shared(in.b)),
        c_(rows_.shared(in.c)) {}

  void run() {
    rows_.read_rates(in_.a, w_.rates);
    safe_ = safe_delta(w_.rates, s_.states);
    rows_.read_states(in_.h0, w_.before);
    const int64_t chunks = divide_up(s_.steps, kSteps);
    for (int64_t k = 0; k + 1 < chunks; ++k) {
      const bool fine = read(k * kSteps, kSteps);
      fine ? keep<false>(k) : keep<true>(k);
    }
    rows_.read_states(out_.dh_last, w_.g);
    std::fill_n(w_.da, s_.states * kLanes, 0.f);
    for (int64_t k = chunks; k-- > 0;) chunk(k);
    rows_.write_states(w_.g, w_.lines, out_.dh0);
    rows_.write_states(w_.da, w_.lines, out_.da);
    rows_.write_sum(dd_, out_.dd);
    rows_.write_sum(dbias_, out_.ddt_bias);
  }

 private:
  const D d{};

  bool read(int64_t t, int64_t steps) const {
    return read_steps<T>(s_, in_, rows_, t, steps, safe_, w_.raw, w_.delta, w_.u, w_.input);
  }

  // The first pass through a chunk.
  template <bool kBounds>
  void keep(int64_t k) const {
    int64_t n = 0;
    for (; n + kTogether <= s_.states; n += kTogether) keep_states<kBounds, kTogether>(k, n);
    for (; n < s_.states; ++n) keep_states<kBounds, 1>(k, n);
  }
  template <bool kBounds, int kN>
  HWY_INLINE void keep_states(int64_t k, int64_t n) const {
    const float *const from = w_.before + k * s_.states * kLanes, *const b = b_of(n, k * kSteps);
    V h[kN], rate[kN];
#pragma GCC unroll 2
    for (int j = 0; j < kN; ++j) h[j] = row(from, n + j), rate[j] = row(w_.rates, n + j);
    for (int64_t i = 0; i < kSteps; ++i) {
      const V delta = row(w_.delta, i), input = row(w_.input, i);
#pragma GCC unroll 2
      for (int j = 0; j < kN; ++j)
        h[j] = hn::MulAdd(power2<kBounds>(hn::Mul(delta, rate[j])), h[j],
                          hn::Mul(input, hn::Set(d, b[j * s_.steps + i])));
    }
#pragma GCC unroll 2
    for (int j = 0; j < kN; ++j) put(h[j], w_.before + (k + 1) * s_.states * kLanes, n + j);
  }
  const float* b_of(int64_t n, int64_t t) const { return b_ + n * s_.steps + t; }

  void chunk(int64_t k) {
    const int64_t t = k * kSteps, steps = std::min(kSteps, s_.steps - t);
    const bool fine = read(t, steps);
    rows_.read<T>(out_.dy, t, steps, w_.dy);
    std::fill_n(w_.through, steps * kLanes, 0.f);
    std::fill_n(w_.change, steps * kLanes, 0.f);
    // Whole vectors of steps are summed.
    for (int j = 0; j < kTogether; ++j)
      for (float* rows : {w_.power, w_.kept})
        std::fill_n(rows + (j * Area::kRows + steps) * kLanes,
                    (round_up(steps, kLanes) - steps) * kLanes, 0.f);
    if (in_.z) {
      rows_.read<T>(in_.z, t, steps, w_.sum);  // becomes z, then the sum in a state's pass
      gate(steps);
    }
    fine ? states<false>(k, t, steps) : states<true>(k, t, steps);
    finish(t, steps);
  }

  // dy becomes the gradient of the sum before the gate; gates_ keeps what dz needs.
  void gate(int64_t steps) {
    for (int64_t i = 0; i < steps; ++i) {
      const V z = row(w_.sum, i), dout = row(w_.dy, i);
      const auto sigmoid = vsigmoid(d, z);
      const V value = sigmoid.value();
      // σ(z)(1 + z(1 - σ(z)))
      const V slope = hn::Mul(value, hn::MulAdd(z, sigmoid.complement(), hn::Set(d, 1.f)));
      put(hn::Mul(dout, slope), gates_, i);
      put(hn::Mul(dout, hn::Mul(z, value)), w_.dy, i);
      put(in_.d ? hn::Mul(skip_, row(w_.u, i)) : hn::Zero(d), w_.sum, i);
    }
  }

  template <bool kBounds>
  void states(int64_t k, int64_t t, int64_t steps) {
    const float* const before = w_.before + k * s_.states * kLanes;
    int64_t n = 0;
    for (; n + kTogether <= s_.states; n += kTogether)
      few_states<kBounds, kTogether>(n, before, t, steps);
    for (; n < s_.states; ++n) few_states<kBounds, 1>(n, before, t, steps);
  }

  // States from n on: forward through the chunk, then back.
  template <bool kBounds, int kN>
  HWY_INLINE void few_states(int64_t n, const float* before, int64_t t, int64_t steps) {
    const float *const b = b_of(n, t), *const c = c_ + n * s_.steps + t;
    float *power[kN], *kept[kN];
    V rate[kN], h[kN];
#pragma GCC unroll 2
    for (int j = 0; j < kN; ++j) {
      power[j] = w_.power + j * Area::kRows * kLanes, kept[j] = w_.kept + j * Area::kRows * kLanes;
      rate[j] = row(w_.rates, n + j), h[j] = row(before, n + j);
    }
    for (int64_t i = 0; i < steps; ++i) {
      const V delta = row(w_.delta, i), input = row(w_.input, i);
#pragma GCC unroll 2
      for (int j = 0; j < kN; ++j) {
        const V factor = power2<kBounds>(hn::Mul(delta, rate[j])), rest = hn::Mul(factor, h[j]);
        put(factor, power[j], i);
        put(rest, kept[j], i);
        h[j] = hn::MulAdd(input, hn::Set(d, b[j * s_.steps + i]), rest);
        if (in_.z)
          put(hn::MulAdd(h[j], hn::Set(d, c[j * s_.steps + i]), row(w_.sum, i)), w_.sum, i);
      }
    }
    V later[kN], da[kN];
#pragma GCC unroll 2
    for (int j = 0; j < kN; ++j) later[j] = row(w_.g, n + j), da[j] = row(w_.da, n + j);
    for (int64_t i = steps; i-- > 0;) {
      const V dy = row(w_.dy, i), input = row(w_.input, i), delta = row(w_.delta, i);
      V through = row(w_.through, i), all_change = row(w_.change, i);
#pragma GCC unroll 2
      for (int j = 0; j < kN; ++j) {
        const V factor = hn::Set(d, b[j * s_.steps + i]), rest = row(kept[j], i);
        const V g = hn::MulAdd(dy, hn::Set(d, c[j * s_.steps + i]), later[j]);
        const V change = hn::Mul(g, rest);
        through = hn::MulAdd(g, factor, through);
        all_change = hn::MulAdd(rate[j], change, all_change);
        da[j] = hn::MulAdd(delta, change, da[j]);
        later[j] = hn::Mul(row(power[j], i), g);
        // What the channels add to db and dc.
        put(hn::Mul(g, input), power[j], i);
        put(hn::Mul(dy, hn::MulAdd(input, factor, rest)), kept[j], i);
      }
      put(through, w_.through, i);
      put(all_change, w_.change, i);
    }
#pragma GCC unroll 2
    for (int j = 0; j < kN; ++j) {
      put(later[j], w_.g, n + j);
      put(da[j], w_.da, n + j);
      for (float* product : {power[j], kept[j]}) rows_.clear_absent(product, steps);
      add_lane_sums(power[j], steps, out_.db + (n + j) * s_.steps + t);
      add_lane_sums(kept[j], steps, out_.dc + (n + j) * s_.steps + t);
    }
  }

  void finish(int64_t t, int64_t steps) {
    for (int64_t i = 0; i < steps; ++i) {
      const V u = row(w_.u, i), dy = row(w_.dy, i), through = row(w_.through, i);
      dd_ = hn::MulAdd(dy, u, dd_);
      V du = hn::Mul(row(w_.delta, i), through);
      if (in_.d) du = hn::MulAdd(skip_, dy, du);
      V ddt = hn::MulAdd(u, through, hn::Mul(hn::Set(d, kLn2), row(w_.change, i)));
      if (s_.softplus) ddt = vsigmoid(d, row(w_.raw, i)).times(ddt);
      dbias_ = hn::Add(dbias_, ddt);
      put(du, w_.through, i);
      put(ddt, w_.change, i);
      if (out_.dz) put(hn::Mul(row(gates_, i), row(w_.sum, i)), w_.sum, i);
    }
    if (out_.du) rows_.write<T>(w_.through, t, steps, w_.lines, out_.du);
    if (out_.ddt) rows_.write<T>(w_.change, t, steps, w_.lines, out_.ddt);
    if (out_.dz) rows_.write<T>(w_.sum, t, steps, w_.lines, out_.dz);
  }

  const Scan& s_;
  const ScanOperands& in_;
  const ScanGradients& out_;
  const BlockRows rows_;
  const Area w_;
  const V skip_;
  const float *const b_, *const c_;
  float safe_ = 0;
  V dd_ = hn::Zero(D()), dbias_ = hn::Zero(D());
  HWY_ALIGN float gates_[kSteps * kLanes];
};

void Backward(const Scan& s, const ScanOperands& in, const ScanBlock& block, float* area,
              const ScanGradients& out) {
  with_f32_or_half(s.dtype, [&]<class T>(T) { Walk<T>(s, in, block, area, out).run(); });
}

int64_t BackwardArea(const Scan& s) { return Area::floats(s); }

}  // namespace
}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {

HWY_EXPORT(Backward);
HWY_EXPORT(BackwardArea);

void scan_backward(const Scan& s, const ScanOperands& in, const ScanBlock& block, float* area,
                   const ScanGradients& out) {
  HWY_DYNAMIC_DISPATCH(Backward)(s, in, block, area, out);
}
int64_t scan_backward_area(const Scan& s) { return HWY_DYNAMIC_DISPATCH(BackwardArea)(s); }

}  // namespace tenon::cpu
#endif
