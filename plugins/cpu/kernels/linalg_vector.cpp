// SPDX-License-Identifier: Apache-2.0
// Factors and solutions of one matrix, compiled for each instruction set. Vectors lie along rows. Sums
// are added in the order of the columns, whatever the tiles and blocks.
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

// A tile's sums stay in registers.
constexpr int kTileVectors = HWY_TARGET <= HWY_AVX3 ? 4 : 2;
constexpr int kTileRows = HWY_TARGET <= HWY_AVX3 ? 6 : 4;

// Element (r, k) of the left factor of an update.
template <class T>
struct Left {
  const T* at;
  int64_t row, column;
  T operator()(int64_t r, int64_t k) const { return at[r * row + k * column]; }
};

// to[r][..] -= sum of left(r, k) · rows[k][j..], k in [begin, end): a tile of kRows rows and kVectors
// vectors. `to` and `rows` have the same distance between rows.
template <int kRows, int kVectors, class T>
HWY_INLINE void update_tile(const Left<T>& left, const T* rows, int64_t row, int64_t j,
                            int64_t begin, int64_t end, T* to) {
  const Tag<T> d;
  const int64_t lanes = lanes_of<T>();
  hn::Vec<Tag<T>> sums[kRows][kVectors];
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::Load(d, to + r * row + v * lanes);
  for (int64_t k = begin; k < end; ++k) {
    hn::Vec<Tag<T>> right[kVectors];
    for (int v = 0; v < kVectors; ++v) right[v] = hn::Load(d, rows + k * row + j + v * lanes);
    for (int r = 0; r < kRows; ++r) {
      const auto all = hn::Set(d, left(r, k));
      for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::NegMulAdd(all, right[v], sums[r][v]);
    }
  }
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < kVectors; ++v) hn::Store(sums[r][v], d, to + r * row + v * lanes);
}

// Calls body(j, vectors) for tiles of columns [j, end), both multiples of a vector.
template <class T, class Body>
HWY_INLINE void column_tiles(int64_t j, int64_t end, const Body& body) {
  const int64_t lanes = lanes_of<T>();
  for (; j + kTileVectors * lanes <= end; j += kTileVectors * lanes)
    body(j, std::integral_constant<int, kTileVectors>());
  if constexpr (kTileVectors > 2)
    for (; j + 2 * lanes <= end; j += 2 * lanes) body(j, std::integral_constant<int, 2>());
  for (; j < end; j += lanes) body(j, std::integral_constant<int, 1>());
}

// Calls body(i, rows) for tiles of rows [i, end).
template <class Body>
HWY_INLINE void row_tiles(int64_t i, int64_t end, const Body& body) {
  for (; i + kTileRows <= end; i += kTileRows) body(i, std::integral_constant<int, kTileRows>());
  for (; i < end; ++i) body(i, std::integral_constant<int, 1>());
}

// ---- lu

template <class T>
class Factoring {
 public:
  Factoring(const Augmented<T>& m, bool keep) : m_(m), keep_(keep) {}

  // Panels of one vector of columns are factored, and the columns of the block behind each follow
  // at once, so that each of their elements is read once per panel.
  bool block(int64_t begin, int64_t end) const {
    const int64_t lanes = lanes_of<T>(), whole = whole_vectors<T>(end);
    bool regular = true;
    for (int64_t first = begin; first < end; first += lanes) {
      const int64_t last = std::min(first + lanes, end);
      for (int64_t k = first; k < last; ++k) regular &= eliminate(k, first);
      if (!regular && !keep_) return false;
      columns(first, last, first + lanes, whole);
    }
    return regular;
  }

  // Columns [j, j_end) follow the elimination of columns [first, end).
  void columns(int64_t first, int64_t end, int64_t j, int64_t j_end) const {
    column_tiles<T>(j, j_end, [&](int64_t at, auto vectors) HWY_ATTR {
      constexpr int kVectors = decltype(vectors)::value;
      row_tiles(first, end, [&](int64_t i, auto rows) HWY_ATTR {
        constexpr int kRows = decltype(rows)::value;
        update<kRows, kVectors>(i, at, first, i);
        for (int64_t own = i + 1; own < i + kRows; ++own) update<1, kVectors>(own, at, i, own);
      });
      row_tiles(end, m_.n, [&](int64_t i, auto rows) HWY_ATTR {
        update<decltype(rows)::value, kVectors>(i, at, first, end);
      });
    });
  }

 private:
  T* row(int64_t i) const { return m_.data + i * m_.row; }

  template <int kRows, int kVectors>
  HWY_INLINE void update(int64_t i, int64_t j, int64_t begin, int64_t end) const {
    update_tile<kRows, kVectors>(Left<T>{row(i), m_.row, 1}, m_.data, m_.row, j, begin, end,
                                 row(i) + j);
  }

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
bool factor_block(const Augmented<T>& m, int64_t first, int64_t end, bool keep) {
  return Factoring<T>(m, keep).block(first, end);
}
bool FactorBlockF32(const Augmented<float>& m, int64_t first, int64_t end, bool keep) {
  return factor_block(m, first, end, keep);
}
bool FactorBlockF64(const Augmented<double>& m, int64_t first, int64_t end, bool keep) {
  return factor_block(m, first, end, keep);
}
void FactorColumnsF32(const Augmented<float>& m, int64_t first, int64_t end, int64_t j,
                      int64_t j_end) {
  Factoring<float>(m, true).columns(first, end, j, j_end);
}
void FactorColumnsF64(const Augmented<double>& m, int64_t first, int64_t end, int64_t j,
                      int64_t j_end) {
  Factoring<double>(m, true).columns(first, end, j, j_end);
}

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

// Rows [i, i + kRows) of x: the rows that are known first, then those of the tile itself.
template <int kRows, int kVectors, class T>
HWY_INLINE void substitute_rows(const Triangle<T>& t, T* x, int64_t x_row, int64_t i) {
  const Tag<T> d;
  const int64_t lanes = lanes_of<T>();
  const Left<T> left{t.a + i * t.row, t.row, t.column};
  hn::Vec<Tag<T>> sums[kRows][kVectors];
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::Load(d, x + (i + r) * x_row + v * lanes);
  for (int64_t j = t.lower ? 0 : i + kRows, end = t.lower ? i : t.n; j < end; ++j) {
    hn::Vec<Tag<T>> right[kVectors];
    for (int v = 0; v < kVectors; ++v) right[v] = hn::Load(d, x + j * x_row + v * lanes);
    for (int r = 0; r < kRows; ++r) {
      const auto all = hn::Set(d, left(r, j));
      for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::NegMulAdd(all, right[v], sums[r][v]);
    }
  }
  for (int step = 0; step < kRows; ++step) {
    const int r = t.lower ? step : kRows - 1 - step;
    const int begin = t.lower ? 0 : r + 1, end = t.lower ? r : kRows;
    const auto divisor = hn::Set(d, t.unit ? T{1} : left(r, i + r));
    for (int v = 0; v < kVectors; ++v) {
      auto sum = sums[r][v];
      for (int q = begin; q < end; ++q)
        sum = hn::NegMulAdd(hn::Set(d, left(r, i + q)), sums[q][v], sum);
      sums[r][v] = t.unit ? sum : hn::Div(sum, divisor);
      hn::Store(sums[r][v], d, x + (i + r) * x_row + v * lanes);
    }
  }
}

template <int kVectors, class T>
HWY_INLINE void substitute_tile(const Triangle<T>& t, T* x, int64_t x_row) {
  constexpr int kRows = 4;
  int64_t done = 0;
  for (; done + kRows <= t.n; done += kRows)
    substitute_rows<kRows, kVectors>(t, x, x_row, t.lower ? done : t.n - kRows - done);
  for (; done < t.n; ++done)
    substitute_rows<1, kVectors>(t, x, x_row, t.lower ? done : t.n - 1 - done);
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
bool cholesky_block(T* a, int64_t row, int64_t first, int64_t end) {
  for (int64_t k = first; k < end; ++k) {
    T* const own = a + k * row;
    const T pivot = own[k];
    if (!(pivot > 0) || !std::isfinite(pivot)) return false;
    const T root = std::sqrt(pivot);
    for (int64_t j = k; j < end; ++j) own[j] /= root;
    for (int64_t i = k + 1; i < end; ++i) subtract(own[i], own + i, a + i * row + i, end - i);
  }
  return true;
}
bool CholeskyBlockF32(float* a, int64_t row, int64_t first, int64_t end) {
  return cholesky_block(a, row, first, end);
}
bool CholeskyBlockF64(double* a, int64_t row, int64_t first, int64_t end) {
  return cholesky_block(a, row, first, end);
}

template <class T>
void cholesky_rows(T* a, int64_t row, int64_t first, int64_t end, int64_t j, int64_t j_end) {
  const Tag<T> d;
  column_tiles<T>(j, j_end, [&](int64_t at, auto vectors) HWY_ATTR {
    constexpr int kVectors = decltype(vectors)::value;
    row_tiles(first, end, [&](int64_t i, auto rows) HWY_ATTR {
      constexpr int kRows = decltype(rows)::value;
      update_tile<kRows, kVectors>(Left<T>{a + i, 1, row}, a, row, at, first, i, a + i * row + at);
      for (int64_t own = i; own < i + kRows; ++own) {
        T* const to = a + own * row + at;
        update_tile<1, kVectors>(Left<T>{a + own, 1, row}, a, row, at, i, own, to);
        const auto root = hn::Set(d, a[own * row + own]);
        for (int64_t v = 0; v < kVectors * lanes_of<T>(); v += lanes_of<T>())
          hn::Store(hn::Div(hn::Load(d, to + v), root), d, to + v);
      }
    });
  });
}
void CholeskyRowsF32(float* a, int64_t row, int64_t first, int64_t end, int64_t j, int64_t j_end) {
  cholesky_rows(a, row, first, end, j, j_end);
}
void CholeskyRowsF64(double* a, int64_t row, int64_t first, int64_t end, int64_t j, int64_t j_end) {
  cholesky_rows(a, row, first, end, j, j_end);
}

template <class T>
void cholesky_columns(T* a, int64_t n, int64_t row, int64_t first, int64_t end, int64_t j,
                      int64_t j_end) {
  column_tiles<T>(j, j_end, [&](int64_t at, auto vectors) HWY_ATTR {
    constexpr int kVectors = decltype(vectors)::value;
    row_tiles(end, std::min(at + kVectors * lanes_of<T>(), n), [&](int64_t i, auto rows) HWY_ATTR {
      update_tile<decltype(rows)::value, kVectors>(Left<T>{a + i, 1, row}, a, row, at, first, end,
                                                   a + i * row + at);
    });
  });
}
void CholeskyColumnsF32(float* a, int64_t n, int64_t row, int64_t first, int64_t end, int64_t j,
                        int64_t j_end) {
  cholesky_columns(a, n, row, first, end, j, j_end);
}
void CholeskyColumnsF64(double* a, int64_t n, int64_t row, int64_t first, int64_t end, int64_t j,
                        int64_t j_end) {
  cholesky_columns(a, n, row, first, end, j, j_end);
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {

HWY_EXPORT(FactorBlockF32);
HWY_EXPORT(FactorBlockF64);
HWY_EXPORT(FactorColumnsF32);
HWY_EXPORT(FactorColumnsF64);
HWY_EXPORT(SubstituteF32);
HWY_EXPORT(SubstituteF64);
HWY_EXPORT(CholeskyBlockF32);
HWY_EXPORT(CholeskyBlockF64);
HWY_EXPORT(CholeskyRowsF32);
HWY_EXPORT(CholeskyRowsF64);
HWY_EXPORT(CholeskyColumnsF32);
HWY_EXPORT(CholeskyColumnsF64);

bool linalg_factor_block(const Augmented<float>& m, int64_t first, int64_t end, bool keep) {
  return HWY_DYNAMIC_DISPATCH(FactorBlockF32)(m, first, end, keep);
}
bool linalg_factor_block(const Augmented<double>& m, int64_t first, int64_t end, bool keep) {
  return HWY_DYNAMIC_DISPATCH(FactorBlockF64)(m, first, end, keep);
}
void linalg_factor_columns(const Augmented<float>& m, int64_t first, int64_t end, int64_t j,
                           int64_t j_end) {
  HWY_DYNAMIC_DISPATCH(FactorColumnsF32)(m, first, end, j, j_end);
}
void linalg_factor_columns(const Augmented<double>& m, int64_t first, int64_t end, int64_t j,
                           int64_t j_end) {
  HWY_DYNAMIC_DISPATCH(FactorColumnsF64)(m, first, end, j, j_end);
}
void linalg_substitute(const Triangle<float>& t, float* x, int64_t columns, int64_t x_row) {
  HWY_DYNAMIC_DISPATCH(SubstituteF32)(t, x, columns, x_row);
}
void linalg_substitute(const Triangle<double>& t, double* x, int64_t columns, int64_t x_row) {
  HWY_DYNAMIC_DISPATCH(SubstituteF64)(t, x, columns, x_row);
}
bool linalg_cholesky_block(float* a, int64_t row, int64_t first, int64_t end) {
  return HWY_DYNAMIC_DISPATCH(CholeskyBlockF32)(a, row, first, end);
}
bool linalg_cholesky_block(double* a, int64_t row, int64_t first, int64_t end) {
  return HWY_DYNAMIC_DISPATCH(CholeskyBlockF64)(a, row, first, end);
}
void linalg_cholesky_rows(float* a, int64_t row, int64_t first, int64_t end, int64_t j,
                          int64_t j_end) {
  HWY_DYNAMIC_DISPATCH(CholeskyRowsF32)(a, row, first, end, j, j_end);
}
void linalg_cholesky_rows(double* a, int64_t row, int64_t first, int64_t end, int64_t j,
                          int64_t j_end) {
  HWY_DYNAMIC_DISPATCH(CholeskyRowsF64)(a, row, first, end, j, j_end);
}
void linalg_cholesky_columns(float* a, int64_t n, int64_t row, int64_t first, int64_t end,
                             int64_t j, int64_t j_end) {
  HWY_DYNAMIC_DISPATCH(CholeskyColumnsF32)(a, n, row, first, end, j, j_end);
}
void linalg_cholesky_columns(double* a, int64_t n, int64_t row, int64_t first, int64_t end,
                             int64_t j, int64_t j_end) {
  HWY_DYNAMIC_DISPATCH(CholeskyColumnsF64)(a, n, row, first, end, j, j_end);
}

}  // namespace tenon::cpu
#endif
