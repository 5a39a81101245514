// SPDX-License-Identifier: Apache-2.0
// spectrum_peaks of f32: each row by itself. The planner decomposes complex ones into powers.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "slots.hpp"
#include "spectrum.hpp"

namespace tenon::cpu {
namespace {

// The middles of runs of equal numbers between smaller ones. Returns how many.
int64_t local_maxima(const PeakRule& r, const float* x, int32_t* peaks) {
  int64_t count = 0;
  for (int64_t i = 1; i + 1 < r.bins; ++i) {
    if (!(x[i - 1] < x[i])) continue;
    int64_t end = i + 1;
    while (end < r.bins && x[end] == x[i]) ++end;
    if (end < r.bins && x[end] < x[i] && !(r.has_height && x[i] < r.height))
      peaks[count++] = static_cast<int32_t>((i + end - 1) / 2);
    i = end - 1;
  }
  return count;
}

// Drops peaks that are nearer than min_distance to a larger one that stays. Of equal peaks the last
// one counts as the larger one. order: room for `count` numbers.
int64_t apart(const PeakRule& r, const float* x, int32_t* peaks, int64_t count, int32_t* order) {
  std::iota(order, order + count, 0);
  std::sort(order, order + count, [&](int32_t a, int32_t b) {
    const float pa = x[peaks[a]], pb = x[peaks[b]];
    return pa != pb ? pa > pb : a > b;
  });
  // A dropped peak becomes its complement, which is negative.
  const auto place = [&](int64_t k) { return peaks[k] < 0 ? ~peaks[k] : peaks[k]; };
  for (int64_t j = 0; j < count; ++j) {
    const int64_t k = order[j];
    if (peaks[k] < 0) continue;
    for (int64_t l = k - 1; l >= 0 && peaks[k] - place(l) < r.min_distance; --l)
      peaks[l] = ~place(l);
    for (int64_t l = k + 1; l < count && place(l) - peaks[k] < r.min_distance; ++l)
      peaks[l] = ~place(l);
  }
  return std::remove_if(peaks, peaks + count, [](int32_t p) { return p < 0; }) - peaks;
}

bool is_prominent(const PeakRule& r, const float* x, int64_t peak) {
  float left = x[peak], right = x[peak];
  for (int64_t i = peak; i >= 0 && x[i] <= x[peak]; --i) left = std::min(left, x[i]);
  for (int64_t i = peak; i < r.bins && x[i] <= x[peak]; ++i) right = std::min(right, x[i]);
  return x[peak] - std::max(left, right) >= r.prominence;
}

}  // namespace

int32_t find_peaks(const PeakRule& r, const float* x, int32_t* area, int32_t* index, float* power) {
  int64_t count = r.bins;
  if (r.top) {
    std::iota(area, area + count, 0);
  } else {
    count = local_maxima(r, x, area);
    if (r.min_distance > 1) count = apart(r, x, area, count, area + r.bins);
    if (r.prominence > 0)
      count =
          std::remove_if(area, area + count, [&](int32_t p) { return !is_prominent(r, x, p); }) -
          area;
  }
  const int64_t used = std::min(count, r.k);
  std::partial_sort(area, area + used, area + count, [&](int32_t a, int32_t b) {
    const bool last = std::isnan(x[a]), other = std::isnan(x[b]);
    if (last || other) return last != other ? other : a < b;
    return x[a] != x[b] ? x[a] > x[b] : a < b;
  });
  for (int64_t j = 0; j < r.k; ++j) {
    index[j] = j < used ? area[j] : -1;
    power[j] = j < used ? x[area[j]] : 0;
  }
  return static_cast<int32_t>(used);
}

namespace {

Slots slots_of(const PeakRows& p) {
  return make_slots(p.rows, p.rule.area() * static_cast<int64_t>(sizeof(int32_t)), p.rule.bins * 8);
}

}  // namespace

uint64_t PeakRows::scratch() const { return slots_of(*this).scratch(); }

void PeakRows::run(const float* x, void* scratch, int32_t* index, float* power,
                   int32_t* count) const {
  slots_of(*this).run(scratch, [&](int64_t begin, int64_t end, char* area) {
    for (int64_t r = begin; r < end; ++r)
      count[r] = find_peaks(rule, x + r * rule.bins, reinterpret_cast<int32_t*>(area),
                            index + r * rule.k, power + r * rule.k);
  });
}

sdk::Kernel make_spectrum_peaks(const sdk::op::spectrum_peaks& n, const sdk::Node&) {
  const sdk::Type& x = n.x.type();
  if (x.dtype != TENON_DTYPE_F32) throw sdk::Refusal::dtype("x", x.dtype);
  const PeakRows peaks{peak_rule(n, x.dims[1]), x.dims[0]};
  return {.run =
              [peaks](const sdk::Call& c) {
                peaks.run(c.in<float>(0), c.scratch, c.out<int32_t>(0), c.out<float>(1),
                          c.out<int32_t>(2));
              },
          .scratch = peaks.scratch()};
}

}  // namespace tenon::cpu
