// SPDX-License-Identifier: Apache-2.0
// Blocking. Of two operands the smaller is packed once and shared; each piece of work packs its
// part of the larger, so that nothing is packed twice. Sums are added over k in an order that
// depends on the shapes alone.
#include "gemm.hpp"

#include <algorithm>

#include "gemm_core.hpp"
#include "tenon/blob.h"

namespace tenon::cpu {
namespace {

constexpr int64_t kSteps = 512;  // of k at a time, so that a tile's part of a stays in L1
constexpr int64_t kBlockBytes = 640 << 10;  // of b at a time, and of a: in L2 together
constexpr int64_t kPieceFlops = 2'000'000;  // below that a piece is not worth a task
constexpr int64_t kPieceBytes = 128 << 10;  // for products bound by memory

int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
uint64_t aligned(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

int64_t dtype_bytes(tenon_dtype t) { return static_cast<int64_t>(tenon_dense_bytes(t, 1)); }

const void* element(const void* base, tenon_dtype dtype, int64_t offset) {
  return static_cast<const char*>(base) + offset * dtype_bytes(dtype);
}

// Rows of packed a times packed b, into or onto c.
void panels_product(tenon_dtype sum, int64_t m, int64_t n, int64_t steps, const char* a,
                    const char* b, char* c, int64_t ldc, bool add) {
  const GemmPanels panels = gemm_panels(sum);
  const int64_t size = dtype_bytes(sum);
  for (int64_t i = 0; i < m; i += panels.rows)
    tile_products({sum, add ? TileMode::add : TileMode::set, std::min(panels.rows, m - i), n, steps,
                   a + i * steps * size, 1, panels.rows, b, panels.cols * steps, panels.cols,
                   c + i * ldc * size, ldc, nullptr});
}

}  // namespace

struct Gemm::Work {
  const void* a;
  const void* b;
  void* c;
  char* scratch;
  GemmSink sink;
  bool serial;
};

Gemm::Gemm(int64_t m, int64_t n, int64_t k, GemmOperand a, GemmOperand b, bool direct, int slots)
    : m_(m),
      n_(n),
      k_(k),
      a_(a),
      b_(b),
      direct_(direct),
      sum_(gemm_sum_dtype(a.dtype)),
      sum_size_(dtype_bytes(sum_)),
      slots_(slots) {
  if (m == 0 || n == 0) return;
  if (k == 0) {
    sums_ = direct ? 0 : aligned(n * sum_size_);
  } else if (sum_ != TENON_DTYPE_I32 && ((m <= kSkinny && (b.row == 1 || b.col == 1)) ||
                                         (n <= kSkinny && (a.row == 1 || a.col == 1)))) {
    plan_skinny();
  } else {
    plan_panels();
  }
}

void Gemm::loop(const Work& work, int64_t n, int64_t grain,
                FunctionRef<void(int, int64_t, int64_t)> body) const {
  if (work.serial) return body(0, 0, n);
  parallel_for_slots(n, grain, slots_, body);
}

void Gemm::run(const void* a, const void* b, void* c, void* scratch, GemmSink sink,
               bool serial) const {
  if (m_ == 0 || n_ == 0) return;
  const Work work{a, b, c, static_cast<char*>(scratch), sink, serial};
  switch (method_) {
    case Method::empty:
      return run_empty(work);
    case Method::skinny:
      return run_skinny(work);
    case Method::share_a:
      return run_share_a(work);
    case Method::share_b:
      return run_share_b(work);
  }
}

void Gemm::run_empty(const Work& work) const {
  for (int64_t i = 0; i < m_; ++i) {
    char* sums = direct_ ? static_cast<char*>(work.c) + i * n_ * sum_size_ : work.scratch;
    std::fill_n(sums, n_ * sum_size_, 0);
    work.sink({sums, n_, i, 0, 1, n_});
  }
}

// ---- few rows, or few columns: the large operand is read once, at the speed of memory

void Gemm::plan_skinny() {
  method_ = Method::skinny;
  swapped_ = !(m_ <= kSkinny && (b_.row == 1 || b_.col == 1));
  const int64_t few = swapped_ ? n_ : m_;
  shared_ = aligned(few * k_ * sum_size_);
  block_cols_ = std::min<int64_t>(swapped_ ? m_ : n_, 4096);
  if (!direct_) sums_ = aligned(few * block_cols_ * sum_size_);
}

void Gemm::run_skinny(const Work& work) const {
  const GemmOperand& few = swapped_ ? b_ : a_;
  const GemmOperand& many = swapped_ ? a_ : b_;
  const int64_t few_count = swapped_ ? n_ : m_, count = swapped_ ? m_ : n_;
  const int64_t few_stride = swapped_ ? few.col : few.row, few_step = swapped_ ? few.row : few.col;
  const int64_t many_stride = swapped_ ? many.row : many.col,
                many_step = swapped_ ? many.col : many.row;
  for (int64_t i = 0; i < few_count; ++i)  // panels of one: rows one after the other
    gemm_pack(few.dtype, element(swapped_ ? work.b : work.a, few.dtype, i * few_stride), few_stride,
              few_step, 1, k_, 1, work.scratch + i * k_ * sum_size_);

  const int64_t grain =
      std::max<int64_t>(64, kPieceBytes / (k_ * dtype_bytes(many.dtype)) / 64 * 64);
  loop(work, count, grain, [&](int slot, int64_t begin, int64_t end) {
    for (int64_t j = begin; j < end; j += block_cols_) {
      const int64_t cols = std::min(block_cols_, end - j);
      // Rows and columns of the result, in c or in the slot's own block.
      const int64_t few_out = swapped_ ? 1 : direct_ ? n_ : cols;
      const int64_t many_out = !swapped_ ? 1 : direct_ ? n_ : few_count;
      char* sums = direct_ ? static_cast<char*>(work.c) + j * many_out * sum_size_
                           : work.scratch + shared_ + slot * sums_;
      gemm_skinny(many.dtype, few_count, cols, k_, work.scratch,
                  element(swapped_ ? work.a : work.b, many.dtype, j * many_stride), many_step,
                  many_stride, sums, few_out, many_out);
      if (swapped_) {
        work.sink({sums, many_out, j, 0, cols, n_});
      } else {
        work.sink({sums, few_out, 0, j, m_, cols});
      }
    }
  });
}

// ---- panels

void Gemm::plan_panels() {
  const GemmPanels panels = gemm_panels(sum_);
  row_panel_ = panels.rows, col_panel_ = panels.cols;
  const int64_t parts = (k_ + kSteps - 1) / kSteps;
  steps_ = (k_ + parts - 1) / parts;
  const int64_t fitting = std::max<int64_t>(1, kBlockBytes / (steps_ * col_panel_ * sum_size_));
  block_cols_ = std::min(round_up(n_, col_panel_), fitting * col_panel_);
  // Where the sums are not built in c they must be few: then c's rows are split, unless they are
  // few themselves.
  if (m_ < n_ && (direct_ || m_ <= 512)) {
    method_ = Method::share_a;
    shared_ = aligned(round_up(m_, row_panel_) * k_ * sum_size_);
    pack_ = aligned(block_cols_ * steps_ * sum_size_);
    if (!direct_) sums_ = aligned(m_ * block_cols_ * sum_size_);
  } else {
    method_ = Method::share_b;
    const int64_t rows =
        std::max<int64_t>(kBlockBytes / (k_ * sum_size_) / row_panel_, 4) * row_panel_;
    block_rows_ = std::min({round_up(m_, row_panel_), rows, 32 * row_panel_});
    shared_ = aligned(round_up(n_, col_panel_) * k_ * sum_size_);
    pack_ = aligned(block_rows_ * k_ * sum_size_);
    if (!direct_) sums_ = aligned(block_rows_ * block_cols_ * sum_size_);
  }
}

void Gemm::run_share_a(const Work& work) const {
  const int64_t row_panels = round_up(m_, row_panel_) / row_panel_;
  const int64_t padded = row_panels * row_panel_;
  // a: for each part of k all panels, one after the other.
  loop(work, row_panels, grain_for(row_panel_ * k_ * sum_size_),
       [&](int, int64_t begin, int64_t end) {
         for (int64_t s = 0; s < k_; s += steps_) {
           const int64_t steps = std::min(steps_, k_ - s), i = begin * row_panel_;
           gemm_pack(a_.dtype, element(work.a, a_.dtype, i * a_.row + s * a_.col), a_.row, a_.col,
                     std::min(m_, end * row_panel_) - i, steps, row_panel_,
                     work.scratch + (s * padded + i * steps) * sum_size_);
         }
       });
  const int64_t grain = std::max<int64_t>(1, kPieceFlops / (2 * m_ * k_ * col_panel_));
  loop(work, round_up(n_, col_panel_) / col_panel_, grain,
       [&](int slot, int64_t begin, int64_t end) {
         char* const packed = work.scratch + shared_ + slot * (pack_ + sums_);
         const int64_t last = std::min(n_, end * col_panel_);
         for (int64_t j = begin * col_panel_; j < last; j += block_cols_) {
           const int64_t cols = std::min(block_cols_, last - j);
           char* const sums = direct_ ? static_cast<char*>(work.c) + j * sum_size_ : packed + pack_;
           const int64_t ld = direct_ ? n_ : cols;
           for (int64_t s = 0; s < k_; s += steps_) {
             const int64_t steps = std::min(steps_, k_ - s);
             gemm_pack(b_.dtype, element(work.b, b_.dtype, s * b_.row + j * b_.col), b_.col, b_.row,
                       cols, steps, col_panel_, packed);
             panels_product(sum_, m_, cols, steps, work.scratch + s * padded * sum_size_, packed,
                            sums, ld, s > 0);
           }
           work.sink({sums, ld, 0, j, m_, cols});
         }
       });
}

void Gemm::run_share_b(const Work& work) const {
  const int64_t col_panels = round_up(n_, col_panel_) / col_panel_;
  const int64_t padded = col_panels * col_panel_;
  loop(work, col_panels, grain_for(col_panel_ * k_ * sum_size_),
       [&](int, int64_t begin, int64_t end) {
         for (int64_t s = 0; s < k_; s += steps_) {
           const int64_t steps = std::min(steps_, k_ - s), j = begin * col_panel_;
           gemm_pack(b_.dtype, element(work.b, b_.dtype, s * b_.row + j * b_.col), b_.col, b_.row,
                     std::min(n_, end * col_panel_) - j, steps, col_panel_,
                     work.scratch + (s * padded + j * steps) * sum_size_);
         }
       });
  const int64_t grain = std::max<int64_t>(1, kPieceFlops / (2 * n_ * k_ * row_panel_));
  loop(work, round_up(m_, row_panel_) / row_panel_, grain,
       [&](int slot, int64_t begin, int64_t end) {
         char* const packed = work.scratch + shared_ + slot * (pack_ + sums_);
         const int64_t last = std::min(m_, end * row_panel_);
         for (int64_t i = begin * row_panel_; i < last; i += block_rows_)
           share_b_rows(work, i, std::min(block_rows_, last - i), padded, packed);
       });
}

// Rows [i, i + rows): a packed whole, then block of columns by block of columns.
void Gemm::share_b_rows(const Work& work, int64_t i, int64_t rows, int64_t padded_cols,
                        char* packed) const {
  const int64_t padded = round_up(rows, row_panel_);
  for (int64_t s = 0; s < k_; s += steps_)
    gemm_pack(a_.dtype, element(work.a, a_.dtype, i * a_.row + s * a_.col), a_.row, a_.col, rows,
              std::min(steps_, k_ - s), row_panel_, packed + s * padded * sum_size_);
  for (int64_t j = 0; j < n_; j += block_cols_) {
    const int64_t cols = std::min(block_cols_, n_ - j);
    char* const sums =
        direct_ ? static_cast<char*>(work.c) + (i * n_ + j) * sum_size_ : packed + pack_;
    const int64_t ld = direct_ ? n_ : cols;
    for (int64_t s = 0; s < k_; s += steps_) {
      const int64_t steps = std::min(steps_, k_ - s);
      panels_product(sum_, rows, cols, steps, packed + s * padded * sum_size_,
                     work.scratch + (s * padded_cols + j * steps) * sum_size_, sums, ld, s > 0);
    }
    work.sink({sums, ld, i, j, rows, cols});
  }
}

}  // namespace tenon::cpu
