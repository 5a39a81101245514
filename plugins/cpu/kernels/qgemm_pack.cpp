// SPDX-License-Identifier: Apache-2.0
// Packing into panels of quads, and the product of matrices in pieces.
#include <algorithm>
#include <cstring>

#include "blocks.hpp"
#include "qgemm.hpp"

namespace tenon::cpu {
namespace {

constexpr int64_t kBlockBytes = 384 << 10;  // of packed b per piece: it fits L2
constexpr int64_t kBlockCols = 512;
constexpr int64_t kPieces = 32;     // of work that there should be
constexpr double kPieceSums = 4e6;  // products that make a piece large enough
constexpr int64_t kFewRows = 64;    // per piece, at least, so that packing b pays

// Up to four bytes at a stride, then zeros.
uint32_t quad_at(const uint8_t* x, int64_t stride, int64_t count, uint8_t flip) {
  uint8_t bytes[4] = {};
  for (int64_t k = 0; k < std::min<int64_t>(count, 4); ++k)
    bytes[k] = static_cast<uint8_t>(x[k * stride] ^ flip);
  uint32_t quad;
  std::memcpy(&quad, bytes, sizeof quad);
  return quad;
}

template <class T>
int32_t sum_of(const uint8_t* x, int64_t stride, int64_t count, uint8_t flip) {
  int32_t sum = 0;
  if (stride == 1) {  // apart, so that the compiler vectorizes it
    for (int64_t k = 0; k < count; ++k) sum += static_cast<T>(x[k] ^ flip);
  } else {
    for (int64_t k = 0; k < count; ++k) sum += static_cast<T>(x[k * stride] ^ flip);
  }
  return sum;
}

// Steps are contiguous: each element of the width is a row of quads.
void pack_along_steps(const QPack& p, const uint8_t* x, int64_t width, uint32_t* to) {
  const int64_t quads = q_quads(p.steps), whole = p.steps / 4;
  const uint32_t flip = p.flip * 0x01010101u;
  for (int64_t w = 0; w < width; ++w) {
    const uint8_t* const from = x + w * p.width_stride;
    for (int64_t q = 0; q < whole; ++q) {
      uint32_t quad;
      std::memcpy(&quad, from + 4 * q, sizeof quad);
      to[q * p.panel + w] = quad ^ flip;
    }
    if (whole < quads)
      to[whole * p.panel + w] = quad_at(from + 4 * whole, 1, p.steps - 4 * whole, p.flip);
  }
}

// Elements of the width are contiguous: four rows of them are interleaved.
void pack_along_width(const QPack& p, const uint8_t* x, int64_t width, uint32_t* to) {
  const int64_t whole = p.steps / 4;
  for (int64_t q = 0; q < whole; ++q) {
    const uint8_t* const from = x + 4 * q * p.step_stride;
    const uint8_t* const rows[4] = {from, from + p.step_stride, from + 2 * p.step_stride,
                                    from + 3 * p.step_stride};
    q_interleave(rows, p.flip, width, to + q * p.panel);
  }
  if (whole == q_quads(p.steps)) return;
  for (int64_t w = 0; w < width; ++w)
    to[whole * p.panel + w] =
        quad_at(x + 4 * whole * p.step_stride + w, p.step_stride, p.steps - 4 * whole, p.flip);
}

void pack_strided(const QPack& p, const uint8_t* x, int64_t width, uint32_t* to) {
  for (int64_t q = 0; q < q_quads(p.steps); ++q)
    for (int64_t w = 0; w < width; ++w)
      to[q * p.panel + w] = quad_at(x + w * p.width_stride + 4 * q * p.step_stride, p.step_stride,
                                    p.steps - 4 * q, p.flip);
}

}  // namespace

int64_t q_packed_bytes(int64_t width, int64_t steps, int64_t panel) {
  return round_up(width, panel) * q_quads(steps) * 4;
}

void q_pack(const QPack& p) {
  const auto* const data = static_cast<const uint8_t*>(p.data);
  auto* to = static_cast<uint32_t*>(p.packed);
  const int64_t quads = q_quads(p.steps);
  for (int64_t first = 0; first < p.width; first += p.panel, to += quads * p.panel) {
    const int64_t width = std::min(p.panel, p.width - first);
    const uint8_t* const x = data + first * p.width_stride;
    if (p.step_stride == 1) {
      pack_along_steps(p, x, width, to);
    } else if (p.width_stride == 1) {
      pack_along_width(p, x, width, to);
    } else {
      pack_strided(p, x, width, to);
    }
    if (width < p.panel)
      for (int64_t q = 0; q < quads; ++q)
        std::fill_n(to + q * p.panel + width, p.panel - width, 0u);
  }
  if (p.sums == nullptr) return;
  if (p.width_stride == 1 && p.step_stride != 1) {  // in memory order
    std::fill_n(p.sums, p.width, 0);
    for (int64_t s = 0; s < p.steps; ++s) {
      const uint8_t* const x = data + s * p.step_stride;
      for (int64_t w = 0; w < p.width; ++w) {
        const auto byte = static_cast<uint8_t>(x[w] ^ p.flip);
        p.sums[w] += p.is_signed ? static_cast<int8_t>(byte) : byte;
      }
    }
    return;
  }
  for (int64_t w = 0; w < p.width; ++w) {
    const uint8_t* const x = data + w * p.width_stride;
    p.sums[w] = p.is_signed ? sum_of<int8_t>(x, p.step_stride, p.steps, p.flip)
                            : sum_of<uint8_t>(x, p.step_stride, p.steps, p.flip);
  }
}

QGemm::QGemm(QUnit unit, int64_t m, int64_t n, int64_t k, Operand a, Operand b, bool b_packed)
    : unit_(unit),
      m_(m),
      n_(n),
      k_(k),
      a_(a),
      b_(b),
      b_packed_(b_packed),
      a_side_(q_side(a.dtype, false)),
      b_side_(q_side(b.dtype, true)),
      panels_(q_panels(unit)) {
  const int64_t quads = q_quads(k);
  for (int64_t q = 0; q < quads; ++q) offsets_.push_back(q * panels_.cols);
  if (m == 0 || n == 0) return;
  // The columns of a piece fill L2; few pieces become narrower, then lower.
  const int64_t fitting =
      std::clamp<int64_t>(kBlockBytes / std::max<int64_t>(4 * quads, 1), panels_.cols, kBlockCols) /
      panels_.cols * panels_.cols;
  const int64_t wanted =
      std::min<int64_t>(kPieces, 1 + static_cast<int64_t>(operations() / 2 / kPieceSums));
  col_blocks_ = std::max(divide_up(n, fitting), std::min(wanted, divide_up(n, 2 * panels_.cols)));
  cols_ = round_up(divide_up(n, col_blocks_), panels_.cols);
  col_blocks_ = divide_up(n, cols_);
  const int64_t least = b_packed ? panels_.rows : std::max(panels_.rows, kFewRows);
  row_blocks_ = std::clamp<int64_t>(divide_up(wanted, col_blocks_), 1, divide_up(m, least));
  rows_ = round_up(divide_up(m, row_blocks_), panels_.rows);
  row_blocks_ = divide_up(m, rows_);
  a_bytes_ = aligned(q_packed_bytes(panels_.rows, k, panels_.rows) + panels_.rows * 4);
  b_bytes_ = b_packed ? 0 : aligned(q_packed_bytes(cols_, k, panels_.cols) + cols_ * 4);
  sums_bytes_ = aligned(panels_.rows * cols_ * 4);
  lines_bytes_ = aligned(2 * cols_ * 4);
}

double QGemm::operations() const {
  return 2.0 * static_cast<double>(m_) * static_cast<double>(n_) * static_cast<double>(k_);
}

std::string QGemm::packed_layout() const {
  std::string text = "quads";
  for (const int64_t x : {n_, k_, static_cast<int64_t>(b_.dtype), b_.row, b_.col, panels_.cols})
    text += " " + std::to_string(x);
  return text;
}

uint64_t QGemm::packed_bytes() const {
  return aligned(q_packed_bytes(n_, k_, panels_.cols) + n_ * 4);
}

void QGemm::pack_b(const void* b, void* packed) const {
  char* const to = static_cast<char*>(packed);
  q_pack({.data = b,
          .width_stride = b_.col,
          .step_stride = b_.row,
          .width = n_,
          .steps = k_,
          .panel = panels_.cols,
          .is_signed = true,
          .flip = b_side_.flip,
          .packed = to,
          .sums = reinterpret_cast<int32_t*>(to + q_packed_bytes(n_, k_, panels_.cols))});
}

void QGemm::run_piece(const Run& run, int64_t piece, char* own) const {
  const int64_t i0 = piece % row_blocks_ * rows_, j0 = piece / row_blocks_ * cols_;
  const int64_t rows = std::min(rows_, m_ - i0), cols = std::min(cols_, n_ - j0);
  char* const a_panel = own;
  char* const b_block = own + a_bytes_;
  auto* const sums = reinterpret_cast<int32_t*>(b_block + b_bytes_);
  auto* const adds = reinterpret_cast<int32_t*>(b_block + b_bytes_ + sums_bytes_);
  int32_t* const zeros = adds + cols_;
  const int64_t quads = q_quads(k_);

  const char* b = static_cast<const char*>(run.b);
  const int32_t* b_sums;
  if (b_packed_) {
    b_sums = reinterpret_cast<const int32_t*>(b + q_packed_bytes(n_, k_, panels_.cols)) + j0;
    b += j0 * quads * 4;
  } else {
    auto* const to = reinterpret_cast<int32_t*>(b_block + q_packed_bytes(cols_, k_, panels_.cols));
    q_pack({.data = b + j0 * b_.col,
            .width_stride = b_.col,
            .step_stride = b_.row,
            .width = cols,
            .steps = k_,
            .panel = panels_.cols,
            .is_signed = true,
            .flip = b_side_.flip,
            .packed = b_block,
            .sums = to});
    b = b_block, b_sums = to;
  }

  // Σ(a - p)(b - q) = Σab - p·Σb - q·Σa + k·p·q, modulo 2^32.
  const auto a_zero = static_cast<uint32_t>(run.a_zero + a_side_.shift);
  bool shifted = false;
  for (int64_t j = 0; j < cols; ++j) {
    int32_t zero = b_side_.shift;
    if (run.b_zeros != nullptr) {
      const int64_t at = run.b_zeros_per_column ? j0 + j : 0;
      zero += b_.dtype == TENON_DTYPE_U8 ? static_cast<const uint8_t*>(run.b_zeros)[at]
                                         : static_cast<const int8_t*>(run.b_zeros)[at];
    }
    zeros[j] = zero;
    shifted |= zero != 0;
    uint32_t add = a_zero * (static_cast<uint32_t>(k_) * static_cast<uint32_t>(zero) -
                             static_cast<uint32_t>(b_sums[j]));
    if (run.bias != nullptr) add += static_cast<uint32_t>(run.bias[j0 + j]);
    adds[j] = static_cast<int32_t>(add);
  }

  auto* const a_sums =
      reinterpret_cast<int32_t*>(a_panel + q_packed_bytes(panels_.rows, k_, panels_.rows));
  const int64_t y_size = run.y_dtype == TENON_DTYPE_I32 ? 4 : 1;
  for (int64_t i = 0; i < rows; i += panels_.rows) {
    const int64_t count = std::min(panels_.rows, rows - i);
    q_pack({.data = static_cast<const char*>(run.a) + (i0 + i) * a_.row,
            .width_stride = a_.row,
            .step_stride = a_.col,
            .width = count,
            .steps = k_,
            .panel = panels_.rows,
            .is_signed = false,
            .flip = a_side_.flip,
            .packed = a_panel,
            .sums = shifted ? a_sums : nullptr});
    q_tiles({.unit = unit_,
             .left_signed = false,
             .rows = count,
             .cols = cols,
             .quads = quads,
             .a = a_panel,
             .b = b,
             .b_panel = quads * panels_.cols,
             .offsets = offsets_.data(),
             .sums = sums,
             .ld = cols_});
    for (int64_t r = 0; r < count; ++r) {
      const bool each = run.multipliers_per_column;
      q_row({.sums = sums + r * cols_,
             .floats = false,
             .count = cols,
             .add = 0,
             .adds = adds,
             .factor = shifted ? static_cast<int32_t>(0u - static_cast<uint32_t>(a_sums[r])) : 0,
             .factors = zeros,
             .scaled = run.multipliers != nullptr,
             .multiplier = run.multipliers != nullptr ? run.multipliers[0] : 1.0f,
             .multipliers = each && run.multipliers != nullptr ? run.multipliers + j0 : nullptr,
             .low = run.low,
             .high = run.high,
             .zero = run.y_zero,
             .y = run.y_dtype,
             .to = static_cast<char*>(run.y) + ((i0 + i + r) * n_ + j0) * y_size});
    }
  }
}

}  // namespace tenon::cpu
