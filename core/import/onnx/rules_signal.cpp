// SPDX-License-Identifier: Apache-2.0
// Rules: windows and Fourier transforms. Short transforms are products with their matrices.
#include <cmath>

#include "import/onnx/helpers.hpp"

namespace tenon::core::onnx {
namespace {

constexpr double kPi = 3.141592653589793238462643;

// Σ_k (-1)^k a_k cos(2 k pi i / n)
Known cosine_window(DType t, int64_t size, bool periodic, std::initializer_list<double> parts) {
  const auto n = static_cast<double>(periodic ? size : size - 1);
  std::vector<double> values;
  for (int64_t i = 0; i < size; ++i) {
    double sum = 0, k = 0, sign = 1;
    for (const double a : parts) {
      sum += sign * a * (n == 0 ? 1 : std::cos(2 * kPi * k * static_cast<double>(i) / n));
      k += 1, sign = -sign;
    }
    values.push_back(sum);
  }
  return known_reals(t, {size}, std::move(values));
}

void give_window(Call& c, std::initializer_list<double> parts) {
  const int64_t size = c.integer(0, "size");
  if (size < 0 || size > kMostKnown) c.wrong("size: expected 0 to ", kMostKnown, ", got ", size);
  const DType t = c.dtype_attr("output_datatype", 1);
  const Known w = cosine_window(kF64, size, c.flag("periodic", true), parts);
  c.out(known_cast(w, t));
}
void hann(Call& c) { give_window(c, {0.5, 0.5}); }
void hamming(Call& c) { give_window(c, {25.0 / 46, 21.0 / 46}); }
void blackman(Call& c) { give_window(c, {0.42, 0.5, 0.08}); }

// cos and sin of 2 pi i k / n, [rows, columns]; scaled.
struct Waves {
  Value cosine, sine;
};
Waves waves(Call& c, DType t, int64_t rows, int64_t columns, int64_t n, double scale) {
  Known cosine{t, {rows, columns}, {}, {}}, sine = cosine;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t k = 0; k < columns; ++k) {
      // Exact: i·k mod n.
      const double angle = 2 * kPi * static_cast<double>(i * k % n) / static_cast<double>(n);
      cosine.reals.push_back(rounded(t, scale * std::cos(angle)));
      sine.reals.push_back(rounded(t, scale * std::sin(angle)));
    }
  return {c.constant(cosine), c.constant(sine)};
}

// The same by an fft, for any length.
Value transformed_fast(Builder& b, Value real, Value imaginary, int64_t out, bool inverse) {
  const DType t = b.dtype(real);
  const Value x = b.widen(real);
  const int last = b.shape(x).rank() - 1;
  Value y;
  if (!imaginary && !inverse && out == b.shape(x)[last] / 2 + 1) {
    y = b.add(op::rfft{.x = x});
  } else {
    const Value z =
        imaginary
            ? b.as_complex(b.concat(
                  {b.unsqueeze(x, last + 1), b.unsqueeze(b.widen(imaginary), last + 1)}, last + 1))
            : b.cast(x, sdk::complex_dtype(b.dtype(x)));
    y = b.narrow(b.add(op::fft{.inverse = inverse, .x = z}), last, 0, out);
  }
  return b.cast(b.as_real(y), t);
}

// x [.., n], real and imaginary (absent: 0) part, to [.., out, 2].
Value transformed(Call& c, Value real, Value imaginary, int64_t out, bool inverse) {
  Builder& b = c.b;
  const int last = b.shape(real).rank() - 1;
  const int64_t n = b.shape(real)[last];
  constexpr int64_t kShort = 64;
  if (n > kShort) return transformed_fast(b, real, imaginary, out, inverse);
  const Waves w = waves(c, b.dtype(real), n, out, n, inverse ? 1 / static_cast<double>(n) : 1);
  // e^(∓iφ) = cos φ ∓ i sin φ
  Value re = b.matmul(real, w.cosine), im = b.matmul(real, w.sine);
  if (!inverse) im = b.neg(im);
  if (imaginary) {
    const Value p = b.matmul(imaginary, w.sine), q = b.matmul(imaginary, w.cosine);
    re = inverse ? b.minus(re, p) : b.plus(re, p);
    im = b.plus(im, q);
  }
  return b.concat({b.unsqueeze(re, last + 1), b.unsqueeze(im, last + 1)}, last + 1);
}

// Cuts or fills with zeros to this length.
Value with_length(Builder& b, Value x, int axis, int64_t length) {
  const int64_t d = b.shape(x)[axis];
  if (length <= d) return b.narrow(x, axis, 0, length);
  Ints none(static_cast<size_t>(b.shape(x).rank()), 0), after = none;
  after[static_cast<size_t>(axis)] = length - d;
  return b.add(op::pad{.before = none, .after = after, .x = x});
}

void dft(Call& c) {
  Builder& b = c.b;
  const Shape s = c.shape(0);
  const bool inverse = c.flag("inverse", false), onesided = c.flag("onesided", false);
  if (s.rank() < 2 || s[s.rank() - 1] < 1 || s[s.rank() - 1] > 2)
    c.wrong("input 0: expected [.., n, 1 or 2], got ", s.text());
  const int64_t given = c.opset < 20 ? c.i("axis", 1) : c.has(2) ? c.integer(2, "axis") : -2;
  const int axis = c.axis(given, s.rank()), last = s.rank() - 1;
  if (axis == last) c.wrong("axis: expected another one than the last");
  Value x = c.value(0);
  const bool halves = inverse && onesided;  // half of a symmetric spectrum comes in
  int64_t length = c.has(1) ? c.integer(1, "dft_length") : halves ? 2 * (s[axis] - 1) : s[axis];
  if (length < 1) c.wrong("dft_length: expected a number from 1 on, got ", length);
  if (halves) {
    // The other half is its mirror image, conjugated.
    x = with_length(b, x, axis, length / 2 + 1);
    const int64_t rest = length - (length / 2 + 1);
    if (rest > 0 && s[last] == 2) {
      Value mirror = b.narrow(x, axis, rest, rest, -1);
      mirror = b.concat({b.narrow(mirror, last, 0, 1), b.neg(b.narrow(mirror, last, 1, 1))}, last);
      x = b.concat({x, mirror}, axis);
    } else if (rest > 0) {
      x = b.concat({x, b.narrow(x, axis, rest, rest, -1)}, axis);
    }
  } else {
    x = with_length(b, x, axis, length);
  }
  const auto part = [&](int64_t k) {
    Value v = b.narrow(x, last, k, 1);
    Shape without;
    for (int i = 0; i < last; ++i) without.push(b.shape(v)[i]);
    return swap_axes(b, b.reshape(v, without), axis, last - 1);
  };
  const bool complex = s[last] == 2;
  const int64_t out = onesided && !inverse ? length / 2 + 1 : length;
  Value y = transformed(c, part(0), complex ? part(1) : Value{}, out, inverse);
  y = swap_axes(b, y, axis, last - 1);
  c.out(halves ? b.narrow(y, last, 0, 1) : y);
}

// Frames of a signal [B, n, 1 or 2], each times a window, transformed.
void stft(Call& c) {
  Builder& b = c.b;
  const Shape s = c.shape(0);
  if (s.rank() < 2) c.wrong("input 0: expected [B, n, 1 or 2], got ", s.text());
  const bool complex = s.rank() == 3 && s[2] == 2;
  const int64_t step = c.integer(1, "frame_step");
  const int64_t length = c.has(3)   ? c.integer(3, "frame_length")
                         : c.has(2) ? c.shape(2).elements()
                                    : 0;
  if (step < 1 || length < 1 || length > s[1])
    c.wrong("frames of ", length, " every ", step, " do not fit ", s.text());
  const int64_t frames = (s[1] - length) / step + 1;
  const bool onesided = c.flag("onesided", true);
  const Value at = b.plus(b.iota({frames, 1}, 0, kI64, 0, static_cast<double>(step)),
                          b.iota({1, length}, 1, kI64));
  const auto part = [&](int64_t k) {
    const Value x =
        s.rank() == 2 ? c.value(0) : b.reshape(b.narrow(c.value(0), 2, k, 1), {s[0], s[1]});
    const Value cut = b.add(op::gather{.axis = 1, .data = x, .indices = at});
    return c.has(2) ? b.times(cut, c.value(2)) : cut;
  };
  const int64_t out = onesided ? length / 2 + 1 : length;
  c.out(transformed(c, part(0), complex ? part(1) : Value{}, out, false));
}

// Triangles over the bins of a spectrum, equally wide on the mel scale: [bins, mels].
void mel_weight_matrix(Call& c) {
  const int64_t mels = c.integer(0, "num_mel_bins"), length = c.integer(1, "dft_length");
  const auto rate = static_cast<double>(c.integer(2, "sample_rate"));
  const double low = c.number(3, "lower_edge_hertz"), high = c.number(4, "upper_edge_hertz");
  const int64_t bins = length / 2 + 1;
  if (mels < 1 || length < 1 || !fits(Ints{bins, mels}))
    c.wrong("a matrix of ", bins, " by ", mels, ": expected 1 to ", kMostKnown, " elements");
  const auto mel = [](double hertz) { return 2595 * std::log10(1 + hertz / 700); };
  std::vector<double> edges;
  const double step = (mel(high) - mel(low)) / static_cast<double>(mels + 2);
  for (int64_t k = 0; k < mels + 2; ++k) {
    const double hertz =
        700 * (std::pow(10, (mel(low) + step * static_cast<double>(k)) / 2595) - 1);
    edges.push_back(std::floor(static_cast<double>(length + 1) * hertz / rate));
  }
  Known y = known_full(kF64, {bins, mels}, 0);
  for (int64_t m = 0; m < mels; ++m) {
    const auto k = static_cast<size_t>(m);
    const double a = edges[k], p = edges[k + 1], e = edges[k + 2];
    for (int64_t i = 0; i < bins; ++i) {
      const auto x = static_cast<double>(i);
      double v = 0;
      if (a == p && x == p)
        v = 1;
      else if (x >= a && x <= p && p > a)
        v = (x - a) / (p - a);
      else if (x >= p && x < e)
        v = (e - x) / (e - p);
      y.reals[static_cast<size_t>(i * mels + m)] = v;
    }
  }
  c.out(known_cast(y, c.dtype_attr("output_datatype", 1)));
}

constexpr Rule kRules[] = {
    {"HannWindow", 17, hann},
    {"HammingWindow", 17, hamming},
    {"BlackmanWindow", 17, blackman},
    {"DFT", 17, dft},
    {"STFT", 17, stft},
    {"MelWeightMatrix", 17, mel_weight_matrix},
};

}  // namespace

std::span<const Rule> signal_rules() { return kRules; }

}  // namespace tenon::core::onnx
