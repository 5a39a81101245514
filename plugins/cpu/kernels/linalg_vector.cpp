// SPDX-License-Identifier: Apache-2.0
// Factors and solutions of one matrix, compiled for each instruction set. Vectors lie along rows.
#include "linalg_vector.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/linalg_vector.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class T>
using Tag = hn::ScalableTag<T>;
template <class T>
int64_t lanes_of() {
  return static_cast<int64_t>(hn::Lanes(Tag<T>()));
}

// rows[i..][j..] -= rows[i..][k, end) · rows[k, end)[j..], a tile of kRows rows and kVectors vectors.
template <int kRows, int kVectors, class T>
HWY_INLINE void update_tile(T* rows, int64_t row, int64_t i, int64_t j, int64_t k, int64_t end) {
  const Tag<T> d;
  const int64_t lanes = lanes_of<T>();
  hn::Vec<Tag<T>> sums[kRows][kVectors];
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < kVectors; ++v)
      sums[r][v] = hn::Load(d, rows + (i + r) * row + j + v * lanes);
  for (; k < end; ++k) {
    hn::Vec<Tag<T>> right[kVectors];
    for (int v = 0; v < kVectors; ++v) right[v] = hn::Load(d, rows + k * row + j + v * lanes);
    for (int r = 0; r < kRows; ++r) {
      const auto left = hn::Set(d, rows[(i + r) * row + k]);
      for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::NegMulAdd(left, right[v], sums[r][v]);
    }
  }
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < kVectors; ++v)
      hn::Store(sums[r][v], d, rows + (i + r) * row + j + v * lanes);
}

// Calls body(j, vectors) for tiles of columns [j, end), both multiples of a vector.
template <class T, class Body>
HWY_INLINE void column_tiles(int64_t j, int64_t end, const Body& body) {
  const int64_t lanes = lanes_of<T>();
  for (; j + 4 * lanes <= end; j += 4 * lanes) body(j, std::integral_constant<int, 4>());
  for (; j + 2 * lanes <= end; j += 2 * lanes) body(j, std::integral_constant<int, 2>());
  if (j < end) body(j, std::integral_constant<int, 1>());
}

// A panel of one vector of columns is factored at a time. The columns behind it follow at once, so
// that each of their elements is read once per panel.
template <class T>
class Factoring {
 public:
  Factoring(const Augmented<T>& m, bool keep) : m_(m), keep_(keep) {}

  bool run() const {
    const int64_t lanes = lanes_of<T>();
    for (int64_t i = 0; i < m_.n; ++i) m_.perm[i] = static_cast<int32_t>(i);
    bool regular = true;
    for (int64_t first = 0; first < m_.n; first += lanes) {
      const int64_t end = std::min(first + lanes, m_.n);
      for (int64_t k = first; k < end; ++k) regular &= eliminate(k, first);
      if (!regular && !keep_) return false;
      column_tiles<T>(first + lanes, m_.row, [&](int64_t j, auto vectors) HWY_ATTR {
        constexpr int kVectors = decltype(vectors)::value;
        for (int64_t i = first + 1; i < end; ++i)
          update_tile<1, kVectors>(m_.data, m_.row, i, j, first, i);
        int64_t i = end;
        for (; i + 4 <= m_.n; i += 4) update_tile<4, kVectors>(m_.data, m_.row, i, j, first, end);
        for (; i < m_.n; ++i) update_tile<1, kVectors>(m_.data, m_.row, i, j, first, end);
      });
    }
    return regular;
  }

 private:
  T* row(int64_t i) const { return m_.data + i * m_.row; }

  // Brings the pivot of column k to row k, and eliminates the column in the panel that begins with
  // column `first`.
  bool eliminate(int64_t k, int64_t first) const {
    const Tag<T> d;
    int64_t best = k;
    T most = std::fabs(row(k)[k]);
    for (int64_t i = k + 1; i < m_.n; ++i) {
      const T size = std::fabs(row(i)[k]);
      if (size > most) most = size, best = i;
    }
    if (best != k) {
      for (int64_t j = 0; j < m_.row; j += lanes_of<T>()) {
        const auto upper = hn::Load(d, row(k) + j);
        hn::Store(hn::Load(d, row(best) + j), d, row(k) + j);
        hn::Store(upper, d, row(best) + j);
      }
      std::swap(m_.perm[k], m_.perm[best]);
    }
    const T pivot = row(k)[k], inverse = 1 / pivot;
    const bool regular = pivot != 0 && std::isfinite(pivot);
    if (pivot == 0) return false;
    const bool divides = !std::isfinite(inverse);
    const auto lane = hn::Iota(d, T{0}), own = hn::Set(d, static_cast<T>(k - first));
    const auto at = hn::Eq(lane, own), behind = hn::Gt(lane, own);
    const auto upper = hn::Load(d, row(k) + first);
    for (int64_t i = k + 1; i < m_.n; ++i) {
      T* const to = row(i) + first;
      const auto factor = hn::Set(d, divides ? row(i)[k] / pivot : row(i)[k] * inverse);
      const auto old = hn::Load(d, to);
      const auto next = hn::IfThenElse(behind, hn::NegMulAdd(factor, upper, old), old);
      hn::Store(hn::IfThenElse(at, factor, next), d, to);
    }
    return regular;
  }

  const Augmented<T>& m_;
  const bool keep_;
};

template <class T>
bool factor(const Augmented<T>& m, bool keep) {
  return Factoring<T>(m, keep).run();
}
bool FactorF32(const Augmented<float>& m, bool keep) { return factor(m, keep); }
bool FactorF64(const Augmented<double>& m, bool keep) { return factor(m, keep); }

// ---- substitution

// Several sums side by side, because each waits for the last product.
template <class T>
HWY_INLINE T dot(const T* a, const T* b, int64_t n) {
  const Tag<T> d;
  const int64_t lanes = lanes_of<T>();
  auto first = hn::Zero(d), second = hn::Zero(d);
  int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    first = hn::MulAdd(hn::LoadU(d, a + i), hn::LoadU(d, b + i), first);
    second = hn::MulAdd(hn::LoadU(d, a + i + lanes), hn::LoadU(d, b + i + lanes), second);
  }
  if (i + lanes <= n) {
    first = hn::MulAdd(hn::LoadU(d, a + i), hn::LoadU(d, b + i), first);
    i += lanes;
  }
  T sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(first, second)));
  for (; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

// y -= factor · x
template <class T>
HWY_INLINE void subtract(T factor, const T* x, T* y, int64_t n) {
  const Tag<T> d;
  const int64_t lanes = lanes_of<T>();
  const auto all = hn::Set(d, factor);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    hn::StoreU(hn::NegMulAdd(all, hn::LoadU(d, x + i), hn::LoadU(d, y + i)), d, y + i);
  for (; i < n; ++i) y[i] -= factor * x[i];
}

template <class T>
void substitute_vector(const Triangle<T>& t, T* x) {
  for (int64_t step = 0; step < t.n; ++step) {
    const int64_t i = t.lower ? step : t.n - 1 - step;
    const int64_t from = t.lower ? 0 : i + 1, known = step;
    if (t.column == 1) x[i] -= dot(t.a + i * t.row + from, x + from, known);
    if (!t.unit) x[i] /= t.a[i * (t.row + t.column)];
    const int64_t open = t.lower ? i + 1 : 0, left = t.n - 1 - step;
    if (t.column != 1) subtract(x[i], t.a + i * t.column + open, x + open, left);
  }
}

template <int kVectors, class T>
HWY_INLINE void substitute_tile(const Triangle<T>& t, T* x, int64_t x_row) {
  constexpr int kChains = kVectors == 4 ? 1 : 4 / kVectors;
  const Tag<T> d;
  const int64_t lanes = lanes_of<T>();
  for (int64_t step = 0; step < t.n; ++step) {
    const int64_t i = t.lower ? step : t.n - 1 - step;
    hn::Vec<Tag<T>> sums[kChains][kVectors];
    for (int c = 0; c < kChains; ++c)
      for (int v = 0; v < kVectors; ++v)
        sums[c][v] = c == 0 ? hn::Load(d, x + i * x_row + v * lanes) : hn::Zero(d);
    const auto add = [&](int64_t j, int c) HWY_ATTR {
      const auto left = hn::Set(d, t.a[i * t.row + j * t.column]);
      for (int v = 0; v < kVectors; ++v)
        sums[c][v] = hn::NegMulAdd(left, hn::Load(d, x + j * x_row + v * lanes), sums[c][v]);
    };
    int64_t j = t.lower ? 0 : i + 1;
    const int64_t end = t.lower ? i : t.n;
    for (; j + kChains <= end; j += kChains)
      for (int c = 0; c < kChains; ++c) add(j + c, c);
    for (; j < end; ++j) add(j, 0);
    const auto divisor = hn::Set(d, t.unit ? T{1} : t.a[i * (t.row + t.column)]);
    for (int v = 0; v < kVectors; ++v) {
      auto sum = sums[0][v];
      for (int c = 1; c < kChains; ++c) sum = hn::Add(sum, sums[c][v]);
      hn::Store(t.unit ? sum : hn::Div(sum, divisor), d, x + i * x_row + v * lanes);
    }
  }
}

template <class T>
void substitute(const Triangle<T>& t, T* x, int64_t columns, int64_t x_row) {
  if (columns == 1) return substitute_vector(t, x);
  const int64_t lanes = lanes_of<T>(), end = (columns + lanes - 1) / lanes * lanes;
  column_tiles<T>(0, end, [&](int64_t j, auto vectors) HWY_ATTR {
    substitute_tile<decltype(vectors)::value>(t, x + j, x_row);
  });
}
void SubstituteF32(const Triangle<float>& t, float* x, int64_t columns, int64_t x_row) {
  substitute(t, x, columns, x_row);
}
void SubstituteF64(const Triangle<double>& t, double* x, int64_t columns, int64_t x_row) {
  substitute(t, x, columns, x_row);
}

// ---- cholesky

template <class T>
bool cholesky(T* a, int64_t n, int64_t row) {
  for (int64_t k = 0; k < n; ++k) {
    T* const own = a + k * row;
    const T pivot = own[k];
    if (!(pivot > 0) || !std::isfinite(pivot)) return false;
    const T root = std::sqrt(pivot);
    for (int64_t j = k; j < n; ++j) own[j] /= root;
    for (int64_t i = k + 1; i < n; ++i) subtract(own[i], own + i, a + i * row + i, n - i);
  }
  return true;
}
bool CholeskyF32(float* a, int64_t n, int64_t row) { return cholesky(a, n, row); }
bool CholeskyF64(double* a, int64_t n, int64_t row) { return cholesky(a, n, row); }

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {

HWY_EXPORT(FactorF32);
HWY_EXPORT(FactorF64);
HWY_EXPORT(SubstituteF32);
HWY_EXPORT(SubstituteF64);
HWY_EXPORT(CholeskyF32);
HWY_EXPORT(CholeskyF64);

bool linalg_factor(const Augmented<float>& m, bool keep) {
  return HWY_DYNAMIC_DISPATCH(FactorF32)(m, keep);
}
bool linalg_factor(const Augmented<double>& m, bool keep) {
  return HWY_DYNAMIC_DISPATCH(FactorF64)(m, keep);
}
void linalg_substitute(const Triangle<float>& t, float* x, int64_t columns, int64_t x_row) {
  HWY_DYNAMIC_DISPATCH(SubstituteF32)(t, x, columns, x_row);
}
void linalg_substitute(const Triangle<double>& t, double* x, int64_t columns, int64_t x_row) {
  HWY_DYNAMIC_DISPATCH(SubstituteF64)(t, x, columns, x_row);
}
bool linalg_cholesky(float* a, int64_t n, int64_t row) {
  return HWY_DYNAMIC_DISPATCH(CholeskyF32)(a, n, row);
}
bool linalg_cholesky(double* a, int64_t n, int64_t row) {
  return HWY_DYNAMIC_DISPATCH(CholeskyF64)(a, n, row);
}

}  // namespace tenon::cpu
#endif
