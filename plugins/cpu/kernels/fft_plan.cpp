// SPDX-License-Identifier: Apache-2.0
// Splits transforms and computes their tables.
#include "fft_plan.hpp"

#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>

namespace tenon::cpu {
namespace {

using Number = std::complex<double>;

constexpr int64_t kDirect = 1024;  // points of the longest direct transform that may be split

// e^(-2 pi i k / n), 0 <= k < n.
Number root(int64_t k, int64_t n) {
  const double angle = 2 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(n);
  return {std::cos(angle), -std::sin(angle)};
}
void put(std::vector<float>& to, Number v) {
  to.push_back(static_cast<float>(v.real()));
  to.push_back(static_cast<float>(v.imag()));
}

// Empty if the length has a factor over 13.
std::vector<int> radices(int64_t n) {
  std::vector<int> out;
  int twos = 0;
  for (; n % 2 == 0; n /= 2) ++twos;
  const int short_of_eight = (3 - twos % 3) % 3;  // 8 8 4 4, 8 8 4, 8 8
  int fours = twos == 1 ? 0 : short_of_eight;
  for (int k = 0; k < (twos - 2 * fours) / 3; ++k) out.push_back(8);
  for (int k = 0; k < fours; ++k) out.push_back(4);
  if (twos == 1) out.push_back(2);
  for (const int p : {5, 3, 7, 11, 13})
    for (; n % p == 0; n /= p) out.push_back(p);
  return n == 1 ? out : std::vector<int>();
}
bool is_smooth(int64_t n) { return n == 1 || !radices(n).empty(); }

FftPasses passes_of(int64_t n) { return {.points = n, .radix = radices(n), .twiddles = {}}; }
void fill_twiddles(FftPasses& passes) {
  int64_t left = passes.points;
  for (const int r : passes.radix) {
    const int64_t groups = left / r;
    for (int64_t p = 0; p < groups; ++p)
      for (int64_t k = 1; k < r; ++k) put(passes.twiddles, root(p * k, left));
    left = groups;
  }
}

// The divisor next to the square root; lengths in whole vectors are better.
int64_t split_of(int64_t n, int64_t lanes) {
  const auto filled = [&](int64_t d) {
    return static_cast<double>(d) / static_cast<double>((d + lanes - 1) / lanes * lanes);
  };
  int64_t best = 1;
  double score = 0;
  for (int64_t d = 2; d * d <= n * lanes && d < n; ++d) {
    if (n % d != 0) continue;
    const int64_t longer = std::max(d, n / d);
    const double balance = std::sqrt(static_cast<double>(n)) / static_cast<double>(longer);
    const double now = filled(d) * filled(n / d) * std::sqrt(balance);
    if (now > score) score = now, best = d;
  }
  return best;
}

// Are `rows` rows computed with fewer vectors if they are lanes themselves? Split ones keep to the
// first cache, which decides among equals.
bool is_direct(int64_t n, int64_t first, int64_t lanes, int64_t rows) {
  const auto vectors = [&](int64_t count) { return (count + lanes - 1) / lanes; };
  const int64_t second = n / first;
  const int64_t split = rows * (vectors(second) * first + vectors(first) * second) / 2;
  return first == 1 || (n <= kDirect && vectors(rows) * n < split - split / 16);
}

// A length from `least` on that is split well.
int64_t padded_length(int64_t least) {
  int64_t best = 1;
  while (best < least) best *= 2;
  const int64_t step = best > 1024 ? 256 : 1;
  if (step == 1) return best;
  for (int64_t m = (least + step - 1) / step * step; m < best; m += step) {
    int64_t rest = m;
    for (const int p : {2, 3, 5})
      while (rest % p == 0) rest /= p;
    if (rest == 1) return m;
  }
  return best;
}

// Of a smooth length, in double, recursively. roots: of a multiple of the length.
std::vector<Number> transformed(const std::vector<Number>& x, const std::vector<Number>& roots) {
  const auto n = static_cast<int64_t>(x.size());
  if (n == 1) return x;
  int64_t p = 2;
  while (n % p != 0) ++p;
  const int64_t m = n / p, step = static_cast<int64_t>(roots.size()) / n;
  std::vector<std::vector<Number>> parts;
  for (int64_t r = 0; r < p; ++r) {
    std::vector<Number> part;
    for (int64_t j = r; j < n; j += p) part.push_back(x[static_cast<size_t>(j)]);
    parts.push_back(transformed(part, roots));
  }
  std::vector<Number> y(x.size());
  for (int64_t k = 0; k < n; ++k)
    for (int64_t r = 0; r < p; ++r)
      y[static_cast<size_t>(k)] += parts[static_cast<size_t>(r)][static_cast<size_t>(k % m)] *
                                   roots[static_cast<size_t>(r * k % n * step)];
  return y;
}

}  // namespace

std::vector<float> fft_roots(int64_t n) {
  std::vector<float> out;
  for (int64_t k = 0; k < n / 2; ++k) put(out, root(k, n));
  return out;
}

FftPlan::FftPlan(int64_t points, bool is_inverse, double scale, int64_t width, int64_t count)
    : n(points), lanes(width), inverse(is_inverse), factor(scale) {
  if (!is_smooth(n)) {
    kind = Kind::chirp;
    const int64_t m = padded_length(2 * n - 1);
    forward = std::make_unique<FftPlan>(m, false, 1, lanes, count);
    back = std::make_unique<FftPlan>(m, true, 1, lanes, count);
    return;
  }
  const int64_t first = split_of(n, lanes);
  if (is_direct(n, first, lanes, count)) {
    rows = passes_of(n);
    return;
  }
  kind = Kind::split;
  columns = passes_of(first);
  rows = passes_of(n / first);
  column_blocks = (rows.points + lanes - 1) / lanes;
  row_groups = (columns.points + lanes - 1) / lanes;
}

void FftPlan::fill() {
  std::call_once(filled_, [this] {
    fill_twiddles(columns);
    fill_twiddles(rows);
    if (kind == Kind::split) fill_split();
    if (kind == Kind::chirp) fill_chirp();
  });
}

void FftPlan::fill_split() {
  for (int64_t k = 0; k < columns.points; ++k) {
    std::vector<float> real, imaginary;
    for (int64_t l = 0; l < lanes; ++l) {
      const Number w = root(k * l % n, n);
      real.push_back(static_cast<float>(w.real()));
      imaginary.push_back(static_cast<float>(w.imag()));
    }
    lane.insert(lane.end(), real.begin(), real.end());
    lane.insert(lane.end(), imaginary.begin(), imaginary.end());
    for (int64_t c = 0; c < column_blocks; ++c) put(block, root(k * c * lanes % n, n));
  }
}

void FftPlan::fill_chirp() {
  forward->fill();
  back->fill();
  const int64_t m = forward->n;
  std::vector<Number> turned(static_cast<size_t>(m)), roots;
  for (int64_t j = 0; j < n; ++j) {
    const int64_t square = j * j % (2 * n);
    const Number c = inverse ? std::conj(root(square, 2 * n)) : root(square, 2 * n);
    put(chirp_in, c);
    put(chirp_out, c * factor);
    turned[static_cast<size_t>(j)] = std::conj(c);
    if (j > 0) turned[static_cast<size_t>(m - j)] = std::conj(c);
  }
  for (int64_t k = 0; k < m; ++k) roots.push_back(root(k, m));
  for (const Number v : transformed(turned, roots)) put(filter, v / static_cast<double>(m));
}

int64_t FftPlan::group() const {
  return kind == Kind::direct ? lanes : kind == Kind::chirp ? forward->group() : 1;
}
int64_t FftPlan::work_floats() const {
  const int64_t longest = std::max(columns.points, rows.points);
  return 2 * (longest + lanes) * 2 * lanes;
}
int64_t FftPlan::middle_floats() const {
  return kind == Kind::split ? column_blocks * columns.points * 2 * lanes : 0;
}
int64_t FftPlan::scratch_floats() const {
  if (kind == Kind::chirp)
    return group() * forward->n * 2 + std::max(forward->scratch_floats(), back->scratch_floats());
  return work_floats() + middle_floats();
}

}  // namespace tenon::cpu
