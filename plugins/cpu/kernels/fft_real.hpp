// SPDX-License-Identifier: Apache-2.0
// Transforms of rows of real numbers to bins 0 to n/2, and back. An even length is a complex
// transform of half of it.
#pragma once

#include "fft_plan.hpp"

namespace tenon::cpu {

class RealTransform {
 public:
  // inverse: from bins to real numbers. count: how many rows there are.
  RealTransform(int64_t n, bool inverse, double factor, int64_t count);
  void fill();  // the tables, once, before the first run; any thread
  int64_t points() const { return n_; }
  int64_t bins() const { return n_ / 2 + 1; }
  int64_t group() const { return plan_.group(); }  // rows that are computed together
  int64_t scratch_floats() const { return rows_floats() + plan_.scratch_floats(); }
  // `count` rows, at most group().
  void run(const float* x, float* y, int64_t count, float* scratch) const;

 private:
  bool even() const { return n_ % 2 == 0; }
  int64_t rows_floats() const { return (group() * plan_.n * 2 + 15) / 16 * 16; }
  void to_bins(const float* x, float* y, int64_t count, float* rows, float* scratch) const;
  void from_bins(const float* x, float* y, int64_t count, float* rows, float* scratch) const;

  int64_t n_;
  bool inverse_;
  FftPlan plan_;
  std::vector<float> roots_;  // even lengths
  std::once_flag filled_;
};

}  // namespace tenon::cpu
