// SPDX-License-Identifier: Apache-2.0
// The conv family, host side: what a node computes, and the ways to compute it.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "../device.hpp"
#include "args.hpp"
#include "entries.hpp"
#include "quantized.hpp"

namespace tenon::cuda {

// The convolution x [n, c, in..], w [m, c / groups, kernel..], y [n, m, out..] that a node is, or
// whose transpose or gradient it is.
struct ConvGeometry {
  tenon_dtype dtype = TENON_DTYPE_NONE;
  int64_t n = 0, c = 0, m = 0, groups = 1;
  args::ConvAxis axes[3]{};

  int64_t taps() const;
  int64_t pixels() const;   // of a channel of x
  int64_t windows() const;  // of a channel of y
  // Windows of one pixel each, at the same place.
  bool pointwise() const;
  // One window over the whole image, one group.
  bool whole() const;
  // transposed: from y to x.
  args::ConvShape shape(bool transposed) const;
};

// dims of x and y, [n, channels, spatial..]; refuses what 32 bits cannot count.
struct ConvWindows {
  std::span<const int64_t> kernel, stride, pads, dilation;
};
ConvGeometry conv_geometry(tenon_dtype dtype, std::span<const int64_t> x,
                           std::span<const int64_t> y, const ConvWindows& windows, int64_t groups);

// What follows the sums: positions of operands and outputs, -1 where absent.
struct ConvEnding {
  int bias = -1, residual = -1, pre_act = -1;
  tenon_dtype bias_dtype = TENON_DTYPE_NONE;
  std::string act{};                  // text of the value `x`
  std::vector<sdk::Value> aligned{};  // are read and written along with y

  bool none() const { return bias < 0 && residual < 0 && pre_act < 0 && act.empty(); }
  std::vector<std::string> defines() const;
  args::ConvEnds of(const sdk::Call& call) const;
};

// A sum over taps: y from x, or with `transposed` x from y. from, w: operands.
struct ConvProblem {
  ConvGeometry geometry;
  bool transposed = false;
  sdk::Value from{}, w{};
  ConvEnding ending{};
  std::optional<QuantizedEnding> quantized{};  // of 8-bit integers, instead of `ending`

  args::ConvShape shape() const { return geometry.shape(transposed); }
  int64_t plane() const { return transposed ? geometry.pixels() : geometry.windows(); }
  int64_t source() const { return transposed ? geometry.windows() : geometry.pixels(); }
  int64_t count() const {  // elements of the result
    return geometry.n * (transposed ? geometry.c : geometry.m) * plane();
  }
  double seconds() const;  // estimated
};

// By one thread for a few results (conv_planes.cu), for few channels in a group.
bool takes_planes(const ConvProblem& p);
sdk::Kernel conv_by_planes(const sdk::Node& node, const ConvProblem& p);
bool takes_planes_weight(const ConvGeometry& g);
sdk::Kernel conv_weight_by_planes(const sdk::Node& node, const ConvGeometry& g,
                                  const sdk::Value& dy, const sdk::Value& x);

// By tiles of products (conv.cu, conv_weight.cu).
sdk::Kernel conv_by_tiles(const sdk::Node& node, const ConvProblem& p);
sdk::Kernel conv_weight_by_tiles(const sdk::Node& node, const ConvGeometry& g, const sdk::Value& dy,
                                 const sdk::Value& x);

// Convolutions of halves on sm_90 from a grid of positions (conv_grid.cu, conv_shifts.cu): the grid,
// and which positions each tap reads.
struct ConvShiftPlan {
  args::ConvGrid grid{};
  args::ConvShifts shifts{};
};
// None where the kernel does not take the windows.
std::optional<ConvShiftPlan> conv_shift_plan(const ConvProblem& p);
// None where the kernel does not take the problem, or another way is faster.
std::optional<sdk::Kernel> conv_by_shifts(const sdk::Node& node, const ConvProblem& p);
// The gradient of the weights (conv_shifts_weight.cu).
std::optional<sdk::Kernel> conv_weight_by_shifts(const sdk::Node& node, const ConvGeometry& g,
                                                 const sdk::Value& dy, const sdk::Value& x);

// ---- parts of these

inline args::ConvEnds ends_of(const ConvEnding& ending, const sdk::Call& call, const void*) {
  return ending.of(call);
}
inline args::QuantizedEnds ends_of(const QuantizedEnding& ending, const sdk::Call& call,
                                   const void* w_sums) {
  return ending.of(call, w_sums);
}

// Elements of 16 bytes.
inline int64_t piece_of(tenon_dtype t) { return 16 / element_bytes(t); }

// A piece of scratch memory after the other, each on 256 bytes.
class ConvScratch {
 public:
  uint64_t add(uint64_t bytes) {
    const uint64_t at = size_;
    size_ += (bytes + 255) / 256 * 256;
    return at;
  }
  uint64_t size() const { return size_; }

 private:
  uint64_t size_ = 0;
};
inline void* scratch_at(const sdk::Call& call, uint64_t offset) {
  return static_cast<char*>(call.scratch) + offset;
}

// The filters of a problem in the order that its kernel reads: made in each run, or once if they are
// frozen.
class ConvFilterOrder {
 public:
  // by_pieces: [group][m][tap][padded], the channels in pieces of 16 bytes, else [group][tap][c][m].
  // across: pieces of bytes in the order of across_term (conv_filters.cuh).
  ConvFilterOrder(CudaDevice& device, const ConvProblem& p, bool by_pieces, ConvScratch& scratch,
                  bool across = false);
  int64_t padded() const { return shape_.padded; }
  // Launches what is needed, and returns where the filters are.
  const void* get(const sdk::Call& call) const;
  void add_to(std::vector<Code>& codes) const;
  void add_to(sdk::Kernel& kernel) const;
  // The sums of each filter of 8-bit integers, behind the filters.
  const void* sums(const sdk::Call& call) const {
    return sums_.rows > 0 ? static_cast<const char*>(place(call)) + sums_at_ : nullptr;
  }
  // For a kernel that orders the filters itself: nothing is launched. work() counts no elements where
  // there is nothing to do.
  args::ConvFilters work() const;
  void* place(const sdk::Call& call) const;  // not written where work() counts no elements
  int input() const { return input_; }

 private:
  void run(const sdk::Call& call, const void* from, void* to) const;
  std::string layout() const;

  CodeFor<entries::conv_filters> code_{};
  args::ConvFilters shape_{};
  bool by_m_, across_ = false, orders_ = false, derived_ = false;
  int input_;
  uint64_t bytes_ = 0, at_ = 0;
  ByteRowSums sums_{};
  uint64_t sums_at_ = 0;
};

// Puts the channels of pixels side by side, in pieces of 16 bytes.
struct ConvStaging {
  CodeFor<entries::conv_channels_last> code{};
  args::ConvLayout layout{};
  int64_t images = 0, piece = 8;  // piece: channels

  ConvStaging() = default;
  // Of images [n, groups·c, pixels]. Refuses more than 2^31 pieces.
  ConvStaging(const sdk::Node& node, const sdk::Value& value, int64_t n, int64_t groups, int64_t c,
              int64_t pixels);
  int32_t pieces() const { return static_cast<int32_t>(layout.padded / piece); }
  uint64_t bytes() const;
  void run(const sdk::Call& call, const void* from, void* to) const;
};

// Grids of positions of images.
class ConvPositions {
 public:
  ConvPositions(const args::ConvGrid& grid, const sdk::Value& from, ConvScratch& scratch);
  void* place(const sdk::Call& call) const { return scratch_at(call, at_); }
  // A copy takes 64 channels of so many positions of a part: dimensions are the channels of a group,
  // groups, positions, parts.
  args::TensorMap map(const sdk::Call& call, tenon_dtype dtype, int64_t groups, int64_t rows) const;
  int64_t parts() const { return int64_t{grid_.step} * grid_.step; }

 private:
  friend class ConvFiller;
  args::ConvGrid grid_;
  int64_t width_ = 1;
  int from_;
  uint64_t at_;
};

// Makes up to two of them, and orders filters, in one launch.
class ConvFiller {
 public:
  ConvFiller(CudaDevice& device, std::span<const ConvPositions> positions,
             const ConvFilterOrder* filters = nullptr);
  const CodeFor<entries::conv_grid>& code() const { return code_; }
  void run(const sdk::Call& call) const;

 private:
  std::vector<ConvPositions> positions_;
  std::optional<ConvFilterOrder> filters_;
  CodeFor<entries::conv_grid> code_{};
  Grid grid_{};
};

// Adds up the parts of a gradient of weights.
struct ConvWeightFinish {
  CodeFor<entries::conv_finish_weights> code{};
  args::ConvFinishWeights shape{};
  Grid grid{};

  ConvWeightFinish() = default;
  // columns: elements of a row of parts. padded: elements of a tap there, 0 where rows are as in dw.
  ConvWeightFinish(const sdk::Node& node, const ConvGeometry& g, int64_t splits, int64_t columns,
                   int64_t padded);
  uint64_t bytes() const;  // of the parts
  void run(const sdk::Call& call, const void* parts) const;

 private:
  int64_t sum_bytes_ = 4;
};

// ---- makers of conv_columns.cpp
sdk::Kernel make_im2col(const sdk::op::im2col& n, const sdk::Node& node);
sdk::Kernel make_col2im(const sdk::op::col2im& n, const sdk::Node& node);

}  // namespace tenon::cuda
