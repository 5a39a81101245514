// SPDX-License-Identifier: Apache-2.0
// Frames of a signal: cut, windowed and transformed in groups that stay in the cache.
#pragma once

#include "fft_real.hpp"
#include "tenon/kernel.hpp"

namespace tenon::cpu {

inline constexpr int64_t kFrameGroup = 16;

struct FrameForm {
  int64_t samples = 0, size = 1, hop = 1;
  int64_t border = 0;     // in front of the signal
  int64_t window = 1;     // in the middle of a frame; the rest of it is 0
  bool reflects = false;  // the border; else zeros
  double factor = 1;      // of the transform
};

// What stft and log_mel_spectrogram share; window and factor are left to them.
template <class Op>
FrameForm frame_form(const Op& n, const sdk::Type& x) {
  if (n.pad_mode != "reflect" && n.pad_mode != "constant")
    throw sdk::Refusal::attribute("pad_mode", n.pad_mode);
  return {.samples = x.dims[1],
          .size = n.n_fft,
          .hop = n.hop,
          .border = n.center ? n.n_fft / 2 : 0,
          .window = n.n_fft,
          .reflects = n.pad_mode == "reflect"};
}

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
