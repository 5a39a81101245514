// SPDX-License-Identifier: Apache-2.0
// Convolutions whose windows are single pixels, as matrix products: x itself is the matrix of
// columns. A piece of work is a block of y, rows (channels) by columns (pixels) of one group of one
// image; it packs its columns. The order of the sums depends only on the shapes.
#include <algorithm>

#include "conv.hpp"
#include "gemm.hpp"
#include "gemm_core.hpp"

namespace tenon::cpu {
namespace {

constexpr int64_t kSteps = 768;             // of the sums, per pass over a block
constexpr int64_t kBlockBytes = 384 << 10;  // of packed columns: they fit L2
constexpr int64_t kPieces = 32;             // of work that there should be, if they can be large
constexpr double kPieceFlops = 4e6;         // large enough

}  // namespace

struct ConvProduct::Task {
  int64_t image, group, row, rows, column, columns;
};

ConvProduct::ConvProduct(TapConv conv, tenon_dtype dtype, bool weights_packed)
    : conv_(std::move(conv)),
      weights_(conv_, dtype, gemm_panels(gemm_sum_dtype(dtype)).rows, kSteps),
      dtype_(dtype),
      sum_(gemm_sum_dtype(dtype)),
      weights_packed_(weights_packed) {
  col_panel_ = gemm_panels(sum_).cols;
  const int64_t row_panel = weights_.row_panel(), size = element_bytes(sum_);
  const int64_t depth = std::max<int64_t>(conv_.depth(), 1);
  const int64_t windows = std::max<int64_t>(conv_.windows(), 1), m = std::max<int64_t>(conv_.m, 1);
  const int64_t fitting =
      std::max(kBlockBytes / (weights_.steps() * size) / col_panel_, int64_t{1});
  col_blocks_ = divide_up(windows, fitting * col_panel_);
  // Few images and groups: smaller blocks, of columns first, since rows share packed columns.
  const double flops =
      2.0 * static_cast<double>(m) * static_cast<double>(windows) * static_cast<double>(depth);
  const int64_t wanted =
      std::min<int64_t>(divide_up(kPieces, std::max<int64_t>(conv_.batch * conv_.groups, 1)),
                        1 + static_cast<int64_t>(flops / kPieceFlops));
  const int64_t most =
      divide_up(windows, 4 * col_panel_);  // narrower blocks read the weights again
  col_blocks_ = std::max(col_blocks_, std::min(wanted, most));
  cols_ = round_up(divide_up(windows, col_blocks_), col_panel_);
  col_blocks_ = divide_up(windows, cols_);
  row_blocks_ = std::min(divide_up(wanted, col_blocks_), divide_up(m, 4 * row_panel));
  rows_ = round_up(divide_up(m, row_blocks_), row_panel);
  row_blocks_ = divide_up(m, rows_);

  slots_ = conv_slots(conv_.batch * conv_.groups * col_blocks_ * row_blocks_);
  sums_ = aligned(std::min(rows_, m) * cols_ * size);
  slot_ = aligned(cols_ * weights_.steps() * size) + sums_;
  shared_ = weights_packed_ ? 0 : weights_.bytes();
}

void ConvProduct::run(const sdk::Call& call, const void* x, const void* w,
                      const ConvEnds& ends) const {
  const int64_t depth = conv_.depth(), size = element_bytes(sum_), from = element_bytes(dtype_);
  const int64_t windows = conv_.windows(), pixels = conv_.pixels();
  char* const shared = static_cast<char*>(call.scratch);
  if (!weights_packed_) weights_.pack(w, shared);
  const void* const weights = weights_packed_ ? w : shared;
  const bool direct = conv_.dense() && sum_ == dtype_;
  const int64_t blocks = row_blocks_ * col_blocks_;
  parallel_for_slots(
      conv_.batch * conv_.groups * blocks, 1, slots_, [&](int slot, int64_t begin, int64_t end) {
        char* const sums = shared + shared_ + slot * slot_;
        char* const packed = sums + sums_;
        for (int64_t piece = begin; piece < end; ++piece) {
          const int64_t which = piece / blocks, block = piece % blocks;
          Task task{which / conv_.groups,        which % conv_.groups,
                    block % row_blocks_ * rows_, 0,
                    block / row_blocks_ * cols_, 0};
          task.rows = std::min(rows_, conv_.m - task.row);
          task.columns = std::min(cols_, windows - task.column);
          const char* const image =
              static_cast<const char*>(x) + (which * conv_.c * pixels + task.column) * from;
          const int64_t ld = direct ? windows : task.columns;
          char* const c = direct ? call.out<char>(ends.out) +
                                       ((which * conv_.m + task.row) * windows + task.column) * size
                                 : sums;
          if (depth == 0)
            for (int64_t i = 0; i < task.rows; ++i)
              std::fill_n(c + i * ld * size, task.columns * size, 0);
          for (int64_t s = 0; s < depth; s += weights_.steps()) {
            const int64_t steps = std::min(weights_.steps(), depth - s);
            gemm_pack(dtype_, image + s * pixels * from, 1, pixels, task.columns, steps, col_panel_,
                      steps, packed);
            panel_products({sum_, s > 0, task.rows, task.columns, steps,
                            weights_.at(weights, task.group, task.row, s), packed, c, ld});
          }
          finish(call, task, c, ld, ends);
        }
      });
}

void ConvProduct::finish(const sdk::Call& call, const Task& task, char* sums, int64_t ld,
                         const ConvEnds& ends) const {
  const bool dense = conv_.dense();
  if (dense && ends.none(sum_, dtype_)) return;
  const int64_t size = element_bytes(sum_), width = conv_.axes[2].out;
  const int64_t last = task.column + task.columns;
  for (int64_t i = 0; i < task.rows; ++i, sums += ld * size) {
    const int64_t channel = task.group * conv_.m + task.row + i;
    const int64_t plane = task.image * conv_.groups * conv_.m + channel;
    if (dense) {
      ends.run(call, sum_, dtype_, sums, channel, plane * conv_.y_plane + task.column, 1,
               task.columns);
      continue;
    }
    // Pixels of a phase: each row of them goes to every stride-th element of a row of y.
    for (int64_t j = task.column; j < last;) {
      const int64_t o2 = j % width, o1 = j / width % conv_.axes[1].out,
                    o0 = j / width / conv_.axes[1].out;
      const int64_t count = std::min(width - o2, last - j);
      const int64_t at = plane * conv_.y_plane + conv_.y_origin + o0 * conv_.y_pitch[0] +
                         o1 * conv_.y_pitch[1] + o2 * conv_.y_pitch[2];
      ends.run(call, sum_, dtype_, sums + (j - task.column) * size, channel, at, conv_.y_pitch[2],
               count);
      j += count;
    }
  }
}

}  // namespace tenon::cpu
