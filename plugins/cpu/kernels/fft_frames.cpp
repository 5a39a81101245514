// SPDX-License-Identifier: Apache-2.0
// stft: frames are cut, windowed and transformed in groups that stay in the cache.
#include <algorithm>
#include <memory>
#include <vector>

#include "../kernels.hpp"
#include "fft.hpp"
#include "fft_real.hpp"
#include "slots.hpp"

namespace tenon::cpu {
namespace {

constexpr int64_t kTogether = 16;  // frames whose bins are written side by side

struct Stft {
  std::unique_ptr<RealTransform> transform{};
  int64_t batch = 0, samples = 0, frames = 0;
  int64_t hop = 1, border = 0;
  int64_t first = 0, window = 0;  // of the window in a frame
  bool reflects = false;

  int64_t size() const { return transform->points(); }
  int64_t groups() const { return (frames + kTogether - 1) / kTogether; }
  int64_t rows_floats() const { return (kTogether * size() + 15) / 16 * 16; }
  int64_t bins_floats() const { return (kTogether * 2 * transform->bins() + 15) / 16 * 16; }
  int64_t scratch_floats() const {
    return rows_floats() + bins_floats() + transform->scratch_floats();
  }

  // The frame that begins at sample `at`, which may be in front of the signal.
  void cut(const float* x, const float* w, int64_t at, float* to) const {
    std::fill_n(to, size(), 0.F);
    for (int64_t j = first; j < first + window; ++j) {
      int64_t i = at + j;
      if (i < 0 || i >= samples) {
        if (!reflects) continue;
        i = i < 0 ? -i : 2 * (samples - 1) - i;
      }
      to[j] = w ? x[i] * w[j - first] : x[i];
    }
  }
  void cut_inside(const float* x, const float* w, float* to) const {
    std::fill_n(to, first, 0.F);
    if (w)
      for (int64_t j = 0; j < window; ++j) to[first + j] = x[first + j] * w[j];
    else
      std::copy_n(x + first, window, to + first);
    std::fill(to + first + window, to + size(), 0.F);
  }

  void run(const float* signal, const float* w, float* y, int64_t frame, int64_t count,
           float* scratch) const {
    float* rows = scratch;
    float* bins = rows + rows_floats();
    float* rest = bins + bins_floats();
    const int64_t width = transform->bins();
    for (int64_t k = 0; k < count; ++k) {
      const int64_t at = (frame + k) * hop - border;
      if (at >= 0 && at + size() <= samples)
        cut_inside(signal + at, w, rows + k * size());
      else
        cut(signal, w, at, rows + k * size());
    }
    for (int64_t k = 0; k < count; k += transform->group())
      transform->run(rows + k * size(), bins + k * 2 * width,
                     std::min(transform->group(), count - k), rest);
    for (int64_t f = 0; f < width; ++f) {
      float* to = y + 2 * (f * frames + frame);
      for (int64_t k = 0; k < count; ++k) {
        to[2 * k] = bins[2 * (k * width + f)];
        to[2 * k + 1] = bins[2 * (k * width + f) + 1];
      }
    }
  }
};

}  // namespace

sdk::Kernel make_stft(const sdk::op::stft& n, const sdk::Node& node) {
  const sdk::Type &x = n.x.type(), &y = node.out(0).type();
  if (x.dtype != TENON_DTYPE_F32) throw sdk::Refusal::dtype("x", x.dtype);
  if (!n.onesided) throw sdk::Refusal::attribute("onesided", "false");
  if (n.pad_mode != "reflect" && n.pad_mode != "constant")
    throw sdk::Refusal::attribute("pad_mode", n.pad_mode);
  const auto s = std::make_shared<Stft>();
  s->transform = std::make_unique<RealTransform>(
      n.n_fft, false, norm_factor(n.normalized ? "ortho" : "backward", false, n.n_fft), kTogether);
  s->batch = x.dims[0];
  s->samples = x.dims[1];
  s->frames = y.dims[2];
  s->hop = n.hop == 0 ? std::max<int64_t>(n.n_fft / 4, 1) : n.hop;
  s->border = n.center ? n.n_fft / 2 : 0;
  s->window = n.win_length == 0 ? n.n_fft : n.win_length;
  s->first = (n.n_fft - s->window) / 2;
  s->reflects = n.pad_mode == "reflect";
  const Slots slots =
      make_slots(s->batch * s->groups(), s->scratch_floats() * static_cast<int64_t>(sizeof(float)),
                 kTogether * transform_cost(n.n_fft));
  return {.run =
              [s, slots, window = n.window.position()](const sdk::Call& c) {
                slots.run(c.scratch, [&](int64_t begin, int64_t end, char* area) {
                  for (int64_t g = begin; g < end; ++g) {
                    const int64_t b = g / s->groups(), frame = g % s->groups() * kTogether;
                    s->run(c.in<float>(0) + b * s->samples, c.in<float>(window),
                           c.out<float>(0) + b * 2 * s->transform->bins() * s->frames, frame,
                           std::min(kTogether, s->frames - frame), reinterpret_cast<float*>(area));
                  }
                });
              },
          .prepare = [s] { s->transform->fill(); },
          .scratch = slots.scratch()};
}

}  // namespace tenon::cpu
