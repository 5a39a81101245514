// SPDX-License-Identifier: Apache-2.0
// Factors and solutions of one matrix, dispatched by instruction set. T is float or double.
#pragma once

#include <cstdint>

namespace tenon::cpu {

// n rounded up to whole vectors of any instruction set.
template <class T>
constexpr int64_t whole_vectors(int64_t n) {
  constexpr int64_t kUnit = 64 / sizeof(T);
  return (n + kUnit - 1) / kUnit * kUnit;
}

// The distance of rows, in elements: whole vectors of any instruction set. Rows a multiple of 512 bytes
// apart would share few places of a cache.
template <class T>
constexpr int64_t padded_row(int64_t columns) {
  constexpr int64_t kUnit = 64 / sizeof(T);
  const int64_t row = whole_vectors<T>(columns);
  return row > 4 * kUnit && row % (8 * kUnit) == 0 ? row + kUnit : row;
}

// Columns that are eliminated as one block: whole vectors of any instruction set.
inline constexpr int64_t kLinalgBlock = 64;

// Rows of [A | B], aligned to 64 bytes, `row` elements apart. A is n x n.
template <class T>
struct Augmented {
  T* data;
  int64_t n, row;
  int32_t* perm;
};
// L·U = P·A takes the place of A, L⁻¹·P·B that of B. Blocks of columns [first, end) follow each other;
// first is a multiple of kLinalgBlock. Before the first one `perm` is 0, 1, .. n - 1.
//
// Eliminates the columns of a block, up to whole_vectors(end), and exchanges whole rows. Returns
// false if a pivot is 0 or not finite. Then the content is undefined without `keep`; with it, columns
// whose pivot is 0 are left alone.
bool linalg_factor_block(const Augmented<float>& m, int64_t first, int64_t end, bool keep);
bool linalg_factor_block(const Augmented<double>& m, int64_t first, int64_t end, bool keep);
// Applies the elimination of a block to columns [j, j_end) behind it. Both numbers are multiples of a
// vector. Threads may share the columns.
void linalg_factor_columns(const Augmented<float>& m, int64_t first, int64_t end, int64_t j,
                           int64_t j_end);
void linalg_factor_columns(const Augmented<double>& m, int64_t first, int64_t end, int64_t j,
                           int64_t j_end);

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

// Uᵀ·U = A in the upper triangle of rows that are aligned to 64 bytes, block by block as above. What is
// below the diagonal is undefined.
//
// The rows and columns [first, end). Returns false if A is not positive definite.
bool linalg_cholesky_block(float* a, int64_t row, int64_t first, int64_t end);
bool linalg_cholesky_block(double* a, int64_t row, int64_t first, int64_t end);
// Finishes rows [first, end) in columns [j, j_end), which are behind the block.
void linalg_cholesky_rows(float* a, int64_t row, int64_t first, int64_t end, int64_t j,
                          int64_t j_end);
void linalg_cholesky_rows(double* a, int64_t row, int64_t first, int64_t end, int64_t j,
                          int64_t j_end);
// Applies rows [first, end), which must be finished in all columns, to columns [j, j_end) of the rows
// below them.
void linalg_cholesky_columns(float* a, int64_t n, int64_t row, int64_t first, int64_t end,
                             int64_t j, int64_t j_end);
void linalg_cholesky_columns(double* a, int64_t n, int64_t row, int64_t first, int64_t end,
                             int64_t j, int64_t j_end);

}  // namespace tenon::cpu
