// SPDX-License-Identifier: Apache-2.0
// sample: temperature, top-k, top-p, min-p and the draw, row by row. Weights are e^((x - max) /
// temperature), so the largest is 1. Sums of weights are in double and in index order.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <string>

#include "../parallel.hpp"
#include "axis.hpp"
#include "convert.hpp"
#include "order.hpp"
#include "philox.hpp"
#include "random.hpp"
#include "slots.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/random_sample.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <hwy/contrib/math/math-inl.h>

#include "simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

// The largest of x[0, n), n >= 1; NaN if there is one.
float max_logit(const float* x, int64_t n) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto best = hn::Set(d, -std::numeric_limits<float>::infinity());
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) best = max_nan(d, best, hn::LoadU(d, x + i));
  if (i < n)
    best = max_nan(d, best, load_n(d, x + i, n - i, -std::numeric_limits<float>::infinity()));
  HWY_ALIGN float all[hn::MaxLanes(d)];
  hn::Store(best, d, all);
  float largest = all[0];
  for (int64_t k = 1; k < lanes; ++k) largest = !(all[k] <= largest) ? all[k] : largest;
  for (int64_t k = 0; k < lanes; ++k)
    if (std::isnan(all[k])) return all[k];
  return largest;
}

// w = e^((x - top) / temperature), or 0 if that is below `least`.
void weigh(const float* x, int64_t n, float top, float temperature, float least, float* w) {
  const hn::ScalableTag<float> d;
  const auto vtop = hn::Set(d, top), vtemperature = hn::Set(d, temperature);
  const auto vleast = hn::Set(d, least);
  map(
      d, n,
      [&](auto, auto v) HWY_ATTR {
        const auto weight = hn::Exp(d, hn::Div(hn::Sub(v, vtop), vtemperature));
        return hn::IfThenElseZero(hn::Ge(weight, vleast), weight);
      },
      w, x);
}

double sum_weights(const float* w, int64_t n) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> df;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto sum = hn::Zero(d);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) sum = hn::Add(sum, hn::PromoteTo(d, hn::LoadU(df, w + i)));
  double total = hn::GetLane(hn::SumOfLanes(d, sum));
  for (; i < n; ++i) total += w[i];
  return total;
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {
HWY_EXPORT(max_logit);
HWY_EXPORT(weigh);
HWY_EXPORT(sum_weights);
namespace {

using sdk::Call;
using sdk::Kernel;
using sdk::Node;

// Weights per block when the draw searches for its position.
constexpr int64_t kBlock = 256;

struct Drawn {
  int64_t id = -1;
  float logprob = 0;
};

struct Sample {
  tenon_dtype dtype = TENON_DTYPE_NONE;
  int64_t rows = 0;
  int64_t columns = 0;
  float temperature = 1;
  int64_t top_k = 0;  // 0 = all
  double top_p = 1;
  float min_p = 0;
  bool want_logprob = false;

  bool by_count() const { return top_k > 0; }
  bool by_mass() const { return top_p < 1; }
  int64_t room() const {
    if (by_count()) return top_room(columns, top_k);
    return by_mass() ? top_room(columns, columns) : 0;
  }
  int64_t area() const {
    return room() * static_cast<int64_t>(sizeof(Ranked)) + 2 * columns * int64_t{sizeof(float)};
  }

  // The number of best-first entries that hold the share top_p of `total`; 0 if it exceeds `count`.
  int64_t prefix(const Ranked* best, int64_t count, const float* w, double total) const {
    double before = 0;
    for (int64_t i = 0; i < count; ++i) {
      before += w[best[i].index];
      if (before >= top_p * total) return i + 1;
    }
    return 0;
  }

  // The entries that top-k and top-p select, best first.
  int64_t keep(const float* x, const float* w, Ranked* best) const {
    if (by_count()) {
      top_of_row(x, columns, top_k, best);
      if (!by_mass()) return top_k;
      double total = 0;
      for (int64_t i = 0; i < top_k; ++i) total += w[best[i].index];
      const int64_t n = prefix(best, top_k, w, total);
      return n > 0 ? n : top_k;
    }
    const double total = HWY_DYNAMIC_DISPATCH(sum_weights)(w, columns);
    for (int64_t k = std::min<int64_t>(columns, 256);; k = std::min(columns, 8 * k)) {
      top_of_row(x, columns, k, best);
      const int64_t n = prefix(best, k, w, total);
      if (n > 0) return n;
      if (k == columns) return k;
    }
  }

  // The first of n selected entries, in index order, at which the cumulative weight exceeds the
  // share u.
  Drawn draw_selected(Ranked* selected, int64_t n, const float* w, double u) const {
    std::sort(selected, selected + n,
              [](const Ranked& a, const Ranked& b) { return a.index < b.index; });
    const auto weight = [&](int64_t i) {
      const float value = w[selected[i].index];
      return value >= min_p ? value : 0.0f;
    };
    double total = 0, sum = 0;
    for (int64_t i = 0; i < n; ++i) total += weight(i);
    int64_t at = 0;
    for (int64_t i = 0; i < n && sum <= u * total; ++i)
      if (weight(i) > 0) sum += weight(i), at = i;
    return {selected[at].index, static_cast<float>(std::log(weight(at) / total))};
  }

  Drawn draw_any(const float* w, double u) const {
    const auto sum_weights = HWY_DYNAMIC_DISPATCH(sum_weights);
    double total = 0, sum = 0;
    const auto block = [&](int64_t i) { return sum_weights(w + i, std::min(kBlock, columns - i)); };
    for (int64_t i = 0; i < columns; i += kBlock) total += block(i);
    int64_t begin = 0;
    for (; begin + kBlock < columns; begin += kBlock) {
      const double next = sum + block(begin);
      if (next > u * total) break;
      sum = next;
    }
    int64_t at = -1;
    for (int64_t i = begin; i < std::min(columns, begin + kBlock) && sum <= u * total; ++i)
      if (w[i] > 0) sum += w[i], at = i;
    // Rounding may leave no candidate in the last block. Then the last weight before it is
    // selected.
    if (at < 0)
      for (at = begin - 1; w[at] == 0;) --at;
    return {at, static_cast<float>(std::log(w[at] / total))};
  }

  // Returns id -1 if the row has no valid result.
  Drawn row(const float* x, double u, float* w, Ranked* best) const {
    const float top = HWY_DYNAMIC_DISPATCH(max_logit)(x, columns);
    if (!std::isfinite(top)) return {};
    if (temperature == 0) return {std::find(x, x + columns, top) - x, 0};
    const bool filtered = by_count() || by_mass();
    HWY_DYNAMIC_DISPATCH(weigh)(x, columns, top, temperature, filtered ? 0 : min_p, w);
    return filtered ? draw_selected(best, keep(x, w, best), w, u) : draw_any(w, u);
  }

  const float* logits(const Call& c, int64_t r, float* wide) const {
    if (dtype == TENON_DTYPE_F32) return c.in<float>(0) + r * columns;
    if (dtype == TENON_DTYPE_F64) {
      const double* x = c.in<double>(0) + r * columns;
      std::transform(x, x + columns, wide, [](double v) { return static_cast<float>(v); });
    } else {
      widen(dtype, c.in<uint16_t>(0) + r * columns, wide, columns);
    }
    return wide;
  }

  void run(const Call& c, const Slots& slots) const {
    const Rng rng = Rng::read(c.inputs[1]);
    std::atomic<int64_t> bad{rows};
    slots.run(c.scratch, [&](int64_t begin, int64_t end, char* area) {
      Ranked* best = reinterpret_cast<Ranked*>(area);
      float* w = reinterpret_cast<float*>(best + room());
      for (int64_t r = begin; r < end; ++r) {
        const PhiloxBlock words = rng.block(static_cast<uint64_t>(r));
        const Drawn drawn = row(logits(c, r, w + columns), uniform53(words[0], words[1]), w, best);
        c.out<int64_t>(0)[r] = drawn.id;
        if (want_logprob) c.out<float>(1)[r] = drawn.logprob;
        if (drawn.id >= 0) continue;
        for (int64_t seen = bad; r < seen && !bad.compare_exchange_weak(seen, r);) {
        }
      }
    });
    if (bad < rows)
      throw sdk::Failure(
          TENON_NUMERIC_ERROR,
          "operand logits: row " + std::to_string(bad) + " has a NaN, +inf, or no finite logit",
          bad);
  }
};

}  // namespace

Kernel make_sample(const sdk::op::sample& n, const Node&) {
  const sdk::Type& x = n.logits.type();
  if (!is_float(x.dtype)) throw sdk::Refusal::dtype("logits", x.dtype);
  // f32 cannot represent temperatures below 1e-38, and 1e-30 already selects the largest logit.
  constexpr double kColdest = 1e-30;
  Sample s;
  s.dtype = x.dtype;
  s.rows = x.dims[0];
  s.columns = x.dims[1];
  s.temperature = n.temperature == 0 ? 0.0f : static_cast<float>(std::max(n.temperature, kColdest));
  s.top_k = n.top_k < s.columns ? n.top_k : 0;
  s.top_p = n.top_p;
  s.min_p = static_cast<float>(n.min_p);
  s.want_logprob = n.want_logprob;
  const Slots slots = make_slots(s.rows, s.area(), 16 * s.columns);
  return {.run = [s, slots](const Call& c) { s.run(c, slots); }, .scratch = slots.scratch()};
}

}  // namespace tenon::cpu
#endif
