// SPDX-License-Identifier: Apache-2.0
// Frames of a signal: cut, windowed and transformed in groups that stay in the cache.
#pragma once

#include "fft_real.hpp"
#include "tenon/frames.hpp"

namespace tenon::cpu {

inline constexpr int64_t kFrameGroup = 16;

using sdk::FrameForm;

class FrameBins {
 public:
  explicit FrameBins(const FrameForm& form);
  void fill() { transform_.fill(); }  // the tables, once, before the first run; any thread
  int64_t bins() const { return transform_.bins(); }
  int64_t scratch_floats() const;
  // The bins of `count` frames from `frame` on, one row for each, in the scratch. w: nullptr =
  // ones.
  float* run(const float* signal, const float* w, int64_t frame, int64_t count,
             float* scratch) const;

 private:
  int64_t rows_floats() const;
  int64_t bins_floats() const;
  void cut(const float* x, const float* w, int64_t at, float* to) const;
  void cut_inside(const float* x, const float* w, float* to) const;

  FrameForm form_;
  int64_t first_;  // sample of the window in a frame
  RealTransform transform_;
};

}  // namespace tenon::cpu
