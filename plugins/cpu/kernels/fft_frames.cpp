// SPDX-License-Identifier: Apache-2.0
// stft, and the transforms of frames that it shares with other kernels.
#include "fft_frames.hpp"

#include <algorithm>

#include "../kernels.hpp"
#include "fft.hpp"
#include "slots.hpp"

namespace tenon::cpu {

FrameBins::FrameBins(const FrameForm& form)
    : form_(form),
      first_((form.size - form.window) / 2),
      transform_(form.size, false, form.factor, kFrameGroup) {}

int64_t FrameBins::rows_floats() const { return (kFrameGroup * form_.size + 15) / 16 * 16; }
int64_t FrameBins::bins_floats() const {
  return (kFrameGroup * 2 * transform_.bins() + 15) / 16 * 16;
}
int64_t FrameBins::scratch_floats() const {
  return rows_floats() + bins_floats() + transform_.scratch_floats();
}

// The frame that begins at sample `at`, which may be in front of the signal.
void FrameBins::cut(const float* x, const float* w, int64_t at, float* to) const {
  std::fill_n(to, form_.size, 0.F);
  for (int64_t j = first_; j < first_ + form_.window; ++j) {
    int64_t i = at + j;
    if (i < 0 || i >= form_.samples) {
      if (!form_.reflects) continue;
      i = i < 0 ? -i : 2 * (form_.samples - 1) - i;
    }
    to[j] = w ? x[i] * w[j - first_] : x[i];
  }
}
void FrameBins::cut_inside(const float* x, const float* w, float* to) const {
  std::fill_n(to, first_, 0.F);
  if (w)
    for (int64_t j = 0; j < form_.window; ++j) to[first_ + j] = x[first_ + j] * w[j];
  else
    std::copy_n(x + first_, form_.window, to + first_);
  std::fill(to + first_ + form_.window, to + form_.size, 0.F);
}

float* FrameBins::run(const float* signal, const float* w, int64_t frame, int64_t count,
                      float* scratch) const {
  float* rows = scratch;
  float* bins = rows + rows_floats();
  float* rest = bins + bins_floats();
  for (int64_t k = 0; k < count; ++k) {
    const int64_t at = (frame + k) * form_.hop - form_.border;
    if (at >= 0 && at + form_.size <= form_.samples)
      cut_inside(signal + at, w, rows + k * form_.size);
    else
      cut(signal, w, at, rows + k * form_.size);
  }
  for (int64_t k = 0; k < count; k += transform_.group())
    transform_.run(rows + k * form_.size, bins + k * 2 * transform_.bins(),
                   std::min(transform_.group(), count - k), rest);
  return bins;
}

sdk::Kernel make_stft(const sdk::op::stft& n, const sdk::Node& node) {
  const sdk::Type &x = n.x.type(), &y = node.out(0).type();
  if (x.dtype != TENON_DTYPE_F32) throw sdk::Refusal::dtype("x", x.dtype);
  if (!n.onesided) throw sdk::Refusal::attribute("onesided", "false");
  FrameForm form = sdk::frame_form(n, x);
  form.hop = n.hop == 0 ? std::max<int64_t>(n.n_fft / 4, 1) : n.hop;
  form.window = n.win_length == 0 ? n.n_fft : n.win_length;
  form.factor = norm_factor(n.normalized ? "ortho" : "backward", false, n.n_fft);
  const auto f = std::make_shared<FrameBins>(form);
  const int64_t batch = x.dims[0], samples = x.dims[1], width = y.dims[1], frames = y.dims[2];
  const int64_t groups = (frames + kFrameGroup - 1) / kFrameGroup;
  const Slots slots =
      make_slots(batch * groups, f->scratch_floats() * static_cast<int64_t>(sizeof(float)),
                 kFrameGroup * transform_cost(n.n_fft));
  const auto run = [=, window = n.window.position()](const sdk::Call& c) {
    slots.run(c.scratch, [&](int64_t begin, int64_t end, char* area) {
      for (int64_t g = begin; g < end; ++g) {
        const int64_t b = g / groups, frame = g % groups * kFrameGroup;
        const int64_t count = std::min(kFrameGroup, frames - frame);
        const float* bins = f->run(c.in<float>(0) + b * samples, c.in<float>(window), frame, count,
                                   reinterpret_cast<float*>(area));
        float* y = c.out<float>(0) + 2 * (b * width * frames + frame);
        for (int64_t k = 0; k < width; ++k)
          for (int64_t t = 0; t < count; ++t) {
            y[2 * (k * frames + t)] = bins[2 * (t * width + k)];
            y[2 * (k * frames + t) + 1] = bins[2 * (t * width + k) + 1];
          }
      }
    });
  };
  return {.run = run, .prepare = [f] { f->fill(); }, .scratch = slots.scratch()};
}

}  // namespace tenon::cpu
