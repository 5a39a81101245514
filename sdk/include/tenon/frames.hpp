// SPDX-License-Identifier: Apache-2.0
// Frames of a signal, as stft and log_mel_spectrogram cut them.
#ifndef TENON_FRAMES_HPP
#define TENON_FRAMES_HPP

#include <cstdint>

#include "tenon/kernel.hpp"

namespace tenon::sdk {

struct FrameForm {
  int64_t samples = 0, size = 1, hop = 1, frames = 0;
  int64_t border = 0;     // in front of the signal
  int64_t window = 1;     // in the middle of a frame; the rest of it is 0
  bool reflects = false;  // the border; else zeros
  double factor = 1;      // of the transform
};

// What the two ops share, for a signal x [B, T]; frames, window and factor are left to them. Throws
// Refusal if pad_mode is none that this header knows.
template <class Op>
FrameForm frame_form(const Op& n, const Type& x) {
  if (n.pad_mode != "reflect" && n.pad_mode != "constant")
    throw Refusal::attribute("pad_mode", n.pad_mode);
  return {.samples = x.dims[1],
          .size = n.n_fft,
          .hop = n.hop,
          .border = n.center ? n.n_fft / 2 : 0,
          .window = n.n_fft,
          .reflects = n.pad_mode == "reflect"};
}

}  // namespace tenon::sdk

#endif
