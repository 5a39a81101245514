// SPDX-License-Identifier: Apache-2.0
// A copy of a block whose elements lie strided on either side: what copy, concat and the dynamic
// slices are made of.
#pragma once

#include <array>
#include <span>

#include "../device.hpp"
#include "args.hpp"
#include "entries.hpp"

namespace tenon::cuda {

class StridedCopy {
 public:
  // A side of the copy: strides in elements, and the alignment of its first element in bytes.
  struct Side {
    std::span<const int64_t> strides;
    uint64_t alignment = 0;
  };
  // moving: byte strides along which the block may begin anywhere; none for a copy that is launched
  // without a CopyStart.
  StridedCopy(CudaDevice& device, std::span<const int64_t> dims, Side from, Side to, int64_t bytes,
              std::span<const int64_t> moving = {}, bool dynamic = false);

  const Code& code() const { return codes_.front(); }
  void launch(const sdk::Call& c, const void* from, void* to) const {
    if (tiled_)
      by_tiles_.launch(c, grid_, from, to, block_, tiles_);
    else
      straight_.launch(c, grid_, from, to, block_);
  }
  // Also checks the start of a block of nothing.
  void launch(const sdk::Call& c, const void* from, void* to, const args::CopyStart& start) const {
    if (grid_.blocks == 0) {
      check_.launch(c, {.blocks = 1, .threads = 1}, start);
    } else {
      moved_.launch(c, grid_, from, to, block_, start);
    }
  }
  const std::vector<Code>& codes() const { return codes_; }

 private:
  struct Axes {
    std::vector<int64_t> dims, from, to;
  };
  static Axes joined(std::span<const int64_t> dims, std::span<const int64_t> from,
                     std::span<const int64_t> to);
  // Makes units of several elements where both sides run along the last axis; their bytes.
  static int64_t widen(Axes& axes, int64_t bytes, uint64_t alignment,
                       std::span<const int64_t> moving);
  bool make_tiles(CudaDevice& device, Axes& axes, int64_t bytes, const Side& from, const Side& to);
  void fill(const Axes& axes);

  args::CopyBlock block_;
  args::CopyTiles tiles_;
  Grid grid_;
  CodeFor<entries::copy_block> straight_;
  CodeFor<entries::copy_tiles> by_tiles_;
  CodeFor<entries::copy_moved> moved_;
  CodeFor<entries::check_start> check_;
  std::vector<Code> codes_;  // those that are made, the copying one first
  bool tiled_ = false;
};

}  // namespace tenon::cuda
