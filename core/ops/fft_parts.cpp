// SPDX-License-Identifier: Apache-2.0
// The decomposition of a transform: a product with its matrix if it is short; columns, twiddles
// and rows if its length has a small divisor (Cooley, Tukey 1965); else a convolution with a chirp
// (Bluestein 1970). Tables are computed in double, their angles reduced in integers.
#include <cmath>
#include <complex>
#include <numbers>

#include "base/number.hpp"
#include "ops/fft.hpp"

namespace tenon::core {
namespace {

using Number = std::complex<double>;
using Numbers = std::vector<Number>;

constexpr int64_t kShort = 32;  // points of a matrix, unless the length is a prime
constexpr int64_t kShortPrime = 128;

// e^(±2 pi i k / n), + for inverse ones; 0 <= k < n.
Number root(int64_t k, int64_t n, bool inverse) {
  const double angle = 2 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(n);
  return {std::cos(angle), inverse ? std::sin(angle) : -std::sin(angle)};
}

Value table(Builder& b, DType t, const Shape& shape, const Numbers& numbers) {
  return constant_of(b, t, shape,
                     {reinterpret_cast<const double*>(numbers.data()), 2 * numbers.size()});
}

// Of a power of two.
void transform(Numbers& x, bool inverse) {
  const size_t n = x.size();
  for (size_t i = 1, j = 0; i < n; ++i) {
    size_t bit = n >> 1;
    for (; j & bit; bit >>= 1) j ^= bit;
    j ^= bit;
    if (i < j) std::swap(x[i], x[j]);
  }
  for (size_t half = 1; half < n; half *= 2) {
    Numbers roots(half);
    for (size_t k = 0; k < half; ++k)
      roots[k] = root(static_cast<int64_t>(k), static_cast<int64_t>(2 * half), inverse);
    for (size_t i = 0; i < n; i += 2 * half)
      for (size_t k = 0; k < half; ++k) {
        const Number a = x[i + k], c = x[i + k + half] * roots[k];
        x[i + k] = a + c;
        x[i + k + half] = a - c;
      }
  }
}

// Pairs times the matrix of the transform as one of real numbers.
Value by_matrix(Builder& b, Value x, bool inverse, double factor) {
  const Type type = b.type(x);
  const int64_t n = type.shape[type.shape.rank() - 1];
  const DType part = sdk::part_dtype(type.dtype);
  const auto width = static_cast<size_t>(2 * n);
  const size_t each = tenon_dtype_bits(part) / 8;
  auto data = std::make_shared<Bytes>(width * width * each);
  const auto put = [&](int64_t row, int64_t column, double v) {
    store_number(
        part,
        data->data() + (static_cast<size_t>(row) * width + static_cast<size_t>(column)) * each,
        factor * v);
  };
  for (int64_t j = 0; j < n; ++j)
    for (int64_t k = 0; k < n; ++k) {
      const Number w = root(j * k % n, n, inverse);
      put(2 * j, 2 * k, w.real());
      put(2 * j, 2 * k + 1, w.imag());
      put(2 * j + 1, 2 * k, -w.imag());
      put(2 * j + 1, 2 * k + 1, w.real());
    }
  const Value matrix = b.graph.constant({part, {2 * n, 2 * n}}, std::move(data));
  const Value pairs = b.as_real(x);
  const Shape shape = b.shape(pairs);
  const Value rows = b.reshape(pairs, {type.shape.elements() / n, 2 * n});
  return b.as_complex(b.reshape(b.matmul(rows, matrix), shape));
}

Value plain(Builder& b, Value x, bool inverse) {
  return b.add(op::fft{.norm = plain_norm(inverse), .inverse = inverse, .x = x});
}

// n = columns of n1 points, then rows of n2.
Value by_parts(Builder& b, Value x, int64_t n1, bool inverse, double factor) {
  const Type type = b.type(x);
  const int64_t n = type.shape[type.shape.rank() - 1], n2 = n / n1;
  const int64_t rows = type.shape.elements() / n;
  Numbers twiddles;
  for (int64_t j = 0; j < n2; ++j)
    for (int64_t k = 0; k < n1; ++k) twiddles.push_back(factor * root(j * k, n, inverse));
  const auto turned = [&](Value v) { return b.swap_last(v); };
  Value y = plain(b, turned(b.reshape(x, {rows, n1, n2})), inverse);
  y = b.times(y, table(b, type.dtype, {n2, n1}, twiddles));
  y = turned(plain(b, turned(y), inverse));
  return b.reshape(y, type.shape);
}

Value by_chirp(Builder& b, Value x, bool inverse, double factor) {
  const Type type = b.type(x);
  const int last = type.shape.rank() - 1;
  const int64_t n = type.shape[last];
  int64_t m = 1;
  while (m < 2 * n - 1) m *= 2;
  Numbers chirp, filter(static_cast<size_t>(m));
  for (int64_t j = 0; j < n; ++j) {
    const auto square = j * j % (2 * n);
    chirp.push_back(root(square, 2 * n, inverse));
    filter[static_cast<size_t>(j)] = std::conj(chirp.back());
    if (j > 0) filter[static_cast<size_t>(m - j)] = std::conj(chirp.back());
  }
  transform(filter, false);
  for (Number& v : filter) v /= static_cast<double>(m);
  Value y = b.times(x, table(b, type.dtype, {n}, chirp));
  y = plain(b, with_length(b, y, last, m), false);
  y = plain(b, b.times(y, table(b, type.dtype, {m}, filter)), true);
  for (Number& v : chirp) v *= factor;
  return b.times(b.narrow(y, last, 0, n), table(b, type.dtype, {n}, chirp));
}

// The largest divisor up to kShort; 1 if there is none.
int64_t short_divisor(int64_t n) {
  for (int64_t d = std::min(kShort, n - 1); d > 1; --d)
    if (n % d == 0) return d;
  return 1;
}

}  // namespace

Value constant_of(Builder& b, DType t, const Shape& shape, std::span<const double> numbers) {
  const DType part = is_complex(t) ? sdk::part_dtype(t) : t;
  const size_t each = tenon_dtype_bits(part) / 8;
  auto data = std::make_shared<Bytes>(numbers.size() * each);
  for (size_t k = 0; k < numbers.size(); ++k)
    store_number(part, data->data() + k * each, numbers[k]);
  return b.graph.constant({t, shape}, std::move(data));
}

Value transformed(Builder& b, Value x, bool inverse, double factor) {
  const Shape shape = b.shape(x);
  const int64_t n = shape[shape.rank() - 1];
  if (n <= kShort) return by_matrix(b, x, inverse, factor);
  const int64_t divisor = short_divisor(n);
  if (divisor > 1) return by_parts(b, x, divisor, inverse, factor);
  return n <= kShortPrime ? by_matrix(b, x, inverse, factor) : by_chirp(b, x, inverse, factor);
}

}  // namespace tenon::core
