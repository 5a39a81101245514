// SPDX-License-Identifier: Apache-2.0
// The gradient of the weights: dw = y·columnsᵀ, summed over all windows of all images. The windows
// are cut into parts whose sums are added in order at the end, so that there is work for many
// threads; the cuts depend only on the shapes.
#include <algorithm>
#include <cstring>

#include "conv.hpp"
#include "epilogue.hpp"
#include "gemm.hpp"
#include "gemm_core.hpp"

namespace tenon::cpu {
namespace {

constexpr int64_t kSteps = 256;            // windows per product
constexpr int64_t kRows = 256;             // of dw per piece of work
constexpr int64_t kLineBytes = 192 << 10;  // of lines of columns
constexpr int64_t kPieces = 32;            // of work that there should be
constexpr double kPieceFlops = 4e6;        // large enough

}  // namespace

struct ConvWeight::Task {
  int64_t part, group, row, rows, column, columns;
};

ConvWeight::ConvWeight(TapConv conv, tenon_dtype dtype)
    : conv_(std::move(conv)), dtype_(dtype), sum_(gemm_sum_dtype(dtype)) {
  const GemmPanels panels = gemm_panels(sum_);
  row_panel_ = panels.rows, col_panel_ = panels.cols;
  const int64_t size = element_bytes(sum_), own = element_bytes(dtype_);
  const int64_t windows = std::max<int64_t>(conv_.windows(), 1);
  const int64_t depth = std::max<int64_t>(conv_.depth(), 1), m = std::max<int64_t>(conv_.m, 1);
  steps_ = divide_up(windows, divide_up(windows, kSteps));
  blocks_ = conv_.batch * divide_up(windows, steps_);
  rows_ = round_up(divide_up(m, divide_up(m, kRows)), row_panel_);
  const int64_t most = std::max(kLineBytes / (steps_ * own) / col_panel_, int64_t{1}) * col_panel_;
  cols_ = round_up(divide_up(depth, divide_up(depth, most)), col_panel_);
  row_blocks_ = divide_up(m, rows_), col_blocks_ = divide_up(depth, cols_);
  const double flops = 2.0 * static_cast<double>(m) * static_cast<double>(depth) *
                       static_cast<double>(windows) * static_cast<double>(conv_.batch);
  const int64_t wanted =
      std::min<int64_t>(divide_up(kPieces, conv_.groups * row_blocks_ * col_blocks_),
                        1 + static_cast<int64_t>(flops / kPieceFlops));
  parts_ = std::clamp<int64_t>(wanted, 1, std::max<int64_t>(blocks_, 1));
  slots_ = conv_slots(parts_ * conv_.groups * row_blocks_ * col_blocks_);
  lines_ = aligned(cols_ * steps_ * own);
  slot_ = lines_ + aligned(cols_ * steps_ * size) + aligned(rows_ * steps_ * size);
  if (parts_ > 1 || sum_ != dtype_)
    shared_ = aligned(parts_ * conv_.groups * conv_.m * conv_.depth() * size);
}

// The sums of a part, in order of the blocks of windows.
void ConvWeight::sum_part(const Task& task, const char* y, const char* x, char* sums, int64_t ld,
                          char* own) const {
  const int64_t size = element_bytes(sum_), from = element_bytes(dtype_), taps = conv_.taps();
  const int64_t windows = conv_.windows(), per_image = divide_up(windows, steps_);
  char *const lines = own, *const columns = own + lines_;
  char* const rows = columns + aligned(cols_ * steps_ * size);
  const int64_t begin = blocks_ * task.part / parts_, end = blocks_ * (task.part + 1) / parts_;
  for (int64_t block = begin; block < end; ++block) {
    const int64_t which = block / per_image * conv_.groups + task.group;
    const int64_t first = block % per_image * steps_, steps = std::min(steps_, windows - first);
    gemm_pack(dtype_, y + ((which * conv_.m + task.row) * windows + first) * from, windows, 1,
              task.rows, steps, row_panel_, steps, rows);
    const char* const image = x + which * conv_.c * conv_.pixels() * from;
    for (int64_t k = 0; k < task.columns; ++k) {
      const int64_t step = task.column + k;
      conv_line(conv_, step % taps, image + step / taps * conv_.pixels() * from, first, steps, from,
                lines + k * steps * from);
    }
    gemm_pack(dtype_, lines, steps, 1, task.columns, steps, col_panel_, steps, columns);
    panel_products({sum_, block > begin, task.rows, task.columns, steps, rows, columns, sums, ld});
  }
}

void ConvWeight::run(const void* y, const void* x, void* dw, void* scratch) const {
  const int64_t size = element_bytes(sum_), depth = conv_.depth();
  const int64_t count = conv_.groups * conv_.m * depth;  // elements of dw
  if (count == 0) return;
  if (blocks_ == 0) {
    std::memset(dw, 0, count * element_bytes(dtype_));
    return;
  }
  char* const sums = shared_ > 0 ? static_cast<char*>(scratch) : static_cast<char*>(dw);
  const int64_t per_group = row_blocks_ * col_blocks_, per_part = conv_.groups * per_group;
  parallel_for_slots(parts_ * per_part, 1, slots_, [&](int slot, int64_t begin, int64_t end) {
    char* const own = static_cast<char*>(scratch) + shared_ + slot * slot_;
    for (int64_t piece = begin; piece < end; ++piece) {
      const int64_t in_part = piece % per_part, in_group = in_part % per_group;
      Task task{piece / per_part,
                in_part / per_group,
                in_group / col_blocks_ * rows_,
                0,
                in_group % col_blocks_ * cols_,
                0};
      task.rows = std::min(rows_, conv_.m - task.row);
      task.columns = std::min(cols_, depth - task.column);
      const int64_t at =
          task.part * count + (task.group * conv_.m + task.row) * depth + task.column;
      sum_part(task, static_cast<const char*>(y), static_cast<const char*>(x), sums + at * size,
               depth, own);
    }
  });
  if (shared_ == 0) return;
  parallel_for(count, grain_for(parts_ * size), [&](int64_t begin, int64_t end) {
    char* const total = sums + begin * size;
    for (int64_t part = 1; part < parts_; ++part)
      epilogue_add(sum_, total, sums + (part * count + begin) * size, sum_, end - begin);
    epilogue_store(sum_, total, static_cast<char*>(dw) + begin * element_bytes(dtype_), dtype_,
                   end - begin);
  });
}

}  // namespace tenon::cpu
