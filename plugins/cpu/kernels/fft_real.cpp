// SPDX-License-Identifier: Apache-2.0
// Real rows as complex ones, and the halves of symmetric spectra.
#include "fft_real.hpp"

#include <algorithm>

namespace tenon::cpu {

RealTransform::RealTransform(int64_t n, bool inverse, double factor, int64_t count)
    : n_(n),
      inverse_(inverse),
      plan_(n % 2 == 0 ? n / 2 : n, inverse, factor, fft_lanes(), count) {}

void RealTransform::fill() {
  std::call_once(filled_, [this] {
    plan_.fill();
    if (even()) roots_ = fft_roots(n_);
  });
}

void RealTransform::run(const float* x, float* y, int64_t count, float* scratch) const {
  float* rest = scratch + rows_floats();
  if (inverse_)
    from_bins(x, y, count, scratch, rest);
  else
    to_bins(x, y, count, scratch, rest);
}

void RealTransform::to_bins(const float* x, float* y, int64_t count, float* rows,
                            float* scratch) const {
  if (even()) {
    fft_group(plan_, x, rows, count, scratch);
    for (int64_t r = 0; r < count; ++r)
      fft_split_bins(rows + r * n_, roots_.data(), y + r * 2 * bins(), n_ / 2);
    return;
  }
  for (int64_t i = 0; i < count * n_; ++i) rows[2 * i] = x[i], rows[2 * i + 1] = 0;
  fft_group(plan_, rows, rows, count, scratch);
  for (int64_t r = 0; r < count; ++r)
    std::copy_n(rows + r * 2 * n_, 2 * bins(), y + r * 2 * bins());
}

void RealTransform::from_bins(const float* x, float* y, int64_t count, float* rows,
                              float* scratch) const {
  if (even()) {
    for (int64_t r = 0; r < count; ++r)
      fft_join_bins(x + r * 2 * bins(), roots_.data(), rows + r * n_, n_ / 2);
    return fft_group(plan_, rows, y, count, scratch);
  }
  for (int64_t r = 0; r < count; ++r) {
    const float* from = x + r * 2 * bins();
    float* to = rows + r * 2 * n_;
    to[0] = from[0], to[1] = 0;
    for (int64_t k = 1; k < bins(); ++k) {
      to[2 * k] = to[2 * (n_ - k)] = from[2 * k];
      to[2 * k + 1] = from[2 * k + 1];
      to[2 * (n_ - k) + 1] = -from[2 * k + 1];
    }
  }
  fft_group(plan_, rows, rows, count, scratch);
  for (int64_t i = 0; i < count * n_; ++i) y[i] = rows[2 * i];
}

}  // namespace tenon::cpu
