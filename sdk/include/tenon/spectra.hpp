// SPDX-License-Identifier: Apache-2.0
// Tables of ops of families mel and spectrum, in f64: weights of filters, and windows. Op: the struct of
// mel_filterbank or log_mel_spectrogram.
#ifndef TENON_SPECTRA_HPP
#define TENON_SPECTRA_HPP

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <string>
#include <vector>

namespace tenon::sdk {

inline double mel_of(const std::string& scale, double hertz) {
  if (scale == "htk") return 2595 * std::log10(1 + hertz / 700);
  return hertz < 1000 ? 3 * hertz / 200 : 15 + 27 * std::log(hertz / 1000) / std::log(6.4);
}
inline double hertz_of(const std::string& scale, double mel) {
  if (scale == "htk") return 700 * (std::pow(10, mel / 2595) - 1);
  return mel < 15 ? 200 * mel / 3 : 1000 * std::exp((mel - 15) * std::log(6.4) / 27);
}

// Calls f(filter, bin, weight) for each weight that is not 0, in ascending order.
template <class Op, class F>
void each_mel_weight(const Op& n, F&& f) {
  const double highest = std::isnan(n.fmax) ? n.sr / 2 : n.fmax;
  const double low = mel_of(n.scale, n.fmin), high = mel_of(n.scale, highest);
  const double step = (high - low) / static_cast<double>(n.n_mels + 1);
  const auto edge = [&](int64_t k) {
    return hertz_of(n.scale, low + step * static_cast<double>(k));
  };
  const double width = n.sr / static_cast<double>(n.n_fft);  // of a bin
  for (int64_t m = 0; m < n.n_mels; ++m) {
    const double from = edge(m), peak = edge(m + 1), to = edge(m + 2);
    const double area = n.norm == "slaney" ? 2 / (to - from) : 1;
    const auto last = std::min(static_cast<int64_t>(to / width) + 1, n.n_fft / 2);
    for (auto bin = static_cast<int64_t>(from / width); bin <= last; ++bin) {
      const double at = static_cast<double>(bin) * width;
      const double weight = std::min((at - from) / (peak - from), (to - at) / (to - peak));
      if (weight > 0) f(m, bin, area * weight);
    }
  }
}

// Hann's window as one period of a cosine: it begins with 0, unless it has one point.
inline std::vector<double> hann_window(int64_t size) {
  std::vector<double> weights;
  for (int64_t k = 0; k < size; ++k)
    weights.push_back(0.5 - 0.5 * std::cos(2 * std::numbers::pi * static_cast<double>(k) /
                                           static_cast<double>(size)));
  if (size == 1) weights[0] = 1;
  return weights;
}

}  // namespace tenon::sdk

#endif
