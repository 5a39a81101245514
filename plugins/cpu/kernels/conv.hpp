// SPDX-License-Identifier: Apache-2.0
// Convolutions as sums over taps: y(o) = Σ w(c, t)·x(c, o·step + tap(t)). A forward convolution is
// one such sum. Its transpose is one per phase, the positions o mod stride of its result, each of
// which has its own taps. Planned once; the classes below run it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "blocks.hpp"
#include "elementwise.hpp"
#include "slots.hpp"
#include "tenon/kernel.hpp"

namespace tenon::cpu {

inline constexpr int kConvAxes = 3;  // fewer spatial axes are led by axes of one pixel and one tap

struct ConvAxis {
  int64_t in = 1, out = 1, step = 1;
  std::vector<int64_t> taps{0};  // the input of window o at tap t: o * step + taps[t]
  bool flat() const;             // one pixel, one window and one tap
};

struct TapConv {
  int64_t batch = 0, groups = 1;
  int64_t c = 0, m = 0;  // channels of x and of y, per group
  std::array<ConvAxis, kConvAxes> axes{};
  // Window (o0, o1, o2) is element y_origin + Σ o·y_pitch of a plane of y.
  int64_t y_plane = 0, y_origin = 0;
  std::array<int64_t, kConvAxes> y_pitch{};
  // The weight of row m and step (c, t) of group g: w[g * w_group + m * w_m + c * w_c + w_tap[t]].
  int64_t w_group = 0, w_m = 0, w_c = 0;
  std::vector<int64_t> w_tap{};

  int64_t taps() const { return static_cast<int64_t>(w_tap.size()); }
  int64_t depth() const { return c * taps(); }
  int64_t windows() const { return axes[0].out * axes[1].out * axes[2].out; }
  int64_t pixels() const { return axes[0].in * axes[1].in * axes[2].in; }
  bool dense() const { return y_plane == windows(); }  // the windows are all of y's plane, in order
  bool pointwise() const;                              // x itself is the matrix of columns
  bool flat() const;                                   // the first axis is; flat axes lead
};

// A node of the family: x [n, c, in..], w [m, c / groups, kernel..], y [n, m, out..].
struct ConvGeometry {
  int64_t n = 0, c = 0, m = 0, groups = 1;
  struct Axis {
    int64_t in = 1, out = 1, kernel = 1, stride = 1, before = 0, dilation = 1;
  };
  std::array<Axis, kConvAxes> axes;
  TapConv forward() const;
  TapConv reached() const;  // forward, without the taps that lie outside of x for all windows
  // From y to x, one for each phase, of which there are phases(). Likewise without such taps.
  std::vector<TapConv> transposed() const;
  int64_t phases() const;
  int64_t taps() const { return axes[0].kernel * axes[1].kernel * axes[2].kernel; }
  int64_t pixels() const { return axes[0].in * axes[1].in * axes[2].in; }
  int64_t windows() const { return axes[0].out * axes[1].out * axes[2].out; }
};
// Refuses windows of millions of taps, which would need tables of that size.
void check_conv_depth(const ConvGeometry& g);
// x, w: the types in these roles, not of operands by these names.
template <class Op>
ConvGeometry conv_geometry(const Op& n, std::span<const int64_t> x, std::span<const int64_t> kernel,
                           std::span<const int64_t> y, int64_t groups) {
  ConvGeometry g{.n = x[0], .c = x[1], .m = y[1], .groups = groups, .axes = {}};
  const size_t rank = kernel.size(), lead = kConvAxes - rank;
  for (size_t k = 0; k < rank; ++k) {
    ConvGeometry::Axis& a = g.axes[lead + k];
    a.in = x[2 + k], a.out = y[2 + k], a.kernel = kernel[k];
    if (!n.stride.empty()) a.stride = n.stride[k];
    if (!n.dilation.empty()) a.dilation = n.dilation[k];
    if (!n.pads.empty()) a.before = n.pads[k];
  }
  return g;
}

// Windows of a plane that are computed together: rows of a slice (o1), each from `column` on (o2).
// Several rows are whole ones.
struct ConvBand {
  int64_t slice = 0, row = 0, rows = 0;
  int64_t column = 0, width = 0;
};

// What follows the sums: y = act(sums + bias + residual). Positions are -1 for absent operands.
struct ConvEnds {
  int bias = -1, residual = -1, pre_act = -1, out = 0;
  tenon_dtype bias_dtype = TENON_DTYPE_NONE;
  std::optional<Activation> act;

  // Finishes a band of windows of a channel: rows of sums, `pitch` apart. plane: of y.
  void run_rows(const sdk::Call& call, const TapConv& conv, tenon_dtype dtype, void* sums,
                int64_t pitch, const ConvBand& band, int64_t plane, int64_t channel) const;
  // Finishes `count` sums of one channel. at: the element of y, with the stride `step`.
  void run(const sdk::Call& call, tenon_dtype sum, tenon_dtype y, void* sums, int64_t channel,
           int64_t at, int64_t step, int64_t count) const;
  // Of a channel; -0 if there is none, since x + -0 is x for all x.
  float bias_of(const sdk::Call& call, int64_t channel) const;
  void run_floats(const sdk::Call& call, float* sums, int64_t channel, int64_t at,
                  int64_t count) const;
  bool none(tenon_dtype sum, tenon_dtype y) const {
    return bias < 0 && residual < 0 && pre_act < 0 && !act && sum == y;
  }
};

// Work areas for so many pieces of work.
inline int conv_slots(int64_t pieces) {
  return static_cast<int>(std::clamp<int64_t>(pieces, 1, widest_arena()));
}

// Elements [first, first + count) of the row (c, t) of the matrix of columns: what tap t of each
// window reads in one plane of x. size: bytes of an element.
void conv_line(const TapConv& conv, int64_t tap, const void* plane, int64_t first, int64_t count,
               int64_t size, void* line);

// Packed weights: for each group, parts of `steps` steps; in a part, panels of rows, the channels of
// y, follow each other.
class PackedTaps {
 public:
  PackedTaps() = default;
  PackedTaps(const TapConv& conv, tenon_dtype dtype, int64_t row_panel, int64_t most_steps);
  std::string layout() const;
  uint64_t bytes() const;
  void pack(const void* w, void* packed) const;
  int64_t row_panel() const { return row_panel_; }
  int64_t steps() const { return steps_; }
  // The panels of a group from `row` on, at the part that starts at `step`.
  const char* at(const void* packed, int64_t group, int64_t row, int64_t step) const;

 private:
  template <class T>
  void pack_panel(const T* w, int64_t group, int64_t row, char* packed) const;

  TapConv conv_;
  tenon_dtype dtype_ = TENON_DTYPE_NONE, sum_ = TENON_DTYPE_NONE;
  int64_t row_panel_ = 1, steps_ = 1;
};

// For windows of one pixel each: the weights times x, of which each piece of work packs its part.
class ConvProduct {
 public:
  ConvProduct() = default;
  // weights_packed: run() takes what weights().pack() wrote, instead of w.
  ConvProduct(TapConv conv, tenon_dtype dtype, bool weights_packed);
  const PackedTaps& weights() const { return weights_; }
  uint64_t scratch() const { return shared_ + slots_ * slot_; }
  void run(const sdk::Call& call, const void* x, const void* w, const ConvEnds& ends) const;

 private:
  struct Task;
  void finish(const sdk::Call& call, const Task& task, char* sums, int64_t ld,
              const ConvEnds& ends) const;

  TapConv conv_;
  PackedTaps weights_;
  tenon_dtype dtype_ = TENON_DTYPE_NONE, sum_ = TENON_DTYPE_NONE;
  bool weights_packed_ = false;
  int64_t col_panel_ = 1;
  int64_t rows_ = 1, cols_ = 1, row_blocks_ = 1, col_blocks_ = 1;  // of a piece of work
  int slots_ = 1;
  uint64_t shared_ = 0, slot_ = 0, sums_ = 0;
};

class PaddedTaps;  // conv_padded.hpp

// The weights times shifted ranges of a padded copy of x, or of x itself if windows are single
// pixels. A piece of work is a band of windows by a block of rows, the channels of y.
class ConvTiles {
 public:
  ConvTiles() = default;
  ConvTiles(TapConv conv, tenon_dtype dtype, bool weights_packed);
  const PackedTaps& weights() const { return weights_; }
  uint64_t scratch() const { return shared_ + slots_ * slot_; }
  void run(const sdk::Call& call, const void* x, const void* w, const ConvEnds& ends) const;

 private:
  void plan_pixels();
  ConvBand band(int64_t k) const;

  TapConv conv_;
  PackedTaps weights_;
  std::shared_ptr<const PaddedTaps> padded_;  // null: x itself, whose pixels are cut into bands
  std::vector<int64_t> offsets_;              // of the steps
  tenon_dtype dtype_ = TENON_DTYPE_NONE, sum_ = TENON_DTYPE_NONE;
  bool weights_packed_ = false;
  int64_t bands_ = 1, pixels_ = 1;  // of a band
  int64_t rows_ = 1, row_blocks_ = 1, ld_ = 1;
  int slots_ = 1;
  uint64_t shared_ = 0, slot_ = 0;
};

// The same for few channels per group: the weights stay in registers, one filter or a few.
class ConvPlanes {
 public:
  ConvPlanes() = default;
  ConvPlanes(TapConv conv, tenon_dtype dtype);
  uint64_t scratch() const { return slots_ * slot_; }
  void run(const sdk::Call& call, const void* x, const void* w, const ConvEnds& ends) const;
  // dw [groups·m, c, taps] of y [n, groups·m, windows]. For a forward convolution.
  void run_weight(const void* y, const void* x, void* dw, void* scratch) const;

 private:
  void run_piece(const sdk::Call& call, const char* x, const void* w, int64_t piece,
                 const ConvEnds& ends, char* own) const;

  TapConv conv_;
  std::shared_ptr<const PaddedTaps> padded_;
  tenon_dtype dtype_ = TENON_DTYPE_NONE, sum_ = TENON_DTYPE_NONE;
  int64_t ld_ = 1;
  int slots_ = 1;
  uint64_t slot_ = 0, weights_ = 0, sums_ = 0;
};

// The gradient of the weights by products over all windows of all images.
class ConvWeight {
 public:
  ConvWeight() = default;
  ConvWeight(TapConv conv, tenon_dtype dtype);
  uint64_t scratch() const { return shared_ + slots_ * slot_; }
  void run(const void* y, const void* x, void* dw, void* scratch) const;

 private:
  struct Task;
  void sum_part(const Task& task, const char* y, const char* x, char* sums, int64_t ld,
                char* own) const;

  TapConv conv_;
  tenon_dtype dtype_ = TENON_DTYPE_NONE, sum_ = TENON_DTYPE_NONE;
  int64_t row_panel_ = 1, col_panel_ = 1;
  int64_t rows_ = 1, cols_ = 1, row_blocks_ = 1, col_blocks_ = 1;
  int64_t steps_ = 1;   // windows per product
  int64_t blocks_ = 1;  // of windows, over all images
  int64_t parts_ = 1;   // sums that are added up at the end, in order
  int slots_ = 1;
  uint64_t shared_ = 0, slot_ = 0, lines_ = 0;
};

// ---- kernels of conv_tiles.cpp

// c[i][o] = (add: +=) Σ w(i, k)·x[offsets[k] + o] in the accumulation type, for `m` channels i and for
// rows of `width` windows o, which are x_pitch apart in x and follow each other in c. w: panels of
// gemm_panels().cols channels. The channels of c are ldc apart.
struct TapTiles {
  tenon_dtype sum = TENON_DTYPE_F32;
  bool add = false;
  int64_t m = 0, rows = 0, width = 0, steps = 0;
  const void* w = nullptr;
  const void* x = nullptr;
  int64_t x_pitch = 0;
  const int64_t* offsets = nullptr;
  void* c = nullptr;
  int64_t ldc = 0;
  const void* next = nullptr;  // weights to fetch meanwhile, as many as these
};
void tap_tiles(const TapTiles& tiles);
// Windows that are computed for a row of so many.
int64_t tap_tiles_cost(int64_t width);

// ---- kernels of conv_planes_simd.cpp. x has the accumulation type; a row of windows starts x_pitch
// elements behind the one before it; term k of window j is x[offsets[k] + j].

// sums[f * filter_pitch + row * row_pitch + j] = Σ w[f * terms + k] * term(k, row, j)
struct PlaneSums {
  tenon_dtype sum;
  const void* x;
  int64_t x_pitch;
  const int64_t* offsets;
  int64_t terms;
  const void* w;
  int64_t filters, rows, count;
  void* sums;
  int64_t row_pitch, filter_pitch;
};
void plane_sums(const PlaneSums& p);

// dots[k] += Σ y[row * y_pitch + j] * term(k, row, j)
struct PlaneDots {
  tenon_dtype sum;
  const void* x;
  int64_t x_pitch;
  const int64_t* offsets;
  int64_t terms;
  const void* y;
  int64_t y_pitch, rows, count;
  void* dots;
};
void plane_dots(const PlaneDots& p);

// to[j] = x[2 * j]
void copy_every_second(const float* x, float* to, int64_t count);
void copy_every_second(const double* x, double* to, int64_t count);

// sums[j] += value
void add_value(tenon_dtype sum, void* sums, double value, int64_t count);

// ---- makers of other files
sdk::Kernel make_im2col(const sdk::op::im2col& n, const sdk::Node& node);
sdk::Kernel make_col2im(const sdk::op::col2im& n, const sdk::Node& node);

}  // namespace tenon::cpu
