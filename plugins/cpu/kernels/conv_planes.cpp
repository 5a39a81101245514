// SPDX-License-Identifier: Apache-2.0
// Convolutions from padded copies: with packed weights in register tiles, and for few channels per
// group (depthwise ones above all) with the weights in registers.
#include <algorithm>
#include <cstring>

#include "conv.hpp"
#include "conv_padded.hpp"
#include "convert.hpp"
#include "gemm.hpp"
#include "gemm_core.hpp"

namespace tenon::cpu {
namespace {

constexpr int64_t kSteps = 768;            // of the sums, per pass over a block
constexpr int64_t kTileColumns = 224;      // windows of a band, about
constexpr int64_t kTileBytes = 320 << 10;  // of a padded copy: it fits L2, beside sums
constexpr int64_t kLeastColumns = 96;
constexpr int64_t kPlaneColumns = 4096;  // likewise for few channels
constexpr int64_t kPlaneBytes = 128 << 10;
constexpr int64_t kFilters = 4;      // at a time
constexpr int64_t kPieces = 32;      // of work that there should be, if they can be large
constexpr double kPieceFlops = 2e6;  // large enough
constexpr uint64_t kLine = 64;       // bytes at the start of a work area
constexpr int64_t kWide = 64;        // windows of a row that are worth a loop of their own

// How many pieces the rows of an image and group should be cut into.
int64_t wanted_pieces(const TapConv& t) {
  const double flops = 2.0 * static_cast<double>(t.m) * static_cast<double>(t.windows()) *
                       static_cast<double>(t.depth());
  return std::min<int64_t>(divide_up(kPieces, std::max<int64_t>(t.batch * t.groups, 1)),
                           1 + static_cast<int64_t>(flops / kPieceFlops));
}

}  // namespace

// ---- register tiles

ConvTiles::ConvTiles(TapConv conv, tenon_dtype dtype, bool weights_packed)
    : conv_(std::move(conv)),
      dtype_(dtype),
      sum_(gemm_sum_dtype(dtype)),
      weights_packed_(weights_packed) {
  const int64_t panel = gemm_panels(sum_).cols, size = element_bytes(sum_);
  const int64_t m = std::max<int64_t>(conv_.m, 1);
  weights_ = PackedTaps(conv_, dtype, panel, kSteps);
  int64_t columns = 0;  // of sums
  if (conv_.pointwise() && conv_.dense() && sum_ == dtype_) {
    plan_pixels();
    columns = pixels_;
  } else {
    // Few channels and windows: smaller bands, for work that can be shared.
    const int64_t bands = divide_up(wanted_pieces(conv_), divide_up(m, panel));
    const int64_t wanted = std::max(divide_up(conv_.windows(), bands), kLeastColumns);
    padded_ =
        std::make_shared<PaddedTaps>(conv_, dtype, std::min(wanted, kTileColumns), kTileBytes);
    bands_ = padded_->bands(), offsets_ = padded_->offsets();
    columns = padded_->most_columns();
  }
  const int64_t bands = std::max<int64_t>(bands_, 1);
  row_blocks_ = std::min(divide_up(wanted_pieces(conv_), bands), divide_up(m, panel));
  rows_ = round_up(divide_up(m, row_blocks_), panel);
  row_blocks_ = divide_up(m, rows_);
  ld_ = round_up(columns, 64 / size);
  slots_ = conv_slots(conv_.batch * conv_.groups * bands * row_blocks_);
  slot_ = kLine + (padded_ ? padded_->bytes() : 0) + aligned(std::min(panel, m) * ld_ * size);
  shared_ = weights_packed_ ? 0 : weights_.bytes();
}

// Bands of pixels, of equal numbers of the largest tiles.
void ConvTiles::plan_pixels() {
  constexpr int64_t kMultiple = 28;  // of tiles of 14 windows, and about of those of 6 and of 4
  const int64_t windows = std::max<int64_t>(conv_.windows(), 1);
  const int64_t fitting = kTileBytes / std::max<int64_t>(conv_.c * element_bytes(sum_), 1);
  const int64_t most =
      std::max(std::min(fitting, kTileColumns) / kMultiple, int64_t{1}) * kMultiple;
  pixels_ = std::min(round_up(divide_up(windows, divide_up(windows, most)), kMultiple), windows);
  bands_ = divide_up(windows, pixels_);
  for (int64_t c = 0; c < conv_.c; ++c) offsets_.push_back(c * conv_.pixels());
}

// Bands of pixels are parts of one long row, since y is dense.
ConvBand ConvTiles::band(int64_t k) const {
  if (padded_) return padded_->band(k);
  const int64_t first = k * pixels_;
  return {.rows = 1, .column = first, .width = std::min(pixels_, conv_.windows() - first)};
}

void ConvTiles::run(const sdk::Call& call, const void* x, const void* w,
                    const ConvEnds& ends) const {
  const int64_t depth = conv_.depth(), size = element_bytes(sum_), panel = weights_.row_panel();
  char* const shared = static_cast<char*>(call.scratch);
  if (!weights_packed_) weights_.pack(w, shared);
  const void* const weights = weights_packed_ ? w : shared;
  const int64_t blocks = bands_ * row_blocks_;
  // A work area begins with the number of the band whose copy it holds: pieces of a band follow each
  // other.
  const auto area = [&](int slot) { return shared + shared_ + slot * slot_; };
  for (int slot = 0; slot < slots_; ++slot) *reinterpret_cast<int64_t*>(area(slot)) = -1;
  const auto piece = [&](int64_t k, int slot) {
    int64_t& held = *reinterpret_cast<int64_t*>(area(slot));
    char* const own = area(slot) + kLine;
    const int64_t which = k / blocks, group = which % conv_.groups;
    const ConvBand band = this->band(k % blocks / row_blocks_);
    const char* const image =
        static_cast<const char*>(x) + which * conv_.c * conv_.pixels() * element_bytes(dtype_);
    if (padded_ && held != k / row_blocks_ && depth > 0) padded_->fill(image, band, own);
    held = k / row_blocks_;
    char* const sums = padded_ ? own + padded_->bytes() : own;
    // Rows of windows one by one, or with what is between them.
    const int64_t pitch = padded_ ? padded_->pitch() : 0;
    const bool together = band.rows > 1 && tap_tiles_cost(padded_->columns(band)) <
                                               band.rows * tap_tiles_cost(band.width);
    TapTiles tiles{.sum = sum_,
                   .rows = together ? 1 : band.rows,
                   .width = together ? padded_->columns(band) : band.width,
                   .x = padded_ ? own : image + band.column * size,
                   .x_pitch = pitch,
                   .c = sums,
                   .ldc = ld_};
    const int64_t first = k % row_blocks_ * rows_, last = std::min(first + rows_, conv_.m);
    for (int64_t row = first; row < last; row += panel) {
      tiles.m = std::min(panel, last - row);
      if (depth == 0) std::memset(sums, 0, tiles.m * ld_ * size);
      for (int64_t s = 0; s < depth; s += weights_.steps()) {
        tiles.add = s > 0, tiles.steps = std::min(weights_.steps(), depth - s);
        tiles.w = weights_.at(weights, group, row, s), tiles.offsets = offsets_.data() + s;
        const bool last_part = s + weights_.steps() >= depth;
        const int64_t next = last_part ? row + panel : row;
        tiles.next = next < last
                         ? weights_.at(weights, group, next, last_part ? 0 : s + weights_.steps())
                         : nullptr;
        tap_tiles(tiles);
      }
      for (int64_t i = 0; i < tiles.m; ++i)
        ends.run_rows(call, conv_, dtype_, sums + i * ld_ * size, together ? pitch : band.width,
                      band, which * conv_.m + row + i, group * conv_.m + row + i);
    }
  };
  parallel_for_slots(conv_.batch * conv_.groups * blocks, 1, slots_,
                     [&](int slot, int64_t begin, int64_t end) {
                       for (int64_t k = begin; k < end; ++k) piece(k, slot);
                     });
}

// ---- few channels

ConvPlanes::ConvPlanes(TapConv conv, tenon_dtype dtype)
    : conv_(std::move(conv)), dtype_(dtype), sum_(gemm_sum_dtype(dtype)) {
  const int64_t size = element_bytes(sum_);
  const int64_t columns = std::min(
      kPlaneColumns, divide_up(conv_.axes[1].out * conv_.axes[2].out, wanted_pieces(conv_)));
  padded_ = std::make_shared<PaddedTaps>(conv_, dtype, columns, kPlaneBytes);
  ld_ = round_up(padded_->most_columns(), gemm_panels(sum_).cols);
  weights_ = aligned(conv_.m * conv_.depth() * size);
  sums_ = aligned(kFilters * ld_ * size);
  slots_ = conv_slots(conv_.batch * conv_.groups * padded_->bands());
  slot_ = padded_->bytes() + weights_ + sums_;
}

void ConvPlanes::run(const sdk::Call& call, const void* x, const void* w,
                     const ConvEnds& ends) const {
  // Small planes go together: one is not worth a task.
  const int64_t grain =
      grain_for(ld_ * conv_.m * (conv_.depth() + 8 * (conv_.c + 1)) / 4 * element_bytes(sum_));
  parallel_for_slots(conv_.batch * conv_.groups * padded_->bands(), grain, slots_,
                     [&](int slot, int64_t begin, int64_t end) {
                       char* const own = static_cast<char*>(call.scratch) + slot * slot_;
                       for (int64_t piece = begin; piece < end; ++piece)
                         run_piece(call, static_cast<const char*>(x), w, piece, ends, own);
                     });
}

void ConvPlanes::run_piece(const sdk::Call& call, const char* x, const void* w, int64_t piece,
                           const ConvEnds& ends, char* own) const {
  const int64_t which = piece / padded_->bands(), group = which % conv_.groups;
  const ConvBand band = padded_->band(piece % padded_->bands());
  const int64_t size = element_bytes(sum_), depth = conv_.depth(), width = band.width;
  char *const padded = own, *const weights = own + padded_->bytes();
  char* const sums = weights + weights_;
  if (depth > 0)
    padded_->fill(x + which * conv_.c * conv_.pixels() * element_bytes(dtype_), band, padded);
  with_type(sdk::kFloatTypes, dtype_, [&]<class T>(T) {
    using A = std::conditional_t<std::is_same_v<T, double>, double, float>;
    A* next = reinterpret_cast<A*>(weights);
    for (int64_t m = 0; m < conv_.m; ++m)
      for (int64_t c = 0; c < conv_.c; ++c) {
        const T* const from =
            static_cast<const T*>(w) + group * conv_.w_group + m * conv_.w_m + c * conv_.w_c;
        for (const int64_t t : conv_.w_tap) {
          if constexpr (std::is_same_v<T, A>)
            *next++ = from[t];
          else
            *next++ = to_float(from[t]);
        }
      }
  });
  const int64_t pitch = padded_->pitch();
  const bool wide = width >= kWide;  // else all rows are one, with the columns between them
  const int64_t whole = round_up(padded_->columns(band), gemm_panels(sum_).cols);  // vectors
  for (int64_t m = 0; m < conv_.m; m += kFilters) {
    const int64_t filters = std::min(kFilters, conv_.m - m);
    plane_sums({sum_, padded, pitch, padded_->offsets().data(), depth, weights + m * depth * size,
                filters, wide ? band.rows : 1, wide ? width : whole, sums, wide ? width : ld_,
                ld_});
    for (int64_t f = 0; f < filters; ++f)
      ends.run_rows(call, conv_, dtype_, sums + f * ld_ * size, wide ? width : pitch, band,
                    which * conv_.m + m + f, group * conv_.m + m + f);
  }
}

// The gradient of the weights: one group after the other, images and bands in order.
void ConvPlanes::run_weight(const void* y, const void* x, void* dw, void* scratch) const {
  const int64_t depth = conv_.depth(), size = element_bytes(sum_), from = element_bytes(dtype_);
  const int64_t row = conv_.axes[2].out, slice = conv_.axes[1].out * row;
  const int64_t grain = grain_for(conv_.batch * conv_.windows() * conv_.m * depth);
  parallel_for_slots(conv_.groups, grain, slots_, [&](int slot, int64_t begin, int64_t end) {
    char* const padded = static_cast<char*>(scratch) + slot * slot_;
    char *const dots = padded + padded_->bytes(), *const wide_rows = dots + weights_;
    for (int64_t group = begin; group < end; ++group) {
      std::memset(dots, 0, conv_.m * depth * size);
      for (int64_t piece = 0; piece < conv_.batch * padded_->bands(); ++piece) {
        const int64_t which = piece / padded_->bands() * conv_.groups + group;
        const ConvBand band = padded_->band(piece % padded_->bands());
        padded_->fill(static_cast<const char*>(x) + which * conv_.c * conv_.pixels() * from, band,
                      padded);
        for (int64_t m = 0; m < conv_.m; ++m) {
          const int64_t first = (which * conv_.m + m) * conv_.windows() + band.slice * slice +
                                band.row * row + band.column;
          const char* rows = static_cast<const char*>(y) + first * from;
          if (dtype_ != sum_) {  // several rows are whole ones
            widen(dtype_, rows, reinterpret_cast<float*>(wide_rows), band.rows * band.width);
            rows = wide_rows;
          }
          plane_dots({sum_, padded, padded_->pitch(), padded_->offsets().data(), depth, rows, row,
                      band.rows, band.width, dots + m * depth * size});
        }
      }
      with_type(sdk::kFloatTypes, dtype_, [&]<class T>(T) {
        using A = std::conditional_t<std::is_same_v<T, double>, double, float>;
        const A* const sums = reinterpret_cast<const A*>(dots);
        T* const to = static_cast<T*>(dw) + group * conv_.m * depth;
        for (int64_t k = 0; k < conv_.m * depth; ++k) {
          if constexpr (std::is_same_v<T, A>)
            to[k] = sums[k];
          else
            from_float(sums[k], to + k);
        }
      });
    }
  });
}

}  // namespace tenon::cpu
