// SPDX-License-Identifier: Apache-2.0
// A copy of a block whose elements lie strided on either side: what copy, concat and the dynamic
// slices are made of.
#pragma once

#include <array>
#include <span>

#include "../device.hpp"
#include "args.hpp"

namespace tenon::cuda {

class StridedCopy {
 public:
  // A side of the copy: strides in elements, and the alignment of its first element in bytes.
  struct Side {
    std::span<const int64_t> strides;
    uint64_t alignment = 0;
  };
  // What the data tells about where the block begins in the larger side.
  struct Start {
    const void* words = nullptr;
    int64_t most[sdk::kMaxRank] = {}, strides[sdk::kMaxRank] = {};  // strides in bytes
    int32_t rank = 0, wide = 0, clamp = 0, moves_target = 0;
    ErrorSink sink{};
  };

  // moving: byte strides along which the block may begin anywhere; none for a copy that is launched
  // without a Start.
  StridedCopy(CudaDevice& device, std::span<const int64_t> dims, Side from, Side to, int64_t bytes,
              std::span<const int64_t> moving = {}, bool dynamic = false);

  const Code& code() const { return code_; }
  void launch(const sdk::Call& c, const void* from, void* to) const {
    if (tiled_)
      code_.launch(c, grid_, from, to, block_, tiles_);
    else
      code_.launch(c, grid_, from, to, block_);
  }
  // Also checks the start of a block of nothing.
  void launch(const sdk::Call& c, const void* from, void* to, const Start& start) const {
    if (grid_.blocks == 0) {
      check_.launch(c, {.blocks = 1, .threads = 1}, start);
    } else {
      code_.launch(c, grid_, from, to, block_, start);
    }
  }
  std::vector<Code> codes() const {
    return dynamic_ ? std::vector<Code>{code_, check_} : std::vector<Code>{code_};
  }

 private:
  struct Block {  // copy.cu has the same; in units
    int64_t count = 0;
    int64_t dims[sdk::kMaxRank] = {};
    Divisor divisors[sdk::kMaxRank] = {};
    int64_t from[sdk::kMaxRank] = {}, to[sdk::kMaxRank] = {};
  };
  struct Tiles {  // copy.cu has the same
    Divisor columns, rows;
  };
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

  Block block_;
  Tiles tiles_;
  Grid grid_;
  Code code_, check_;
  bool dynamic_, tiled_ = false;
};

}  // namespace tenon::cuda
