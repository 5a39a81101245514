// SPDX-License-Identifier: Apache-2.0
// Complex transforms of f32: how one of n points is split, and its tables. fft_vector.cpp computes
// it. Several transforms run side by side, one in each lane of a vector, so that no step shuffles:
//
//   direct  rows in lanes, for short ones
//   split   n = n1 n2 (Cooley, Tukey 1965): columns of n1 points in lanes, twiddles, then rows of
//           n2 points in lanes
//   chirp   a convolution with a chirp (Bluestein 1970), for lengths with a prime factor over 13
//
// Tables are computed in double, their angles reduced in integers, and rounded once.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace tenon::cpu {

// The passes of a transform without bit reversal (Stockham): pass i multiplies the stride between
// the inputs of one butterfly by its radix.
struct FftPasses {
  int64_t points = 1;
  std::vector<int> radix;
  std::vector<float> twiddles;  // of each pass: radix - 1 complex numbers for each group of inputs
};

struct FftPlan {
  enum class Kind { direct, split, chirp };
  // Says how to split, without tables. count: how many rows there are to transform. Where there are
  // few, they are split sooner.
  FftPlan(int64_t n, bool inverse, double factor, int64_t lanes, int64_t count);
  void fill();  // the tables, once, before the first run; any thread

  Kind kind = Kind::direct;
  int64_t n = 1, lanes = 1;
  bool inverse = false;
  double factor = 1;

  FftPasses columns, rows;  // direct: rows alone
  // Split: the twiddle of row k and column c * lanes + l is lane[k][l] * block[k][c].
  int64_t column_blocks = 0, row_groups = 0;
  std::vector<float> lane, block;

  // Chirp: y = chirp_out * (inner transforms of chirp_in * x, times filter).
  std::unique_ptr<FftPlan> forward, back;
  std::vector<float> chirp_in, chirp_out, filter;

  // Rows that are computed together.
  int64_t group() const;
  // Floats of scratch: of one vector of transforms; of what all columns leave to the rows; of a
  // group of rows.
  int64_t work_floats() const;
  int64_t middle_floats() const;
  int64_t scratch_floats() const;

 private:
  void fill_split();
  void fill_chirp();
  std::once_flag filled_;
};

// Lanes of a vector of floats.
int64_t fft_lanes();

// `count` rows of n complex numbers, at most group(). y may be x.
void fft_group(const FftPlan& plan, const float* x, float* y, int64_t count, float* scratch);
// The two halves of a split transform: blocks of columns to `middle`, groups of rows to y. `work`
// has work_floats().
void fft_columns(const FftPlan& plan, const float* x, float* middle, int64_t block, float* work);
void fft_rows(const FftPlan& plan, const float* middle, float* y, int64_t group, float* work);

// y = x w, n complex numbers.
void fft_multiply(const float* x, const float* w, float* y, int64_t n);

// Rows of real numbers as complex ones of half the length, n even. roots: e^(-2 pi i k / n) for
// k < n/2.
std::vector<float> fft_roots(int64_t n);
void fft_split_bins(const float* z, const float* roots, float* y, int64_t half);
void fft_join_bins(const float* x, const float* roots, float* z, int64_t half);

}  // namespace tenon::cpu
