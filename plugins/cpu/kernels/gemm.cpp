// SPDX-License-Identifier: Apache-2.0
// Blocking. The smaller operand is packed once and shared; each piece of work packs its part of the
// larger one, so nothing is packed twice. The order of the sums over k depends only on the shapes.
#include "gemm.hpp"

#include <algorithm>
#include <atomic>

#include "blocks.hpp"
#include "gemm_core.hpp"
#include "tenon/blob.h"

namespace tenon::cpu {
namespace {

constexpr int64_t kSteps = 1024;            // of k per pass over c
constexpr int64_t kUnitSteps = 512;         // the same on AMX
constexpr int64_t kSharedSteps = 256;       // the same for share_both
constexpr int64_t kBlockBytes = 640 << 10;  // of b and of a per block: both fit L2
constexpr int64_t kSharedBytes = 1 << 20;   // of both operands per group, for share_both
// limit for products with many more steps than results
constexpr uint64_t kMaxScratch = 128 << 20;
constexpr int64_t kLongBytes = 4 << 20;     // of both operands per group, beyond this limit
constexpr int64_t kRecomputeRows = 64;      // rows recomputed at a time
constexpr int64_t kPieceFlops = 2'000'000;  // least work worth a task
constexpr int64_t kPieceBytes = 128 << 10;  // the same for products bound by memory
constexpr int64_t kFewestLaneSteps = 256;   // of sums by lanes, for many rows
constexpr int64_t kSkinnyUnit = 64;         // rows or columns per unit in such products

int64_t dtype_bytes(tenon_dtype t) { return static_cast<int64_t>(tenon_dense_bytes(t, 1)); }

const void* element(const void* base, tenon_dtype dtype, int64_t offset) {
  return static_cast<const char*>(base) + offset * dtype_bytes(dtype);
}

void raise(std::atomic<uint32_t>& maximum, uint32_t to) {
  uint32_t seen = maximum.load(std::memory_order_relaxed);
  while (seen < to && !maximum.compare_exchange_weak(seen, to, std::memory_order_relaxed)) {
  }
}

}  // namespace

Gemm::Gemm(int64_t m, int64_t n, int64_t k, GemmOperand a, GemmOperand b, bool direct, int slots,
           F32Precision precision, int64_t columns, bool row_bits)
    : m_(m),
      n_(n),
      k_(k),
      columns_(columns > 0 ? columns : n),
      a_(a),
      b_(b),
      direct_(direct),
      row_bits_(row_bits),
      sum_(gemm_sum_dtype(a.dtype)),
      sum_size_(dtype_bytes(sum_)),
      slots_(slots) {
  if (m == 0 || n == 0) return;
  // Few rows are fastest as dot products, which add by lanes; so many rows do it, too. With fewer
  // steps that would slow them down more, so few rows add in order.
  const bool dots = sum_ == TENON_DTYPE_F32 && b.row == 1 && b.col > 1 && a.col == 1 && a.row > 1;
  if (row_bits && dots && k >= kFewestLaneSteps) lanes_ = gemm_panels(sum_).lanes;
  if (k == 0) {
    sums_ = direct ? 0 : aligned(n * sum_size_);
  } else if (sum_ != TENON_DTYPE_I32 && ((m <= kSkinny && (b.row == 1 || b.col == 1)) ||
                                         (n <= kSkinny && (a.row == 1 || a.col == 1)))) {
    plan_skinny();
  } else {
    plan_unit(precision);
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
  std::atomic<uint32_t> shared_bits{0};
  const Work work{a, b, c, static_cast<char*>(scratch), sink, serial, shared_bits};
  switch (method_) {
    case Method::empty:
      return run_empty(work);
    case Method::skinny:
      return run_skinny(work);
    case Method::share_a:
      return run_share_a(work);
    case Method::share_b:
      return run_share_b(work);
    case Method::share_both:
      return run_share_both(work);
  }
}

void Gemm::run_empty(const Work& work) const {
  for (int64_t i = 0; i < m_; ++i) {
    char* sums = direct_ ? static_cast<char*>(work.c) + i * n_ * sum_size_ : work.scratch;
    std::fill_n(sums, n_ * sum_size_, 0);
    work.sink({sums, n_, i, 0, 1, n_});
  }
}

// ---- few rows or few columns: the large operand is read once, at the speed of memory

void Gemm::plan_skinny() {
  method_ = Method::skinny;
  swapped_ = !(m_ <= kSkinny && (b_.row == 1 || b_.col == 1));
  const int64_t few = swapped_ ? n_ : m_, parts = (k_ + kSteps - 1) / kSteps;
  steps_ = (k_ + parts - 1) / parts;  // as in plan_panels()
  shared_ = aligned(few * k_ * sum_size_);
  block_cols_ = std::min<int64_t>(swapped_ ? m_ : n_, 4096);
  if (!direct_) sums_ = aligned(few * block_cols_ * sum_size_);
}

// Packs the operand with few rows or columns, in panels of width 1.
void Gemm::pack_few(const Work& work) const {
  const GemmOperand& few = swapped_ ? b_ : a_;
  const int64_t stride = swapped_ ? few.col : few.row, step = swapped_ ? few.row : few.col;
  for (int64_t i = 0; i < (swapped_ ? n_ : m_); ++i)
    gemm_pack(few.dtype, element(swapped_ ? work.b : work.a, few.dtype, i * stride), stride, step,
              1, k_, 1, k_, work.scratch + i * k_ * sum_size_);
}

void Gemm::run_skinny(const Work& work) const {
  pack_few(work);
  loop(work, units(), grain(n_), [&](int slot, int64_t begin, int64_t end) {
    skinny_piece(work, begin, end, work.scratch + shared_ + slot * sums_);
  });
}

void Gemm::skinny_piece(const Work& work, int64_t begin, int64_t end, char* own) const {
  const GemmOperand& many = swapped_ ? a_ : b_;
  const int64_t few_count = swapped_ ? n_ : m_, count = swapped_ ? m_ : n_;
  const int64_t many_stride = swapped_ ? many.row : many.col,
                many_step = swapped_ ? many.col : many.row;
  const int64_t last = std::min(count, end * kSkinnyUnit);
  for (int64_t j = begin * kSkinnyUnit; j < last; j += block_cols_) {
    const int64_t cols = std::min(block_cols_, last - j);
    // Strides of the result, in c or in the piece's own block.
    const int64_t few_out = swapped_ ? 1 : direct_ ? n_ : cols;
    const int64_t many_out = !swapped_ ? 1 : direct_ ? n_ : few_count;
    char* sums = direct_ ? static_cast<char*>(work.c) + j * many_out * sum_size_ : own;
    gemm_skinny({many.dtype, few_count, cols, k_, steps_, work.scratch,
                 element(swapped_ ? work.a : work.b, many.dtype, j * many_stride), many_step,
                 many_stride, sums, few_out, many_out, lanes_ > 1 || !row_bits_});
    if (swapped_) {
      work.sink({sums, many_out, j, 0, cols, n_});
    } else {
      work.sink({sums, few_out, 0, j, m_, cols});
    }
  }
}

// ---- panels

// Elements [first, first + width) of an operand at the steps from s on, not packed.
struct Gemm::Panels {
  AmxSide side;
  GemmOperand layout;  // row: along the width; col: along the steps
  const void* data;
  int64_t width, steps;
};

// Selects AMX if it gains more than the padding of its panels costs.
void Gemm::plan_unit(F32Precision precision) {
  const GemmPanels panels = gemm_panels(sum_);
  row_panel_ = panels.rows, col_panel_ = panels.cols, packed_size_ = sum_size_;
  if (a_.dtype != b_.dtype) return;
  const AmxNumber number = amx_number(a_.dtype, precision == F32Precision::tf32);
  if (number == AmxNumber::none) return;
  const double padded = static_cast<double>(round_up(m_, kAmxPanel / 2)) *
                        static_cast<double>(round_up(n_, kAmxPanel / 2)) *
                        static_cast<double>(round_up(k_, kAmxSteps));
  if (2 * padded > flops() * amx_gain(number)) return;
  unit_ = number, lanes_ = 1;
  row_panel_ = col_panel_ = kAmxPanel, step_unit_ = kAmxSteps;
  packed_size_ = 2 * amx_parts(number);
}

void Gemm::plan_panels() {
  // Both operands are contiguous across the steps: whole rows are packed, a few steps at a time.
  // With fewer rows than columns, packing a once is as good.
  const bool across = direct_ && !on_unit() && a_.row == 1 && b_.col == 1 && m_ >= n_;
  const int64_t max_steps = across ? kSharedSteps : on_unit() ? kUnitSteps : kSteps;
  const int64_t k_parts = (k_ + max_steps - 1) / max_steps;
  steps_ = round_up((k_ + k_parts - 1) / k_parts, step_unit_);
  if (across) return plan_share_both(k_parts, kSharedBytes);
  const int64_t k = round_up(k_, step_unit_);
  const int64_t max_panels = on_unit() ? kBlockPanels : INT64_MAX / col_panel_;
  const int64_t fitting =
      std::clamp<int64_t>(kBlockBytes / (steps_ * col_panel_ * packed_size_), 1, max_panels);
  block_cols_ = std::min(round_up(n_, col_panel_), fitting * col_panel_);
  // Without `direct`, the block of sums must be small: so c's rows are split, unless there are few
  // of them.
  if (m_ < columns_ && (direct_ || m_ <= 512)) {
    method_ = Method::share_a;
    shared_ = aligned(round_up(m_, row_panel_) * k * packed_size_);
    pack_ = aligned(block_cols_ * steps_ * packed_size_);
    if (!direct_) sums_ = aligned(m_ * block_cols_ * sum_size_);
  } else {
    method_ = Method::share_b;
    const int64_t rows =
        std::clamp<int64_t>(kBlockBytes / (k * packed_size_) / row_panel_, 4, on_unit() ? 8 : 32);
    block_rows_ = std::min(round_up(m_, row_panel_), rows * row_panel_);
    shared_ = aligned(round_up(n_, col_panel_) * k * packed_size_);
    pack_ = aligned(block_rows_ * k * packed_size_);
    if (!direct_) sums_ = aligned(block_rows_ * block_cols_ * sum_size_);
  }
  if (on_unit())
    recompute_buffer_ =
        aligned((round_up(kRecomputeRows, gemm_panels(sum_).rows) + gemm_panels(sum_).cols) *
                std::min(k_, kSteps) * sum_size_);
  sums_ += recompute_buffer_;
  // Completely packed operands grow with k. If there are few results, k can be processed in groups:
  // the sums pass through c, or a block of the same size, once per group, in the same order.
  const bool few = direct_ || static_cast<uint64_t>(m_ * n_ * sum_size_) <= kMaxScratch / 4;
  if (!on_unit() && few && scratch() > kMaxScratch && k_ >= 8 * std::max(m_, n_)) {
    pack_ = sums_ = 0;
    plan_share_both(k_parts, kLongBytes);
  }
}

void Gemm::plan_share_both(int64_t k_parts, int64_t bytes) {
  method_ = Method::share_both;
  const int64_t step = (round_up(m_, row_panel_) + round_up(n_, col_panel_)) * packed_size_;
  group_ = std::clamp<int64_t>(bytes / (step * steps_), 1, k_parts) * steps_;
  shared_ = aligned(step * std::min(group_, k_)) + whole_sums();
  block_rows_ =
      std::max<int64_t>(4, kBlockBytes / (steps_ * packed_size_) / row_panel_) * row_panel_;
}

Gemm::Panels Gemm::rows_of(const Work& work, int64_t i, int64_t rows, int64_t s,
                           int64_t steps) const {
  return {AmxSide::a, a_, element(work.a, a_.dtype, i * a_.row + s * a_.col), rows, steps};
}
Gemm::Panels Gemm::cols_of(const Work& work, int64_t j, int64_t cols, int64_t s,
                           int64_t steps) const {
  return {AmxSide::b,
          {b_.dtype, b_.col, b_.row},
          element(work.b, b_.dtype, s * b_.row + j * b_.col),
          cols,
          steps};
}

// `bits` has room for kBlockPanels panels; register tiles do not use it.
void Gemm::pack(const Panels& p, char* to, uint32_t* bits) const {
  if (on_unit()) {
    amx_pack({p.layout.dtype, p.data, p.layout.row, p.layout.col, p.width, p.steps}, unit_, p.side,
             to, bits);
  } else {
    gemm_pack(p.layout.dtype, p.data, p.layout.row, p.layout.col, p.width, p.steps,
              p.side == AmxSide::a ? row_panel_ : col_panel_, p.steps, to, lanes_);
  }
}

// Offset in a completely packed operand of the panels from element `first` on, at the steps from s
// on. Each part of k has all panels, one after the other.
int64_t Gemm::panel_offset(AmxSide side, int64_t s, int64_t first) const {
  const int64_t padded = side == AmxSide::a ? round_up(m_, row_panel_) : round_up(n_, col_panel_);
  const int64_t steps = round_up(std::min(steps_, k_ - s), step_unit_);
  return (s * padded + first * steps) * packed_size_;
}

void Gemm::pack_whole(const Work& work, AmxSide side, char* to) const {
  const bool a = side == AmxSide::a;
  if (!on_unit() && (a ? a_.row : b_.col) == 1)
    return loop(work, k_, steps_grain(a ? m_ : n_), [&](int, int64_t begin, int64_t end) {
      pack_steps(work, side, 0, begin, end, to);
    });
  pack_parts(work, side, 0, k_, to);
}

// Packs the whole width at the steps [from, until), which are whole parts of k, into panels that
// start at step `from`.
void Gemm::pack_parts(const Work& work, AmxSide side, int64_t from, int64_t until, char* to) const {
  const bool a = side == AmxSide::a;
  const int64_t width = a ? m_ : n_, panel = a ? row_panel_ : col_panel_;
  const int64_t chunk = on_unit() ? kBlockPanels * panel : width;
  loop(work, (width + panel - 1) / panel, grain_for(panel * (until - from) * packed_size_),
       [&](int, int64_t begin, int64_t end) {
         const int64_t last = std::min(width, end * panel);
         for (int64_t s = from; s < until; s += steps_)
           for (int64_t first = begin * panel; first < last; first += chunk) {
             const int64_t count = std::min(chunk, last - first), steps = std::min(steps_, k_ - s);
             uint32_t bits[kBlockPanels] = {};
             pack(a ? rows_of(work, first, count, s, steps) : cols_of(work, first, count, s, steps),
                  to + panel_offset(side, s, first) - panel_offset(side, from, 0), bits);
             raise(work.shared_bits, *std::max_element(bits, bits + kBlockPanels));
           }
       });
}

// Steps per piece, for an operand of this width.
int64_t Gemm::steps_grain(int64_t width) const { return 8 * grain_for(8 * width * packed_size_); }

// Packs the whole width at the steps [begin, end) into register panels that start at step `origin`.
void Gemm::pack_steps(const Work& work, AmxSide side, int64_t origin, int64_t begin, int64_t end,
                      char* to) const {
  const bool a = side == AmxSide::a;
  for (int64_t s = begin; s < end;) {
    const int64_t part = s / steps_ * steps_, part_steps = std::min(steps_, k_ - part);
    const int64_t steps = std::min(end, part + part_steps) - s;
    const int64_t panel = a ? row_panel_ : col_panel_;
    const Panels p = a ? rows_of(work, 0, m_, s, steps) : cols_of(work, 0, n_, s, steps);
    gemm_pack(p.layout.dtype, p.data, p.layout.row, p.layout.col, p.width, steps, panel, part_steps,
              to + panel_offset(side, part, 0) - panel_offset(side, origin, 0) +
                  (s - part) * panel * packed_size_);
    s += steps;
  }
}

// ---- b packed before any run

// Packing pays if there are few rows. Numbers that AMX splits into several parts are excluded,
// because the range of their panels is checked in every run.
bool Gemm::wants_packed_b() const {
  if (method_ != Method::share_a && method_ != Method::share_b) return false;
  return unit_ == AmxNumber::bf16 ? m_ <= 1024 : unit_ == AmxNumber::none && m_ <= 64;
}

void Gemm::take_packed_b() {
  b_packed_ = true;
  (method_ == Method::share_a ? pack_ : shared_) = 0;
}

std::string Gemm::packed_layout() const {
  std::string text = on_unit() ? "pairs" : "columns";
  for (const int64_t n :
       {static_cast<int64_t>(b_.dtype), k_, n_, b_.row, b_.col, col_panel_, steps_, lanes_})
    text += " " + std::to_string(n);
  return text;
}

uint64_t Gemm::packed_bytes() const {
  return aligned(round_up(n_, col_panel_) * round_up(k_, step_unit_) * packed_size_);
}

void Gemm::pack_b(const void* b, void* packed) const {
  std::atomic<uint32_t> bits{0};
  const auto nothing = [](const GemmBlock&) {};
  pack_whole({nullptr, b, nullptr, nullptr, nothing, false, bits}, AmxSide::b,
             static_cast<char*>(packed));
}

const char* Gemm::packed_b_at(const Work& work, int64_t s, int64_t j) const {
  const char* const whole = b_packed_ ? static_cast<const char*>(work.b) : work.scratch;
  return whole + panel_offset(AmxSide::b, s, j);
}

void Gemm::multiply(int64_t m, int64_t n, int64_t s, const char* a, const char* b, char* c,
                    int64_t ld) const {
  const int64_t steps = std::min(steps_, k_ - s);
  if (on_unit()) {
    amx_product({unit_, s > 0, m, n, steps, a, b, reinterpret_cast<float*>(c), ld});
  } else {
    panel_products({sum_, s > 0, m, n, steps, a, b, c, ld, lanes_});
  }
}

// Computes a block in register tiles, from the operands that are not packed.
void Gemm::recompute(const Work& work, const GemmBlock& block, char* buffer) const {
  const GemmPanels panels = gemm_panels(sum_);
  const auto pack_side = [](const Panels& p, int64_t panel, char* to) {
    gemm_pack(p.layout.dtype, p.data, p.layout.row, p.layout.col, p.width, p.steps, panel, p.steps,
              to);
  };
  for (int64_t s = 0; s < k_; s += kSteps) {
    const int64_t steps = std::min(kSteps, k_ - s);
    char* const b = buffer + round_up(kRecomputeRows, panels.rows) * steps * sum_size_;
    for (int64_t i = 0; i < block.rows; i += kRecomputeRows) {
      const int64_t rows = std::min(kRecomputeRows, block.rows - i);
      pack_side(rows_of(work, block.i0 + i, rows, s, steps), panels.rows, buffer);
      for (int64_t j = 0; j < block.cols; j += panels.cols) {
        const int64_t cols = std::min(panels.cols, block.cols - j);
        pack_side(cols_of(work, block.j0 + j, cols, s, steps), panels.cols, b);
        panel_products({sum_, s > 0, rows, cols, steps, buffer, b,
                        static_cast<char*>(block.sums) + (i * block.ld + j) * sum_size_, block.ld});
      }
    }
  }
}

// Passes on a block that AMX computed. Recomputes panels whose numbers are out of AMX's range
// (`bits`). That depends only on the operands, not on the threads.
void Gemm::finish(const Work& work, const GemmBlock& block, const uint32_t* bits,
                  char* buffer) const {
  if (on_unit() && !amx_ordinary(work.shared_bits.load(std::memory_order_relaxed))) {
    recompute(work, block, buffer);
  } else if (on_unit()) {
    const bool by_rows = method_ == Method::share_b;
    const int64_t width = by_rows ? block.rows : block.cols;
    for (int64_t w = 0; w < width; w += kAmxPanel) {
      if (amx_ordinary(bits[w / kAmxPanel])) continue;
      GemmBlock part = block;
      (by_rows ? part.i0 : part.j0) += w;
      (by_rows ? part.rows : part.cols) = std::min(kAmxPanel, width - w);
      part.sums = static_cast<char*>(block.sums) + w * (by_rows ? block.ld : 1) * sum_size_;
      recompute(work, part, buffer);
    }
  }
  work.sink(block);
}

// Units of work: columns of a skinny product, or panels of the operand that is not shared.
int64_t Gemm::units() const {
  const auto count = [](int64_t n, int64_t of) { return (n + of - 1) / of; };
  if (method_ == Method::skinny) return count(swapped_ ? m_ : n_, kSkinnyUnit);
  return method_ == Method::share_a ? count(n_, col_panel_) : count(m_, row_panel_);
}

// Units per piece. A unit of rows is multiplied by `columns` columns.
int64_t Gemm::grain(int64_t columns) const {
  if (method_ == Method::skinny)
    return std::max<int64_t>(
        1, kPieceBytes / (k_ * dtype_bytes(swapped_ ? a_.dtype : b_.dtype)) / kSkinnyUnit);
  const int64_t across = method_ == Method::share_a ? m_ * col_panel_ : columns * row_panel_;
  return std::max<int64_t>(1, kPieceFlops * (on_unit() ? 3 : 1) / (2 * across * k_));
}

void Gemm::run_share_a(const Work& work) const {
  pack_whole(work, AmxSide::a, work.scratch);
  loop(work, units(), grain(n_), [&](int slot, int64_t begin, int64_t end) {
    share_a_piece(work, begin, end, work.scratch + shared_ + slot * (pack_ + sums_));
  });
}

void Gemm::share_a_piece(const Work& work, int64_t begin, int64_t end, char* own) const {
  const int64_t last = std::min(n_, end * col_panel_);
  for (int64_t j = begin * col_panel_; j < last; j += block_cols_)
    share_a_cols(work, j, std::min(block_cols_, last - j), own);
}

void Gemm::share_a_cols(const Work& work, int64_t j, int64_t cols, char* packed) const {
  char* const sums = direct_ ? static_cast<char*>(work.c) + j * sum_size_ : packed + pack_;
  const int64_t ld = direct_ ? n_ : cols;
  uint32_t bits[kBlockPanels] = {};
  for (int64_t s = 0; s < k_; s += steps_) {
    const char* b = packed;
    if (b_packed_) {
      b = packed_b_at(work, s, j);
    } else {
      pack(cols_of(work, j, cols, s, std::min(steps_, k_ - s)), packed, bits);
    }
    multiply(m_, cols, s, work.scratch + panel_offset(AmxSide::a, s, 0), b, sums, ld);
  }
  finish(work, {sums, ld, 0, j, m_, cols}, bits, packed + pack_ + sums_ - recompute_buffer_);
}

void Gemm::run_share_b(const Work& work) const {
  if (!b_packed_) pack_whole(work, AmxSide::b, work.scratch);
  loop(work, units(), grain(n_), [&](int slot, int64_t begin, int64_t end) {
    char* const packed = work.scratch + shared_ + slot * (pack_ + sums_);
    const int64_t last = std::min(m_, end * row_panel_);
    for (int64_t i = begin * row_panel_; i < last; i += block_rows_) {
      const int64_t rows = std::min(block_rows_, last - i);
      uint32_t bits[kBlockPanels] = {};
      pack_rows(work, i, rows, packed, bits);
      share_b_rows(work, i, rows, packed, bits);
    }
  });
}

// Packs rows [i, i + rows) of a, for all of k.
void Gemm::pack_rows(const Work& work, int64_t i, int64_t rows, char* packed,
                     uint32_t* bits) const {
  for (int64_t s = 0; s < k_; s += steps_)
    pack(rows_of(work, i, rows, s, std::min(steps_, k_ - s)),
         packed + s * round_up(rows, row_panel_) * packed_size_, bits);
}

// Multiplies the packed rows [i, i + rows) by one block of columns after another.
void Gemm::share_b_rows(const Work& work, int64_t i, int64_t rows, char* packed,
                        const uint32_t* bits) const {
  const int64_t padded = round_up(rows, row_panel_);
  for (int64_t j = 0; j < n_; j += block_cols_) {
    const int64_t cols = std::min(block_cols_, n_ - j);
    char* const sums =
        direct_ ? static_cast<char*>(work.c) + (i * n_ + j) * sum_size_ : packed + pack_;
    const int64_t ld = direct_ ? n_ : cols;
    for (int64_t s = 0; s < k_; s += steps_)
      multiply(rows, cols, s, packed + s * padded * packed_size_, packed_b_at(work, s, j), sums,
               ld);
    finish(work, {sums, ld, i, j, rows, cols}, bits, packed + pack_ + sums_ - recompute_buffer_);
  }
}

// share_both: bytes of all sums, without `direct`.
uint64_t Gemm::whole_sums() const { return direct_ ? 0 : aligned(m_ * n_ * sum_size_); }

// Packs a group of steps of both operands, then multiplies while the packed data is in cache.
void Gemm::run_share_both(const Work& work) const {
  char* const a = work.scratch + whole_sums();
  for (int64_t first = 0; first < k_; first += group_) {
    const int64_t last = std::min(k_, first + group_);
    char* const b = a + panel_offset(AmxSide::a, last, 0) - panel_offset(AmxSide::a, first, 0);
    if (lanes_ > 1) {  // a panel takes the steps of a part in another order
      pack_parts(work, AmxSide::a, first, last, a);
      pack_parts(work, AmxSide::b, first, last, b);
    } else {
      loop(work, last - first, steps_grain(m_ + n_), [&](int, int64_t begin, int64_t end) {
        pack_steps(work, AmxSide::a, first, first + begin, first + end, a);
        pack_steps(work, AmxSide::b, first, first + begin, first + end, b);
      });
    }
    const int64_t grain =
        std::max<int64_t>(1, kPieceFlops / (2 * n_ * (last - first) * row_panel_));
    loop(work, (m_ + row_panel_ - 1) / row_panel_, grain, [&](int, int64_t begin, int64_t end) {
      const int64_t from = begin * row_panel_, to = std::min(m_, end * row_panel_);
      for (int64_t i = from; i < to; i += block_rows_)
        share_both_rows(work, i, std::min(block_rows_, to - i), first, last, a, b);
    });
  }
}

// Rows [i, i + rows) of the result, for the steps of one group.
void Gemm::share_both_rows(const Work& work, int64_t i, int64_t rows, int64_t first, int64_t last,
                           const char* a, const char* b) const {
  const auto from_first = [&](AmxSide side, int64_t s, int64_t element) {
    return panel_offset(side, s, element) - panel_offset(side, first, 0);
  };
  char* const sums = (direct_ ? static_cast<char*>(work.c) : work.scratch) + i * n_ * sum_size_;
  for (int64_t s = first; s < last; s += steps_)
    multiply(rows, n_, s, a + from_first(AmxSide::a, s, i), b + from_first(AmxSide::b, s, 0), sums,
             n_);
  if (last == k_) work.sink({sums, n_, i, 0, rows, n_});
}

}  // namespace tenon::cpu
