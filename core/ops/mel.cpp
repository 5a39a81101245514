// SPDX-License-Identifier: Apache-2.0
// Records of the mel family: specification 12. mel_filterbank is a constant; the others are powers
// of spectra, a product with it, and a logarithm.
#include <cmath>
#include <numbers>

#include "ops/fft.hpp"
#include "ops/padded.hpp"
#include "ops/table.hpp"
#include "tenon/spectra.hpp"

namespace tenon::core {
namespace {

constexpr std::string_view kScales = "slaney htk", kAreas = "slaney none";
constexpr std::string_view kLogs = "log10 log", kScopes = "example tensor frame";

// ---- mel_filterbank

// Checks a filter bank. Returns its shape.
template <class Op>
Shape bank_shape(const Infer& i, const Op& n) {
  want_points(i, "attribute n_fft", n.n_fft);
  if (!(n.sr > 0) || !std::isfinite(n.sr))
    i.fail(Code::invalid_argument, "attribute sr: expected a positive number, given ", n.sr);
  const double high = is_unset(n.fmax) ? n.sr / 2 : n.fmax;
  if (!(n.fmin >= 0))
    i.fail(Code::invalid_argument, "attribute fmin: expected 0 or more, given ", n.fmin);
  if (!(high > n.fmin) || !(high <= n.sr / 2))
    i.fail(Code::invalid_argument, "attribute fmax: expected a number over fmin, ", n.fmin,
           ", up to sr/2, ", n.sr / 2, ", got ", high);
  constexpr int64_t kMost = int64_t{1} << 27;  // weights
  const int64_t bins = n.n_fft / 2 + 1;
  if (n.n_mels < 1 || n.n_mels > kMost / bins)
    i.fail(Code::invalid_argument, "attribute n_mels: expected 1 to ", kMost / bins, ", given ",
           n.n_mels);
  return {n.n_mels, bins};
}

void mel_filterbank_shape(Infer& i, const op::mel_filterbank& n) {
  if (!is_float(n.dtype))
    i.fail(Code::dtype_mismatch, "attribute dtype: expected f32, f16, bf16 or f64, given ",
           dtype_name(n.dtype));
  i.out(0, {n.dtype, bank_shape(i, n)});
}

bool mel_filterbank_lower(Lower& l, const op::mel_filterbank& n) {
  const int64_t bins = n.n_fft / 2 + 1;
  std::vector<double> weights(static_cast<size_t>(n.n_mels * bins));
  sdk::each_mel_weight(n, [&](int64_t m, int64_t bin, double weight) {
    weights[static_cast<size_t>(m * bins + bin)] = weight;
  });
  l.out(0, constant_of(l.b, n.dtype, {n.n_mels, bins}, weights));
  return true;
}

constexpr Record<op::mel_filterbank> kFilterbank{
    .shape = mel_filterbank_shape,
    .words = {{"scale", kScales}, {"norm", kAreas}, {"dtype", "f32 f16 bf16 f64"}},
    .lower = mel_filterbank_lower,
    .flops = no_products,
    .bytes = each_once};

// ---- the tail: logarithms of products with w, in the range below their maximum

template <class Op>
void want_tail(const Infer& i, const Op& n) {
  if (!(n.floor > 0) || !std::isfinite(n.floor))
    i.fail(Code::invalid_argument, "attribute floor: expected a positive number, given ", n.floor);
  if (!(n.dynamic_range >= 0) || !std::isfinite(n.dynamic_range))
    i.fail(Code::invalid_argument, "attribute dynamic_range: expected 0 or more, given ",
           n.dynamic_range);
}

// The checks of x and w. Returns the type of the result.
template <class Op>
Type tail_type(const Infer& i, const Op& n) {
  want_tail(i, n);
  const Type& x = i.type(n.x);
  const bool complex = is_complex(x.dtype);
  if (!complex && x.dtype != kF32 && x.dtype != kF64)
    i.fail(Code::dtype_mismatch, "operand x: expected f32, f64, c64 or c128, got ", x.text());
  i.want_rank(n.x, "x", 3);
  i.want_rank(n.w, "w", 2);
  const DType t = complex ? sdk::part_dtype(x.dtype) : x.dtype;
  i.want_dtype(n.w, "w", t);
  const Shape& w = i.shape(n.w);
  i.want_shape(n.w, "w", {w[0], x.shape[1]});
  return {t, sized(i, {x.shape[0], w[0], x.shape[2]})};
}

Ints scope_axes(const std::string& scope) {
  if (scope == "tensor") return {0, 1, 2};
  return scope == "frame" ? Ints{1} : Ints{1, 2};
}
double log_factor(const std::string& log) { return log == "log10" ? std::numbers::log10e : 1; }

Value powers(Builder& b, Value x) {
  return is_complex(b.dtype(x)) ? Value(b.add(op::complex_norm_sq{.x = x})) : x;
}

template <class Op>
struct Tail {
  Value mels, logs;
  Value most{}, least{};  // of the scope; absent without a range

  // Values at or below the floor get exactly the logarithm of the floor.
  Tail(Builder& b, const Op& n, Value p) : mels(b.matmul(n.w, p)) {
    const DType t = b.dtype(mels);
    const double factor = log_factor(n.log);
    const double lowest = n.log == "log10" ? std::log10(n.floor) : std::log(n.floor);
    logs =
        b.where(b.compare("le", mels, n.floor), b.scalar(t, lowest), b.times(b.log(mels), factor));
    if (n.dynamic_range == 0) return;
    most = b.reduce("max", logs, scope_axes(n.max_scope), true);
    least = b.minus(most, n.dynamic_range);
  }
};

void log_mel_shape(Infer& i, const op::log_mel& n) { i.out(0, tail_type(i, n)); }

bool log_mel_lower(Lower& l, const op::log_mel& n) {
  Builder& b = l.b;
  const Tail t(b, n, powers(b, n.x));
  Value y = t.least ? b.max(t.logs, t.least) : t.logs;
  if (n.affine) y = b.times(b.plus(y, 4), 0.25);
  l.out(0, y);
  return true;
}

template <class To, class From>
To with_tail(To to, const From& n) {
  to.floor = n.floor;
  to.log = n.log;
  to.dynamic_range = n.dynamic_range;
  to.affine = n.affine;
  to.max_scope = n.max_scope;
  return to;
}

void log_mel_grad(Grad& g, const op::log_mel& n) {
  const bool wants_w = g.wants(n.w);
  if (!g.wants(n.x) && !wants_w) return;
  const Results r = g.b.add(
      with_tail(op::log_mel_backward{.dy = g.dy(), .x = n.x, .w = n.w, .want_dw = wants_w}, n));
  if (g.wants(n.x)) g.give(n.x, r[0]);
  if (wants_w) g.give(n.w, r[1]);
}

template <class Op>
double log_mel_flops(const Cost& c, const Op& n) {
  return 2 * c.elements(n.x) * static_cast<double>(c.shape(n.w)[0]);
}

// A power of 0 is the floor, which no maximum is below.
bool log_mel_padded(Padded& p, const op::log_mel& n) {
  for (int axis = 0; axis < p.rank(n.x); ++axis) fill_zeros(p, n.x, axis);
  p.fill_all(n.w, Fill::zero);
  return true;
}

constexpr Record<op::log_mel> kLogMel{.shape = log_mel_shape,
                                      .words = {{"log", kLogs}, {"max_scope", kScopes}},
                                      .grad = log_mel_grad,
                                      .lower = log_mel_lower,
                                      .padded = log_mel_padded,
                                      .flops = log_mel_flops,
                                      .bytes = each_once};

// ---- log_mel_backward

void log_mel_backward_shape(Infer& i, const op::log_mel_backward& n) {
  const Type y = tail_type(i, n);
  i.want_dtype(n.dy, "dy", y.dtype);
  i.want_shape(n.dy, "dy", y.shape);
  i.out(0, i.type(n.x));
  i.out(1, i.type(n.w));
}

// The gradient of the logarithms. Those under the range take none; it goes to the largest ones.
Value logs_gradient(Builder& b, const op::log_mel_backward& n,
                    const Tail<op::log_mel_backward>& t) {
  const Value dy = n.affine ? b.times(n.dy, 0.25) : n.dy;
  if (!t.least) return dy;
  const Value none = b.scalar(b.dtype(dy), 0);
  const Value shared = b.where(b.compare("eq", t.logs, t.least), b.times(dy, 0.5),
                               b.where(b.compare("lt", t.logs, t.least), none, dy));
  const Ints axes = scope_axes(n.max_scope);
  const Value hit = b.compare("eq", t.logs, t.most);
  const Value rest = b.sum(b.minus(dy, shared), axes);
  const Value share = b.over(rest, b.sum(b.cast(hit, b.dtype(dy)), axes));
  return b.plus(shared, b.where(hit, share, none));
}

bool log_mel_backward_lower(Lower& l, const op::log_mel_backward& n) {
  Builder& b = l.b;
  const Value p = powers(b, n.x);
  const Tail t(b, n, p);
  const Value slope = b.over(b.times(logs_gradient(b, n, t), log_factor(n.log)),
                             b.max(t.mels, b.scalar(b.dtype(t.mels), n.floor)));
  const Value dm = b.where(b.compare("lt", t.mels, n.floor), b.scalar(b.dtype(slope), 0), slope);
  Value dx = b.matmul(n.w, dm, true);
  if (is_complex(b.dtype(n.x)))
    dx = b.as_complex(b.times(b.as_real(n.x), b.unsqueeze(b.times(dx, 2), 3)));
  l.out(0, dx);
  if (l.wanted(1)) l.out(1, b.sum_to(b.matmul(dm, p, false, true), b.shape(n.w)));
  return true;
}

double log_mel_backward_flops(const Cost& c, const op::log_mel_backward& n) {
  return (c.out(1) ? 3 : 2) * log_mel_flops(c, n);
}

// Positions at the maximum are counted, so other axes than that of examples must be whole.
bool log_mel_backward_padded(Padded& p, const op::log_mel_backward& n) {
  if (p.any(n.w) || p.any_from(n.x, 1)) return p.refuse("it works along a padded axis");
  if (n.max_scope == "tensor" && p.along(n.x, 0))
    return p.refuse("its maximum is over padded examples");
  fill_zeros(p, n.x, 0);
  p.fill(n.dy, 0, Fill::zero);
  return true;
}

constexpr Record<op::log_mel_backward> kLogMelBackward{
    .shape = log_mel_backward_shape,
    .words = {{"log", kLogs}, {"max_scope", kScopes}},
    .lower = log_mel_backward_lower,
    .padded = log_mel_backward_padded,
    .flops = log_mel_backward_flops,
    .bytes = each_once};

// ---- log_mel_spectrogram

op::stft spectra_of(const op::log_mel_spectrogram& n) {
  return {.n_fft = n.n_fft,
          .hop = n.hop,
          .center = n.center,
          .pad_mode = n.pad_mode,
          .x = n.x,
          .window = n.window};
}

void log_mel_spectrogram_shape(Infer& i, const op::log_mel_spectrogram& n) {
  want_tail(i, n);
  const Shape bank = bank_shape(i, n);
  if (n.hop < 1) i.fail(Code::invalid_argument, "attribute hop: expected 1 or more, given ", n.hop);
  const Shape spectra = spectra_shape(i, spectra_of(n));
  i.out(0, {i.dtype(n.x), sized(i, {spectra[0], bank[0], spectra[2] - (n.drop_last ? 1 : 0)})});
}

bool log_mel_spectrogram_lower(Lower& l, const op::log_mel_spectrogram& n) {
  Builder& b = l.b;
  const DType t = b.dtype(n.x);
  op::stft spectra = spectra_of(n);
  if (!spectra.window) spectra.window = constant_of(b, t, {n.n_fft}, sdk::hann_window(n.n_fft));
  Value x = b.add(spectra);
  if (n.drop_last) x = b.narrow(x, 2, 0, b.shape(x)[2] - 1);
  const Value w = b.add(op::mel_filterbank{.sr = n.sr,
                                           .n_fft = n.n_fft,
                                           .n_mels = n.n_mels,
                                           .fmin = n.fmin,
                                           .fmax = n.fmax,
                                           .scale = n.scale,
                                           .norm = n.norm,
                                           .dtype = t});
  l.out(0, b.add(with_tail(op::log_mel{.x = x, .w = w}, n)));
  return true;
}

// Each bin is in two filters.
double log_mel_spectrogram_flops(const Cost& c, const op::log_mel_spectrogram& n) {
  const auto size = static_cast<double>(n.n_fft);
  const double frames = c.elements(c.out(0)) / static_cast<double>(n.n_mels);
  return frames * size * (1 + 2.5 * std::log2(std::max(size, 2.0)) + 2);
}

bool log_mel_spectrogram_padded(Padded& p, const op::log_mel_spectrogram& n) {
  if (n.max_scope == "tensor") p.fill(n.x, 0, Fill::zero);  // silence
  return padded_examples(p, n);
}

constexpr Record<op::log_mel_spectrogram> kLogMelSpectrogram{
    .shape = log_mel_spectrogram_shape,
    .words = {{"scale", kScales},
              {"norm", kAreas},
              {"pad_mode", "reflect constant"},
              {"log", kLogs},
              {"max_scope", kScopes}},
    .lower = log_mel_spectrogram_lower,
    .padded = log_mel_spectrogram_padded,
    .flops = log_mel_spectrogram_flops,
    .bytes = each_once};

}  // namespace

constinit const OpRecord mel_filterbank_def = record<op::mel_filterbank, kFilterbank>();
constinit const OpRecord log_mel_def = record<op::log_mel, kLogMel>();
constinit const OpRecord log_mel_backward_def = record<op::log_mel_backward, kLogMelBackward>();
constinit const OpRecord log_mel_spectrogram_def =
    record<op::log_mel_spectrogram, kLogMelSpectrogram>();

}  // namespace tenon::core
