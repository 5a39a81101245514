// SPDX-License-Identifier: Apache-2.0
// Records of stft and istft: specification 10.3. Both are transforms of frames; gradients are those
// of the decomposition.
#include <cmath>

#include "ops/fft.hpp"
#include "ops/padded.hpp"
#include "ops/place.hpp"
#include "ops/table.hpp"

namespace tenon::core {
namespace {

struct Frames {
  int64_t size = 0, hop = 0, window = 0;
  int64_t border = 0;  // on each side of the signal
  int64_t bins = 0;

  template <class Op>
  explicit Frames(const Op& n)
      : size(n.n_fft),
        hop(n.hop == 0 ? std::max<int64_t>(n.n_fft / 4, 1) : n.hop),
        window(n.win_length == 0 ? n.n_fft : n.win_length),
        border(n.center ? n.n_fft / 2 : 0),
        bins(n.onesided ? n.n_fft / 2 + 1 : n.n_fft) {}
  int64_t count(int64_t samples) const { return (samples + 2 * border - size) / hop + 1; }
  int64_t covered(int64_t frames) const { return (frames - 1) * hop + size; }
};

template <class Op>
Frames want_frames(const Infer& i, const Op& n) {
  want_points(i, "attribute n_fft", n.n_fft);
  const Frames f(n);
  if (n.hop < 0 || n.hop > kMostPoints)
    i.fail(Code::invalid_argument, "attribute hop: expected 0 to ", kMostPoints, ", given ", n.hop);
  if (f.window < 1 || f.window > f.size)
    i.fail(Code::invalid_argument, "attribute win_length: expected 0 to n_fft, ", f.size,
           ", given ", n.win_length);
  if (n.window) {
    i.want_shape(n.window, "window", {f.window});
    const DType x = i.dtype(n.x);
    i.want_dtype(n.window, "window", is_complex(x) ? sdk::part_dtype(x) : x);
  }
  return f;
}

// The window in the middle of a frame; absent if all of it is 1.
template <class Op>
Value window_of(Builder& b, const Op& n, const Frames& f, DType t) {
  if (!n.window && f.window == f.size) return {};
  const Value w = n.window ? n.window : b.full({t, {f.window}}, 1);
  const int64_t before = (f.size - f.window) / 2;
  return pad_axis(b, w, 0, before, f.size - f.window - before);
}

// The positions of the samples of all frames: [frames, size].
Value positions(Builder& b, const Frames& f, int64_t frames) {
  return b.plus(b.iota({frames, 1}, 0, kI64, 0, static_cast<double>(f.hop)),
                b.iota({1, f.size}, 1, kI64));
}

}  // namespace

// ---- stft

Shape spectra_shape(const Infer& i, const op::stft& n) {
  const Type& x = i.type(n.x);
  want_real(i, n.x);
  i.want_rank(n.x, "x", 2);
  const Frames f = want_frames(i, n);
  const int64_t samples = x.shape[1];
  if (n.center && n.pad_mode == "reflect" && samples <= f.border)
    i.fail(Code::invalid_argument, "operand x: expected more than n_fft/2 samples, ", f.border,
           ", to reflect, got ", x.text());
  if (samples + 2 * f.border < f.size)
    i.fail(Code::invalid_argument, "operand x: expected samples for a frame of ", f.size, ", got ",
           x.text());
  return sized(i, {x.shape[0], f.bins, f.count(samples)});
}

namespace {

void stft_shape(Infer& i, const op::stft& n) {
  i.out(0, {sdk::complex_dtype(i.dtype(n.x)), spectra_shape(i, n)});
}

bool stft_lower(Lower& l, const op::stft& n) {
  Builder& b = l.b;
  const Frames f(n);
  Value x = n.x;
  const Type type = b.type(x);
  const int64_t frames = f.count(type.shape[1]);
  if (f.border > 0)
    x = b.add(op::pad{.before = {0, f.border}, .after = {0, f.border}, .mode = n.pad_mode, .x = x});
  Value cut = b.add(op::gather{.axis = 1, .data = x, .indices = positions(b, f, frames)});
  if (const Value w = window_of(b, n, f, type.dtype)) cut = b.times(cut, w);
  const std::string norm = n.normalized ? "ortho" : "backward";
  const Value y =
      n.onesided
          ? Value(b.add(op::rfft{.norm = norm, .x = cut}))
          : Value(b.add(op::fft{.norm = norm, .x = b.cast(cut, sdk::complex_dtype(type.dtype))}));
  l.out(0, b.swap_last(y));
  return true;
}

double stft_flops(const Cost& c, const op::stft& n) {
  const Frames f(n);
  const auto size = static_cast<double>(f.size);
  const double frames = c.elements(c.out(0)) / static_cast<double>(f.bins);
  return frames * size * (1 + 2.5 * std::log2(std::max(size, 2.0)));
}

constexpr Record<op::stft> kStft{.shape = stft_shape,
                                 .words = {{"pad_mode", "reflect constant"}},
                                 .lower = stft_lower,
                                 .padded = padded_examples<op::stft>,
                                 .flops = stft_flops,
                                 .bytes = each_once};

// ---- istft

// The samples of the result in those that the frames cover.
struct Kept {
  int64_t begin, length;
};
Kept kept(const op::istft& n, const Frames& f, int64_t frames) {
  const int64_t all = f.covered(frames) - 2 * f.border;
  return {f.border, n.length == 0 ? all : n.length};
}

void istft_shape(Infer& i, const op::istft& n) {
  i.want_complex(n.x, "x");
  i.want_rank(n.x, "x", 3);
  const Type& x = i.type(n.x);
  const Frames f = want_frames(i, n);
  const int64_t frames = x.shape[2];
  if (x.shape[1] != f.bins)
    i.fail(Code::shape_mismatch, "operand x: expected ", f.bins, " bins on axis 1, got ", x.text());
  if (frames < 1)
    i.fail(Code::invalid_argument, "operand x: expected at least one frame, got ", x.text());
  if (n.length < 0 || n.length > kMostPoints)
    i.fail(Code::invalid_argument, "attribute length: expected 0 to ", kMostPoints, ", given ",
           n.length);
  const Kept k = kept(n, f, frames);
  if (k.length < 1)
    i.fail(Code::invalid_argument,
           "operand x: expected frames that cover more than their borders, got ", x.text());
  i.out(0, {sdk::part_dtype(x.dtype), sized(i, {x.shape[0], k.length})});
}

// Adds up frames [.., frames * size] where they are in the signal.
Value overlapped(Builder& b, Value frames, Value at, int64_t samples) {
  return b.add(op::scatter_add{.axis = -1, .dim = samples, .updates = frames, .indices = at});
}

bool istft_lower(Lower& l, const op::istft& n) {
  Builder& b = l.b;
  const Frames f(n);
  const Type type = b.type(n.x);
  const int64_t batch = type.shape[0], frames = type.shape[2], all = frames * f.size;
  const DType t = sdk::part_dtype(type.dtype);
  const std::string norm = n.normalized ? "ortho" : "backward";
  const Value x = b.swap_last(n.x);
  Value cut = n.onesided ? Value(b.add(op::irfft{.n = f.size, .norm = norm, .x = x}))
                         : b.part(b.add(op::fft{.norm = norm, .inverse = true, .x = x}), 0);
  Value w = window_of(b, n, f, t);
  if (!w) w = b.full({t, {f.size}}, 1);
  const Value at = b.reshape(positions(b, f, frames), {all});
  const int64_t samples = f.covered(frames);
  Value y = overlapped(b, b.reshape(b.times(cut, w), {batch, all}), at, samples);
  Value envelope =
      overlapped(b, b.reshape(b.expand(b.times(w, w), {frames, f.size}), {all}), at, samples);
  const Kept k = kept(n, f, frames);
  const int64_t there = std::min(k.length, samples - k.begin);
  y = b.narrow(y, 1, k.begin, there);
  envelope = b.narrow(envelope, 0, k.begin, there);
  // A sample that no frame has is bad data: its index is out of range.
  const Value index = b.where(b.compare("lt", envelope, 1e-11), b.scalar_int(kI64, there),
                              b.iota({there}, 0, kI64));
  envelope = b.add(op::gather{.data = envelope, .indices = index});
  l.out(0, with_length(b, b.over(y, envelope), 1, k.length));
  return true;
}

double istft_flops(const Cost& c, const op::istft& n) {
  const Frames f(n);
  const auto size = static_cast<double>(f.size);
  const double frames = c.elements(n.x) / static_cast<double>(f.bins);
  return frames * size * (2 + 2.5 * std::log2(std::max(size, 2.0)));
}

constexpr Record<op::istft> kIstft{.shape = istft_shape,
                                   .lower = istft_lower,
                                   .padded = padded_examples<op::istft>,
                                   .flops = istft_flops,
                                   .bytes = each_once};

}  // namespace

constinit const OpRecord stft_def = record<op::stft, kStft>();
constinit const OpRecord istft_def = record<op::istft, kIstft>();

}  // namespace tenon::core
