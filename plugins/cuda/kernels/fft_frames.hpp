// SPDX-License-Identifier: Apache-2.0
// Frames of a signal and how blocks transform them. Shared by stft and log_mel_spectrogram.
#pragma once

#include "fft.hpp"
#include "tenon/frames.hpp"

namespace tenon::cuda {

using sdk::FrameForm;

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
