// SPDX-License-Identifier: Apache-2.0
// Convolutions of 8-bit integers with exact sums: qconv. Padded copies of x hold four channels per
// element (a quad), or four rows of one channel. Few channels per group with zero points of weights
// are multiplied as floats, which are exact there.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "conv.hpp"
#include "qgemm.hpp"

namespace tenon::cpu {

class PaddedTaps;  // conv_padded.hpp

// What a run reads. Zero points are values of x's and w's dtype. Per channel: else one for all.
struct QConvRun {
  const void* x;
  const void* w;
  int32_t x_zero;
  const void* w_zeros;       // (optional)
  const int32_t* bias;       // (optional)
  const float* multipliers;  // (optional)
  bool w_zeros_per_channel, multipliers_per_channel;
  int32_t low, high, y_zero;
  tenon_dtype y_dtype;
  void* y;
  void* scratch;
};

// For a forward convolution.
class QConv {
 public:
  // w_zeros: a run may have them. w_packed: run() takes what pack() wrote, instead of w.
  QConv(QUnit unit, const TapConv& conv, tenon_dtype x, tenon_dtype w, bool w_zeros, bool w_packed);
  // Few channels per group, whose sums a float holds.
  static bool takes_planes(const TapConv& conv);
  bool wants_packed() const { return form_ != Form::planes; }
  std::string packed_layout() const;
  uint64_t packed_bytes() const;
  void pack(const void* w, void* packed) const;
  uint64_t scratch() const { return shared_ + static_cast<uint64_t>(slots_) * slot_; }
  void run(const QConvRun& run) const;

 private:
  struct Row;
  // What a quad holds: channels, or rows of windows; planes: no quads but floats.
  enum class Form : uint8_t { channels, rows, planes };
  static Form form_of(const TapConv& conv, bool column_sums);
  TapConv over_quads() const;
  // Where the byte of channel c at tap t is: its quad, and its place there.
  struct Place {
    int64_t quad, byte;
  };
  Place place_of(int64_t c, int64_t t) const;
  int64_t panels() const;
  int64_t panel_bytes() const;
  int32_t w_zero(const QConvRun& run, int64_t channel) const;
  int64_t sums_at() const;  // where the sums of rows begin, in packed weights
  void pack_panel(const void* w, int64_t group, int64_t row, char* packed, int32_t* sums) const;
  void run_tiles(const QConvRun& run, const char* weights, int64_t piece, bool fill,
                 char* own) const;
  void run_planes(const QConvRun& run, int64_t piece, char* own) const;
  void finish(const QConvRun& run, const Row& row) const;

  QUnit unit_;
  TapConv conv_;
  tenon_dtype x_, w_;
  bool column_sums_;  // the zero points of w are not all zero
  Form form_;
  bool w_packed_;
  QSide x_side_{}, w_side_{};
  QPanels panels_{1, 1};
  int64_t quads_ = 0;  // steps of a sum
  std::shared_ptr<const PaddedTaps> padded_;
  int64_t rows_ = 1, row_blocks_ = 1, ld_ = 1;
  int slots_ = 1;
  uint64_t shared_ = 0, slot_ = 0, weights_ = 0;
};

}  // namespace tenon::cpu
