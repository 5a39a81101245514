// SPDX-License-Identifier: Apache-2.0
// Shared by the kernels of the spectrum family.
#pragma once

#include <cstdint>

#include "tenon/kernel.hpp"

namespace tenon::cpu {

// ---- segments, dispatched by instruction set: spectrum_vector.cpp

enum class Trend : uint8_t { none, constant, linear };

// to = (x without its trend) w, n numbers.
void cut_segment(const float* x, const float* w, int64_t n, Trend trend, float* to);
// sums[f] += |bins[f]|^2
void add_powers(const float* bins, int64_t n, float* sums);

// ---- peaks: spectrum_peaks.cpp

struct PeakRule {
  int64_t bins = 0, k = 1;
  bool top = false;  // the largest bins, peaks or not
  bool has_height = false;
  float height = 0;
  int64_t min_distance = 1;
  float prominence = 0;

  int64_t area() const { return 2 * bins; }  // of a work area
};
template <class Op>
PeakRule peak_rule(const Op& n, int64_t bins) {
  if (n.select != "local_maxima" && n.select != "top_bins")
    throw sdk::Refusal::attribute("select", n.select);
  return {.bins = bins,
          .k = n.k,
          .top = n.select == "top_bins",
          .has_height = n.height == n.height,
          .height = static_cast<float>(n.height),
          .min_distance = n.min_distance,
          .prominence = static_cast<float>(n.prominence)};
}
// Writes k slots. Returns how many are used.
int32_t find_peaks(const PeakRule& rule, const float* x, int32_t* area, int32_t* index,
                   float* power);
// Of `rows` spectra: the outputs of a node.
struct PeakRows {
  PeakRule rule;
  int64_t rows = 0;
  uint64_t scratch() const;
  void run(const float* x, void* scratch, int32_t* index, float* power, int32_t* count) const;
};

sdk::Kernel make_spectrum_peaks(const sdk::op::spectrum_peaks& n, const sdk::Node& node);

}  // namespace tenon::cpu
