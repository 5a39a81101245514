// SPDX-License-Identifier: Apache-2.0
// Products of 8-bit integers with exact 32-bit sums: qmatmul and qconv. Four steps of a sum (a quad)
// are multiplied and added by one instruction: the dot products of VNNI, or 16-bit multiply-adds.
//
// One side of a product is unsigned and the other one signed, as VNNI wants it. A side of the other
// kind is stored with its top bit inverted, which adds or subtracts 128: its zero point moves along.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tenon/types.h"

namespace tenon::cpu {

// madd: 16-bit multiply-adds of any processor. vnni256: AVX-VNNI. vnni512: AVX512-VNNI.
enum class QUnit : uint8_t { madd, vnni256, vnni512 };
bool q_has(QUnit unit);
QUnit q_unit();  // the best one that TENON_CPU_ISA and TENON_CPU_AMX allow

// Elements per panel: of the left side, which is broadcast, and of the right side, two vectors.
struct QPanels {
  int64_t rows, cols;
};
QPanels q_panels(QUnit unit);

constexpr int64_t q_quads(int64_t steps) { return (steps + 3) / 4; }
// Sums of more steps may exceed 32 bits: 255 * 255 each.
inline constexpr int64_t kQMostSteps = 33025;

// How a side stores its elements: xor 128 if its dtype has the other sign. shift: what it adds.
struct QSide {
  uint8_t flip = 0;
  int32_t shift = 0;
};
constexpr QSide q_side(tenon_dtype dtype, bool is_signed) {
  if (is_signed) return dtype == TENON_DTYPE_U8 ? QSide{0x80, -128} : QSide{};
  return dtype == TENON_DTYPE_I8 ? QSide{0x80, 128} : QSide{};
}

// Panels of `panel` elements by quads of steps, padded with zeros. Element (w, s) is
// data[w * width_stride + s * step_stride].
struct QPack {
  const void* data;
  int64_t width_stride, step_stride;
  int64_t width, steps;
  int64_t panel;
  bool is_signed;  // as the sums read the stored elements
  uint8_t flip;
  void* packed;   // q_packed_bytes()
  int32_t* sums;  // (optional) of the stored elements, per element of the width
};
void q_pack(const QPack& pack);
int64_t q_packed_bytes(int64_t width, int64_t steps, int64_t panel);

// to[j] = bytes j of the four rows, xor flip. Of fewer than 16 columns, up to 16 may be written.
void q_interleave(const uint8_t* const rows[4], uint8_t flip, int64_t count, uint32_t* to);

// Rows of sums, `pitch` apart, become dense.
void q_close_rows(int32_t* sums, int64_t rows, int64_t width, int64_t pitch);

// to[j] = x[j] - zero. dtype: i8 or u8.
void q_center(const uint8_t* x, tenon_dtype dtype, int32_t zero, int64_t count, float* to);

// sums[i * ld + j] = Σ a(i, k)·b(k, j) over quads k. rows: at most one panel. Columns [j, j +
// q_panels().cols) begin at quad b + j / cols * b_panel; step k is offsets[k] behind. Whole vectors
// are read and written: up to a panel of columns beyond `cols`.
struct QTiles {
  QUnit unit;
  bool left_signed;  // the left side is the signed one
  int64_t rows, cols, quads;
  const void* a;  // one panel
  const void* b;
  int64_t b_panel;         // in quads
  const int64_t* offsets;  // in quads
  int32_t* sums;
  int64_t ld;
};
void q_tiles(const QTiles& tiles);

// What follows a row of sums: s = sums[j] + add + adds[j] + factor·factors[j]; without a multiplier
// y[j] = max(s, low), of i32, else y[j] = clamp(rint(f32(s)·multiplier) + zero, low, high), of i8 or
// u8. NaN gives 0.
struct QRow {
  const void* sums;  // i32, or with `floats` integers as f32
  bool floats;
  int64_t count;
  int32_t add;
  const int32_t* adds;     // (optional)
  int32_t factor;          // 0: factors are not read
  const int32_t* factors;  // (optional)
  bool scaled;
  float multiplier;
  const float* multipliers;  // (optional) per column, instead
  int32_t low, high, zero;
  tenon_dtype y;
  void* to;
};
void q_row(const QRow& row);

// kernels of qgemm_vnni.cpp
void q_tiles_vnni256(const QTiles& tiles);
void q_tiles_vnni512(const QTiles& tiles);
bool q_processor_has(QUnit unit);

// y = (a - a_zero)·(b - b_zero) + bias, requantized. Planned for fixed shapes; y is dense.
class QGemm {
 public:
  struct Operand {
    tenon_dtype dtype;
    int64_t row, col;  // strides
  };
  // What a run reads. Zero points are values of a's and b's dtype.
  struct Run {
    const void* a;
    const void* b;
    int32_t a_zero;
    const void* b_zeros;       // (optional) one, or one per column
    const int32_t* bias;       // (optional) per column
    const float* multipliers;  // (optional) one, or one per column
    bool b_zeros_per_column, multipliers_per_column;
    int32_t low, high, y_zero;
    tenon_dtype y_dtype;
    void* y;
  };
  QGemm() = default;
  QGemm(QUnit unit, int64_t m, int64_t n, int64_t k, Operand a, Operand b, bool b_packed);
  // With b_packed, run() takes what pack_b() wrote.
  std::string packed_layout() const;
  uint64_t packed_bytes() const;
  void pack_b(const void* b, void* packed) const;
  // A run in pieces: each one is independent and needs an area of its own.
  int64_t pieces() const { return row_blocks_ * col_blocks_; }
  uint64_t piece_scratch() const { return a_bytes_ + b_bytes_ + sums_bytes_ + lines_bytes_; }
  void run_piece(const Run& run, int64_t piece, char* own) const;
  double operations() const;

 private:
  QUnit unit_ = QUnit::madd;
  int64_t m_ = 0, n_ = 0, k_ = 0;
  Operand a_{}, b_{};
  bool b_packed_ = false;
  QSide a_side_{}, b_side_{};
  QPanels panels_{1, 1};
  std::vector<int64_t> offsets_;
  int64_t rows_ = 1, cols_ = 1, row_blocks_ = 0, col_blocks_ = 0;
  uint64_t a_bytes_ = 0, b_bytes_ = 0, sums_bytes_ = 0, lines_bytes_ = 0;
};

}  // namespace tenon::cpu
