// SPDX-License-Identifier: Apache-2.0
// Padded copies of channels, in which what a tap reads of all windows of a band of rows is one
// contiguous range: window (o1, o2) is column o1 * pitch + o2, and the tap adds an offset. The
// columns between the rows of windows are of no use.
//
// A copy consists of a plane for each tap along the first axis and each position of a tap within a
// step along the other two; a plane holds every step-th row and column.
#pragma once

#include "conv.hpp"

namespace tenon::cpu {

class PaddedTaps {
 public:
  PaddedTaps() = default;
  // A band has about `columns` windows or more, if its copy stays below `bytes`. Long rows are cut.
  PaddedTaps(TapConv conv, tenon_dtype dtype, int64_t columns, int64_t bytes);

  int64_t bands() const { return conv_.axes[0].out * row_bands_ * column_bands_; }
  ConvBand band(int64_t k) const;
  int64_t pitch() const { return pitch_; }
  int64_t columns(const ConvBand& band) const { return (band.rows - 1) * pitch_ + band.width; }
  int64_t most_columns() const { return columns({.rows = band_rows_, .width = band_width_}); }
  uint64_t bytes() const;
  // By step (c, t).
  const std::vector<int64_t>& offsets() const { return offsets_; }
  // x: the channels of a group of an image. padded: bytes(), of the accumulation type.
  void fill(const void* x, const ConvBand& band, void* padded) const;
  // For elements of four bytes. A channel of the layout is a quad: four of the `channels` of x, each
  // byte xor `flip`. Bytes of channels that x does not have are arbitrary.
  void fill_quads(const uint8_t* x, int64_t channels, uint8_t flip, uint8_t outside,
                  const ConvBand& band, uint32_t* padded) const;
  // Likewise, with quads of four rows of one channel: channel c of the layout holds those that taps
  // 4·c and following of `rows` reach, which ascend, and row r of the layout is row r of windows. Bytes
  // of taps that `rows` does not have are arbitrary. bytes: an area of row_bytes().
  void fill_row_quads(const uint8_t* x, const ConvAxis& rows, uint8_t flip, uint8_t outside,
                      const ConvBand& band, uint8_t* bytes, uint32_t* padded) const;
  uint64_t row_bytes(const ConvAxis& rows) const;
  // x - zero as float. dtype: i8 or u8.
  void fill_centered(const uint8_t* x, tenon_dtype dtype, int32_t zero, const ConvBand& band,
                     float* padded) const;

 private:
  template <class A, class Row>
  void fill_rows(const ConvBand& band, A outside, A* plane, const Row& inside) const;
  // What the taps of an axis need.
  struct Axis {
    int64_t least = 0;            // tap
    int64_t reach = 0;            // the greatest tap above the least, in steps
    std::vector<int64_t> phases;  // positions within a step that a tap has
  };
  TapConv conv_;
  tenon_dtype dtype_ = TENON_DTYPE_NONE, sum_ = TENON_DTYPE_NONE;
  int64_t lines(const ConvAxis& rows, int64_t windows) const;  // that so many rows of windows reach
  void cut_rows(int64_t columns, int64_t bytes, int64_t planes);

  Axis rows_, columns_;
  int64_t band_rows_ = 1, row_bands_ = 1;
  int64_t band_width_ = 1, column_bands_ = 1;
  int64_t pitch_ = 1;
  int64_t shared_ = 0;  // zeros that are the end of a row and the start of the next one
  int64_t plane_ = 0, channel_ = 0;  // elements
  std::vector<int64_t> offsets_;
};

}  // namespace tenon::cpu
