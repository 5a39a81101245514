// SPDX-License-Identifier: Apache-2.0
// Convolutions as matrix products. A piece of work is a block of y: rows (channels) by columns
// (windows) of one group of one image. It packs its part of the matrix of columns, line by line
// through a buffer that stays in cache, and multiplies it by packed weights. The order of the sums
// depends only on the shapes.
#include <algorithm>

#include "conv.hpp"
#include "epilogue.hpp"
#include "gemm.hpp"
#include "gemm_core.hpp"

namespace tenon::cpu {
namespace {

constexpr int64_t kSteps = 768;             // of the sums, per pass over a block
constexpr int64_t kBlockBytes = 384 << 10;  // of packed columns: they fit L2
constexpr int64_t kLineSteps = 32;          // lines that are packed at a time
constexpr int64_t kPieces = 32;             // of work that there should be, if they can be large
constexpr double kPieceFlops = 4e6;         // large enough

int64_t divide_up(int64_t n, int64_t by) { return (n + by - 1) / by; }
int64_t round_up(int64_t n, int64_t to) { return divide_up(n, to) * to; }
uint64_t aligned(int64_t bytes) { return static_cast<uint64_t>(round_up(bytes, 64)); }

}  // namespace

struct ConvProduct::Task {
  int64_t image, group, row, rows, column, columns;
};

ConvProduct::ConvProduct(TapConv conv, tenon_dtype dtype, bool weights_packed)
    : conv_(std::move(conv)),
      dtype_(dtype),
      sum_(gemm_sum_dtype(dtype)),
      weights_packed_(weights_packed) {
  const GemmPanels panels = gemm_panels(sum_);
  row_panel_ = panels.rows, col_panel_ = panels.cols;
  const int64_t size = element_bytes(sum_), depth = std::max<int64_t>(conv_.depth(), 1);
  steps_ = divide_up(depth, divide_up(depth, kSteps));
  const int64_t windows = std::max<int64_t>(conv_.windows(), 1), m = std::max<int64_t>(conv_.m, 1);
  const int64_t fitting = std::max(kBlockBytes / (steps_ * size) / col_panel_, int64_t{1});
  col_blocks_ = divide_up(windows, fitting * col_panel_);
  // Few images and groups: smaller blocks, of columns first, since rows share packed columns.
  const double flops =
      2.0 * static_cast<double>(m) * static_cast<double>(windows) * static_cast<double>(depth);
  const int64_t wanted =
      std::min<int64_t>(divide_up(kPieces, std::max<int64_t>(conv_.batch * conv_.groups, 1)),
                        1 + static_cast<int64_t>(flops / kPieceFlops));
  const int64_t most = divide_up(windows, 4 * col_panel_);  // narrower blocks repack the weights
  col_blocks_ = std::max(col_blocks_, std::min(wanted, most));
  cols_ = round_up(divide_up(windows, col_blocks_), col_panel_);
  col_blocks_ = divide_up(windows, cols_);
  row_blocks_ = std::min(divide_up(wanted, col_blocks_), divide_up(m, 4 * row_panel_));
  rows_ = round_up(divide_up(m, row_blocks_), row_panel_);
  row_blocks_ = divide_up(m, rows_);

  slots_ = widest_arena();
  lines_ = aligned(kLineSteps * cols_ * element_bytes(dtype_));
  sums_ = aligned(std::min(rows_, m) * cols_ * size);
  slot_ = lines_ + aligned(cols_ * steps_ * size) + sums_;
  shared_ = weights_packed_ ? 0 : aligned(static_cast<int64_t>(packed_bytes()));
}

std::string ConvProduct::packed_layout() const {
  std::string text = "taps";
  for (const int64_t n : {static_cast<int64_t>(dtype_), conv_.groups, conv_.m, conv_.c, conv_.w_m,
                          conv_.w_c, row_panel_, steps_})
    text += " " + std::to_string(n);
  for (const int64_t t : conv_.w_tap) text += "," + std::to_string(t);
  return text;
}

uint64_t ConvProduct::packed_bytes() const {
  return aligned(conv_.groups * round_up(conv_.m, row_panel_) * conv_.depth() *
                 element_bytes(sum_));
}

// Weights of a group: parts of `steps_` steps, in each of which the panels follow each other.
void ConvProduct::pack_panel(const void* w, int64_t group, int64_t row, char* packed) const {
  const int64_t depth = conv_.depth(), size = element_bytes(sum_), from = element_bytes(dtype_);
  const int64_t padded = round_up(conv_.m, row_panel_), rows = std::min(row_panel_, conv_.m - row);
  const char* const base =
      static_cast<const char*>(w) + (group * conv_.w_group + row * conv_.w_m) * from;
  packed += group * padded * depth * size;
  const bool in_order = conv_.w_c == conv_.taps() && conv_.w_m == depth;
  for (int64_t s = 0; s < depth; s += steps_) {
    const int64_t steps = std::min(steps_, depth - s);
    char* const panel = packed + (s * padded + row * steps) * size;
    if (in_order) {
      gemm_pack(dtype_, base + s * from, conv_.w_m, 1, rows, steps, row_panel_, steps, panel);
      continue;
    }
    for (int64_t k = 0; k < steps; ++k) {
      const int64_t c = (s + k) / conv_.taps(), t = (s + k) % conv_.taps();
      gemm_pack(dtype_, base + (c * conv_.w_c + conv_.w_tap[t]) * from, conv_.w_m, 1, rows, 1,
                row_panel_, 1, panel + k * row_panel_ * size);
    }
  }
}

void ConvProduct::pack(const void* w, void* packed) const {
  const int64_t panels = divide_up(conv_.m, row_panel_);
  parallel_for(conv_.groups * panels, grain_for(row_panel_ * conv_.depth() * element_bytes(sum_)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t p = begin; p < end; ++p)
                   pack_panel(w, p / panels, p % panels * row_panel_, static_cast<char*>(packed));
               });
}

// x: the channels of a group. Packs the steps [step, step + steps) of columns [first, first + count).
void ConvProduct::pack_columns(const char* x, int64_t step, int64_t steps, int64_t first,
                               int64_t count, char* lines, char* packed) const {
  const int64_t size = element_bytes(dtype_), pixels = conv_.pixels(), taps = conv_.taps();
  if (conv_.pointwise())
    return gemm_pack(dtype_, x + (step * pixels + first) * size, 1, pixels, count, steps,
                     col_panel_, steps, packed);
  for (int64_t s = 0; s < steps; s += kLineSteps) {
    const int64_t some = std::min(kLineSteps, steps - s);
    for (int64_t k = 0; k < some; ++k)
      conv_line(conv_, (step + s + k) % taps, x + (step + s + k) / taps * pixels * size, first,
                count, size, lines + k * count * size);
    gemm_pack(dtype_, lines, 1, count, count, some, col_panel_, steps,
              packed + s * col_panel_ * element_bytes(sum_));
  }
}

void ConvProduct::run(const sdk::Call& call, const void* x, const void* w, void* y,
                      const ConvEnds& ends) const {
  const int64_t depth = conv_.depth(), size = element_bytes(sum_), windows = conv_.windows();
  const int64_t padded = round_up(conv_.m, row_panel_);
  char* const shared = static_cast<char*>(call.scratch);
  if (!weights_packed_) pack(w, shared);
  const char* const weights = weights_packed_ ? static_cast<const char*>(w) : shared;
  const bool direct = conv_.dense() && sum_ == dtype_;
  const int64_t blocks = row_blocks_ * col_blocks_;
  parallel_for_slots(
      conv_.batch * conv_.groups * blocks, 1, slots_, [&](int slot, int64_t begin, int64_t end) {
        char* const lines = shared + shared_ + slot * slot_;
        char* const sums = lines + lines_;
        char* const packed = sums + sums_;
        for (int64_t piece = begin; piece < end; ++piece) {
          const int64_t which = piece / blocks, block = piece % blocks;
          Task task{which / conv_.groups,        which % conv_.groups,
                    block % row_blocks_ * rows_, 0,
                    block / row_blocks_ * cols_, 0};
          task.rows = std::min(rows_, conv_.m - task.row);
          task.columns = std::min(cols_, windows - task.column);
          const char* const image = static_cast<const char*>(x) +
                                    which * conv_.c * conv_.pixels() * element_bytes(dtype_);
          const int64_t ld = direct ? windows : task.columns;
          char* const c = direct ? static_cast<char*>(y) +
                                       ((which * conv_.m + task.row) * windows + task.column) * size
                                 : sums;
          if (depth == 0)
            for (int64_t i = 0; i < task.rows; ++i)
              std::fill_n(c + i * ld * size, task.columns * size, 0);
          for (int64_t s = 0; s < depth; s += steps_) {
            const int64_t steps = std::min(steps_, depth - s);
            pack_columns(image, s, steps, task.column, task.columns, lines, packed);
            panel_products(
                {sum_, s > 0, task.rows, task.columns, steps,
                 weights + (task.group * padded * depth + s * padded + task.row * steps) * size,
                 packed, c, ld});
          }
          finish(call, task, c, ld, ends);
        }
      });
}

void ConvProduct::finish(const sdk::Call& call, const Task& task, char* sums, int64_t ld,
                         const ConvEnds& ends) const {
  const bool dense = conv_.dense();
  if (dense && ends.none(sum_, dtype_)) return;
  const int64_t size = element_bytes(sum_);
  for (int64_t i = 0; i < task.rows; ++i, sums += ld * size) {
    const int64_t channel = task.group * conv_.m + task.row + i;
    if (!dense) {
      scatter(call, task, task.row + i, sums, ends);
      continue;
    }
    const int64_t plane = task.image * conv_.groups * conv_.m + channel;
    ends.run(call, sum_, dtype_, sums, channel, plane * conv_.y_plane + task.column, 1,
             task.columns);
  }
}

// Windows of a phase: each row of them goes to every stride-th element of a row of y.
void ConvProduct::scatter(const sdk::Call& call, const Task& task, int64_t row, char* sums,
                          const ConvEnds& ends) const {
  const int64_t channel = task.group * conv_.m + row, width = conv_.axes[2].out;
  const int64_t plane = task.image * conv_.groups * conv_.m + channel;
  const int64_t last = task.column + task.columns;
  for (int64_t j = task.column; j < last;) {
    const int64_t o2 = j % width, o1 = j / width % conv_.axes[1].out,
                  o0 = j / width / conv_.axes[1].out;
    const int64_t count = std::min(width - o2, last - j);
    const int64_t at = plane * conv_.y_plane + conv_.y_origin + o0 * conv_.y_pitch[0] +
                       o1 * conv_.y_pitch[1] + o2 * conv_.y_pitch[2];
    ends.run(call, sum_, dtype_, sums + (j - task.column) * element_bytes(sum_), channel, at,
             conv_.y_pitch[2], count);
    j += count;
  }
}

}  // namespace tenon::cpu
