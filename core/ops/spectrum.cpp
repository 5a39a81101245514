// SPDX-License-Identifier: Apache-2.0
// Records of welch_psd and welch_peaks: specification 11. Peaks of a spectrum are in
// spectrum_peaks.cpp.
#include "ops/spectrum.hpp"

#include <cmath>

#include "ops/padded.hpp"
#include "ops/table.hpp"
#include "tenon/spectra.hpp"

namespace tenon::core {
namespace {

constexpr std::string_view kTrends = "constant none linear", kScalings = "density spectrum";
constexpr std::string_view kAverages = "mean median";

// ---- welch_psd

struct Segments {
  int64_t size, step, points, bins;

  template <class Op>
  explicit Segments(const Op& n)
      : size(n.nperseg),
        step(size - (n.noverlap < 0 ? size / 2 : n.noverlap)),
        points(n.nfft == 0 ? size : n.nfft),
        bins(n.onesided ? points / 2 + 1 : points) {}
  int64_t count(int64_t samples) const { return (samples - size) / step + 1; }
};

// Checks the operands and attributes. Returns the type of the spectrum.
template <class Op>
Type psd_type(const Infer& i, const Op& n) {
  const Type& x = i.type(n.x);
  want_real(i, n.x);
  i.want_rank(n.x, "x", 2);
  want_points(i, "attribute nperseg", n.nperseg);
  const Segments s(n);
  if (n.nperseg > x.shape[1])
    i.fail(Code::invalid_argument, "attribute nperseg: expected at most the samples of x, ",
           x.text(), ", given ", n.nperseg);
  if (n.noverlap < -1 || n.noverlap >= n.nperseg)
    i.fail(Code::invalid_argument, "attribute noverlap: expected -1 to nperseg - 1, ",
           n.nperseg - 1, ", given ", n.noverlap);
  want_points(i, "attribute nfft", s.points);
  if (s.points < n.nperseg)
    i.fail(Code::invalid_argument, "attribute nfft: expected 0, or nperseg, ", n.nperseg,
           ", or more, given ", n.nfft);
  if (!(n.fs > 0) || !std::isfinite(n.fs))
    i.fail(Code::invalid_argument, "attribute fs: expected a positive number, given ", n.fs);
  if (n.window) {
    i.want_dtype(n.window, "window", x.dtype);
    i.want_shape(n.window, "window", {n.nperseg});
  }
  return {x.dtype, sized(i, {x.shape[0], s.bins})};
}

void welch_psd_shape(Infer& i, const op::welch_psd& n) { i.out(0, psd_type(i, n)); }

// Without its mean, or without the line of least squares.
Value detrended(Builder& b, const std::string& detrend, Value x, int64_t size) {
  if (detrend == "none") return x;
  Value y = b.minus(x, b.mean(x, {2}));
  if (detrend == "constant" || size == 1) return y;
  // At places around 0, whose squares add up to n (n^2 - 1)/12.
  const auto n = static_cast<double>(size);
  const Value at = b.iota({size}, 0, b.dtype(x), -(n - 1) / 2);
  const Value slope = b.over(b.sum(b.times(y, at), {2}), n * (n * n - 1) / 12);
  return b.minus(y, b.times(slope, at));
}

// Of segments [B, S, F]. median: the mean of the two in the middle of an even number, over the bias
// that the median of such powers has.
Value averaged(Builder& b, const std::string& average, Value p) {
  if (average == "mean") return b.mean(p, {1}, false);
  const int64_t count = b.shape(p)[1];
  const Value sorted = b.add(op::sort{.axis = 1, .x = p});
  const int64_t middle = (count - 1) / 2;
  const Value y = b.mean(b.narrow(sorted, 1, middle, count / 2 + 1 - middle), {1}, false);
  double bias = 1;
  for (int64_t k = 1; k <= (count - 1) / 2; ++k) {
    const auto twice = static_cast<double>(2 * k);
    bias += 1 / (twice + 1) - 1 / twice;
  }
  // NaN comes last, which is not the middle.
  const Value most = b.reduce("max", p, {1}, false);
  return b.where(b.unary("is_nan", most), most, b.over(y, bias));
}

// The divisor of the powers: fs·Σw² (density) or (Σw)² (spectrum). [1].
Value divisor(Builder& b, const op::welch_psd& n, Value w) {
  const Value sum = n.scaling == "density" ? b.times(b.sum(b.times(w, w), {0}), n.fs)
                                           : b.times(b.sum(w, {0}), b.sum(w, {0}));
  if (!n.window) return sum;
  // A sum of 0 is bad data: its index is out of range.
  const Value index =
      b.where(b.compare("eq", sum, 0), b.scalar_int(kI64, 1), b.ints(kI64, Ints{0}));
  return b.add(op::gather{.data = sum, .indices = index});
}

// 2 for bins that stand for two, else 1.
Value bin_counts(Builder& b, DType t, const op::welch_psd& n, const Segments& s) {
  std::vector<double> counts(static_cast<size_t>(s.bins), n.onesided ? 2 : 1);
  counts[0] = 1;
  if (s.points % 2 == 0) counts[static_cast<size_t>(s.points / 2)] = 1;
  return constant_of(b, t, {s.bins}, counts);
}

bool welch_psd_lower(Lower& l, const op::welch_psd& n) {
  Builder& b = l.b;
  const Segments s(n);
  const Type x = b.type(n.x);
  const Value w = n.window ? n.window : constant_of(b, x.dtype, {s.size}, sdk::hann_window(s.size));
  const Value at = b.plus(b.iota({s.count(x.shape[1]), 1}, 0, kI64, 0, static_cast<double>(s.step)),
                          b.iota({1, s.size}, 1, kI64));
  Value cut = b.add(op::gather{.axis = 1, .data = n.x, .indices = at});
  cut = b.times(detrended(b, n.detrend, cut, s.size), w);
  cut = with_length(b, cut, 2, s.points);
  const Value bins = n.onesided
                         ? Value(b.add(op::rfft{.x = cut}))
                         : Value(b.add(op::fft{.x = b.cast(cut, sdk::complex_dtype(x.dtype))}));
  const Value p = averaged(b, n.average, b.add(op::complex_norm_sq{.x = bins}));
  l.out(0, b.times(p, b.over(bin_counts(b, x.dtype, n, s), divisor(b, n, w))));
  return true;
}

template <class Op>
double welch_flops(const Cost& c, const Op& n) {
  const Segments s(n);
  const auto points = static_cast<double>(s.points);
  const auto rows = static_cast<double>(c.shape(n.x)[0] * s.count(c.shape(n.x)[1]));
  return rows * points * (3 + 2.5 * std::log2(std::max(points, 2.0)));
}

constexpr Record<op::welch_psd> kWelchPsd{
    .shape = welch_psd_shape,
    .words = {{"detrend", kTrends}, {"scaling", kScalings}, {"average", kAverages}},
    .lower = welch_psd_lower,
    .padded = padded_examples<op::welch_psd>,
    .flops = welch_flops<op::welch_psd>,
    .bytes = each_once};

// ---- welch_peaks

void welch_peaks_shape(Infer& i, const op::welch_peaks& n) {
  const Type psd = psd_type(i, n);
  peaks_shape(i, n, psd.dtype, psd.shape[0], psd.shape[1]);
}

bool welch_peaks_lower(Lower& l, const op::welch_peaks& n) {
  const Value psd = l.b.add(op::welch_psd{.fs = n.fs,
                                          .nperseg = n.nperseg,
                                          .noverlap = n.noverlap,
                                          .nfft = n.nfft,
                                          .detrend = n.detrend,
                                          .onesided = n.onesided,
                                          .scaling = n.scaling,
                                          .average = n.average,
                                          .x = n.x,
                                          .window = n.window});
  const Results peaks = l.b.add(op::spectrum_peaks{.k = n.k,
                                                   .select = n.select,
                                                   .height = n.height,
                                                   .min_distance = n.min_distance,
                                                   .prominence = n.prominence,
                                                   .x = psd});
  for (size_t k = 0; k < 3; ++k) l.out(k, peaks[k]);
  return true;
}

constexpr Record<op::welch_peaks> kWelchPeaks{.shape = welch_peaks_shape,
                                              .words = {{"detrend", kTrends},
                                                        {"scaling", kScalings},
                                                        {"average", kAverages},
                                                        {"select", "local_maxima top_bins"}},
                                              .lower = welch_peaks_lower,
                                              .padded = padded_examples<op::welch_peaks>,
                                              .flops = welch_flops<op::welch_peaks>,
                                              .bytes = each_once};

}  // namespace

constinit const OpRecord welch_psd_def = record<op::welch_psd, kWelchPsd>();
constinit const OpRecord welch_peaks_def = record<op::welch_peaks, kWelchPeaks>();

}  // namespace tenon::core
