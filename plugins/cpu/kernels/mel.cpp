// SPDX-License-Identifier: Apache-2.0
// log_mel_spectrogram: each group of frames becomes logarithms while its spectra are in the cache.
// The planner decomposes the other ops of the family.
#include "mel.hpp"

#include <cmath>
#include <limits>
#include <numbers>

#include "../kernels.hpp"
#include "fft.hpp"
#include "fft_frames.hpp"
#include "slots.hpp"
#include "tenon/spectra.hpp"

namespace tenon::cpu {

int64_t Mel::powers_floats() const { return bins * kFrameGroup; }

namespace {

using Op = sdk::op::log_mel_spectrogram;
using sdk::Refusal;

MelScope scope_of(const std::string& scope) {
  if (scope == "example") return MelScope::example;
  if (scope == "tensor") return MelScope::tensor;
  if (scope != "frame") throw Refusal::attribute("max_scope", scope);
  return MelScope::frame;
}

Mel mel_of(const Op& n) {
  if (n.scale != "slaney" && n.scale != "htk") throw Refusal::attribute("scale", n.scale);
  if (n.norm != "slaney" && n.norm != "none") throw Refusal::attribute("norm", n.norm);
  const bool decimal = n.log == "log10";
  if (!decimal && n.log != "log") throw Refusal::attribute("log", n.log);
  Mel mel{.bins = n.n_fft / 2 + 1,
          .filters = std::vector<MelFilter>(static_cast<size_t>(n.n_mels)),
          .weights = {},
          .floor = static_cast<float>(n.floor),
          .lowest = static_cast<float>(decimal ? std::log10(n.floor) : std::log(n.floor)),
          .factor = decimal ? std::numbers::log10e_v<float> : 1,
          .range = static_cast<float>(n.dynamic_range),
          .affine = n.affine,
          .scope = scope_of(n.max_scope)};
  sdk::each_mel_weight(n, [&](int64_t m, int64_t bin, double weight) {
    MelFilter& f = mel.filters[static_cast<size_t>(m)];
    if (f.count++ == 0) f = {bin, 1, static_cast<int64_t>(mel.weights.size())};
    mel.weights.push_back(static_cast<float>(weight));
  });
  return mel;
}

struct Sound {
  Sound(const Op& n, const sdk::Type& x, const sdk::Type& y)
      : mel(mel_of(n)),
        frames(sdk::frame_form(n, x)),
        batch(x.dims[0]),
        samples(x.dims[1]),
        count(y.dims[2]) {
    if (n.window) return;
    for (const double v : sdk::hann_window(n.n_fft)) window.push_back(static_cast<float>(v));
  }
  Mel mel;
  FrameBins frames;
  std::vector<float> window{};    // unless it is an operand
  int64_t batch, samples, count;  // of frames
  int64_t groups() const { return (count + kFrameGroup - 1) / kFrameGroup; }
  int64_t mels() const { return static_cast<int64_t>(mel.filters.size()); }
  int64_t area() const { return frames.scratch_floats() + (mel.powers_floats() + 15) / 16 * 16; }
};

// Group g of all examples. Returns its largest logarithm.
float run_group(const Sound& s, const float* x, const float* w, float* y, int64_t g, float* area) {
  const int64_t b = g / s.groups(), frame = g % s.groups() * kFrameGroup;
  const int64_t count = std::min(kFrameGroup, s.count - frame);
  const float* bins = s.frames.run(x + b * s.samples, w, frame, count, area);
  return mel_group(s.mel, bins, count, area + s.frames.scratch_floats(),
                   y + b * s.mels() * s.count + frame, s.count);
}

float most_of(const float* values, int64_t n) {
  float most = -std::numeric_limits<float>::infinity();
  for (int64_t k = 0; k < n; ++k)
    if (values[k] > most || std::isnan(values[k])) most = values[k];
  return most;
}

// The second pass, over the filters of all examples. most: of each group.
void run_range(const Sound& s, const float* most, float* y) {
  const int64_t rows = s.batch * s.mels();
  const bool whole = s.mel.scope == MelScope::tensor;
  const float of_all = whole ? most_of(most, s.batch * s.groups()) : 0;
  parallel_for(rows, grain_for(2 * s.count * static_cast<int64_t>(sizeof(float))),
               [&](int64_t begin, int64_t end) {
                 for (int64_t r = begin; r < end; ++r)
                   mel_range(
                       s.mel, y + r * s.count, s.count,
                       whole ? of_all : most_of(most + r / s.mels() * s.groups(), s.groups()));
               });
}

sdk::Kernel make_log_mel_spectrogram(const Op& n, const sdk::Node& node) {
  const sdk::Type &x = n.x.type(), &y = node.out(0).type();
  if (x.dtype != TENON_DTYPE_F32) throw Refusal::dtype("x", x.dtype);
  const auto s = std::make_shared<Sound>(n, x, y);
  const int64_t groups = s->batch * s->groups();
  const auto bytes = [](int64_t floats) { return floats * static_cast<int64_t>(sizeof(float)); };
  const Slots slots = make_slots(groups, bytes(s->area()), kFrameGroup * transform_cost(n.n_fft));
  const auto run = [=, window = n.window.position()](const sdk::Call& c) {
    auto* most = reinterpret_cast<float*>(static_cast<char*>(c.scratch) + slots.scratch());
    const float* w = s->window.empty() ? c.in<float>(window) : s->window.data();
    slots.run(c.scratch, [&](int64_t begin, int64_t end, char* area) {
      for (int64_t g = begin; g < end; ++g)
        most[g] =
            run_group(*s, c.in<float>(0), w, c.out<float>(0), g, reinterpret_cast<float*>(area));
    });
    if (!s->mel.one_pass()) run_range(*s, most, c.out<float>(0));
  };
  return {.run = run,
          .prepare = [s] { s->frames.fill(); },
          .scratch = slots.scratch() + static_cast<uint64_t>(bytes(groups))};
}

constexpr sdk::Row kRows[] = {
    sdk::row<sdk::op::log_mel_spectrogram, make_log_mel_spectrogram>(),
};

}  // namespace

std::span<const sdk::Row> mel_rows() { return kRows; }

}  // namespace tenon::cpu
