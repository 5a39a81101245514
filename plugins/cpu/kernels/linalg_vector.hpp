// SPDX-License-Identifier: Apache-2.0
// Factors and solutions of one matrix, dispatched by instruction set. T is float or double.
#pragma once

#include <cstdint>

namespace tenon::cpu {

// The distance of rows, in elements: whole vectors of any instruction set.
template <class T>
constexpr int64_t padded_row(int64_t columns) {
  constexpr int64_t kUnit = 64 / sizeof(T);
  return (columns + kUnit - 1) / kUnit * kUnit;
}

// Rows of [A | B], aligned to 64 bytes, `row` elements apart. A is n x n.
template <class T>
struct Augmented {
  T* data;
  int64_t n, row;
  int32_t* perm;
};
// L·U = P·A takes the place of A, L⁻¹·P·B that of B. Returns false if a pivot is 0 or not finite; then
// without `keep` the content is undefined, and with it columns of zeros are left alone.
bool linalg_factor(const Augmented<float>& m, bool keep);
bool linalg_factor(const Augmented<double>& m, bool keep);

// A triangle whose element (i, j) is a[i * row + j * column]; one of the strides is 1.
template <class T>
struct Triangle {
  const T* a;
  int64_t n, row, column;
  bool lower, unit;
};
// Solves for `columns` right sides in x, rows x_row elements apart: whole vectors, aligned to 64
// bytes, unless there is one column, which is dense.
void linalg_substitute(const Triangle<float>& t, float* x, int64_t columns, int64_t x_row);
void linalg_substitute(const Triangle<double>& t, double* x, int64_t columns, int64_t x_row);

// Uᵀ·U = A in the upper triangle of rows that are aligned to 64 bytes. What is below the diagonal is
// undefined. Returns false if A is not positive definite.
bool linalg_cholesky(float* a, int64_t n, int64_t row);
bool linalg_cholesky(double* a, int64_t n, int64_t row);

}  // namespace tenon::cpu
