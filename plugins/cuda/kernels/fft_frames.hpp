// SPDX-License-Identifier: Apache-2.0
// Frames of a signal and how blocks transform them. Shared by stft and log_mel_spectrogram.
#pragma once

#include "fft.hpp"

namespace tenon::cuda {

struct FrameForm {
  int64_t samples = 0, size = 1, hop = 1, frames = 0;
  int64_t border = 0;     // in front of the signal
  int64_t window = 1;     // in the middle of a frame; the rest of it is 0
  bool reflects = false;  // the border; else zeros
  double factor = 1;      // of the transform
};

// What stft and log_mel_spectrogram have in common.
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

// window: absent, or an operand; a table of the kernel's own is aligned.
struct FramePlan {
  FramePlan(CudaDevice& device, const FrameForm& form, const sdk::Value& x,
            const sdk::Value& window);
  uint32_t threads() const { return static_cast<uint32_t>(plan.lanes * count); }
  Grid grid(int64_t batch) const;

  bool even;
  FftPlan plan{};
  int count = 0;       // frames of a block
  int64_t shared = 0;  // bytes
  int64_t groups = 0;  // blocks of a signal
  std::vector<std::string> defines{};
  std::shared_ptr<DeviceTable> roots{};
  args::FftFrames arguments{};
};

}  // namespace tenon::cuda
