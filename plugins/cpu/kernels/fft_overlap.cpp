// SPDX-License-Identifier: Apache-2.0
// istft: blocks of frames are transformed back and added up, each block in memory of its own, then
// the blocks where they overlap. The order of all sums is fixed.
#include <algorithm>
#include <memory>
#include <vector>

#include "../kernels.hpp"
#include "fft.hpp"
#include "fft_frames.hpp"
#include "fft_real.hpp"
#include "slots.hpp"

namespace tenon::cpu {
namespace {

constexpr int64_t kBlock = 64;       // frames
constexpr int64_t kChunk = 1 << 12;  // samples that a thread finishes at once

int64_t rounded(int64_t floats) { return (floats + 15) / 16 * 16; }
int64_t bytes_of(int64_t floats) { return floats * static_cast<int64_t>(sizeof(float)); }

struct Overlap {
  Overlap(const sdk::op::istft& n, const sdk::Type& x, const sdk::Type& y)
      : transform(n.n_fft, true, norm_factor(n.normalized ? "ortho" : "backward", true, n.n_fft),
                  kFrameGroup),
        batch(x.dims[0]),
        bins(x.dims[1]),
        frames(x.dims[2]),
        size(n.n_fft),
        hop(n.hop == 0 ? std::max<int64_t>(n.n_fft / 4, 1) : n.hop),
        window(n.win_length == 0 ? n.n_fft : n.win_length),
        first((size - window) / 2),
        border(n.center ? n.n_fft / 2 : 0),
        length(y.dims[1]) {}
  RealTransform transform;
  int64_t batch, bins, frames, size, hop;
  int64_t window, first;  // of the window in a frame
  int64_t border, length;

  int64_t blocks() const { return (frames + kBlock - 1) / kBlock; }
  int64_t width() const {
    return rounded((std::min(kBlock, frames) - 1) * hop + size);
  }  // of a block
  // Samples of the result that the frames cover.
  int64_t covered() const { return std::min(length, (frames - 1) * hop + size - border); }
  int64_t group() const { return std::min(transform.group(), kFrameGroup); }
  int64_t spectra_floats() const { return rounded(group() * 2 * bins); }
  int64_t area() const {
    return spectra_floats() + rounded(group() * size) + transform.scratch_floats();
  }

  // Frames [from, end) of one signal, added up in `sum`, whose first sample is that of frame
  // `from`.
  void add_block(const float* x, const float* w, int64_t from, int64_t end, float* sum,
                 float* spectra) const {
    float* cut = spectra + spectra_floats();
    float* rest = cut + rounded(group() * size);
    std::fill_n(sum, width(), 0.F);
    for (int64_t t = from; t < end; t += group()) {
      const int64_t count = std::min(group(), end - t);
      for (int64_t f = 0; f < bins; ++f) {
        const float* bin = x + 2 * (f * frames + t);
        for (int64_t k = 0; k < count; ++k) {
          spectra[2 * (k * bins + f)] = bin[2 * k];
          spectra[2 * (k * bins + f) + 1] = bin[2 * k + 1];
        }
      }
      transform.run(spectra, cut, count, rest);
      for (int64_t k = 0; k < count; ++k)
        add_window(cut + k * size + first, w, sum + (t + k - from) * hop + first);
    }
  }
  void add_window(const float* x, const float* w, float* sum) const {
    if (w)
      for (int64_t j = 0; j < window; ++j) sum[j] += x[j] * w[j];
    else
      for (int64_t j = 0; j < window; ++j) sum[j] += x[j];
  }

  // Adds the windows' squares to samples [begin, end) of the result.
  void add_squares(const float* w, int64_t begin, int64_t end, float* squares) const {
    const int64_t at = begin + border, stop = end + border;  // among the samples of frames
    const int64_t earliest = at - first - window + 1;
    int64_t t = earliest <= 0 ? 0 : (earliest + hop - 1) / hop;
    for (; t < frames && t * hop + first < stop; ++t) {
      const int64_t origin = t * hop + first;
      const int64_t to = std::min(stop, origin + window);
      for (int64_t s = std::max(at, origin); s < to; ++s) {
        const float v = w ? w[s - origin] : 1;
        squares[s - border] += v * v;
      }
    }
  }

  // Samples [begin, end) of one signal from the sums of its blocks.
  void finish(const float* sums, const float* squares, int64_t begin, int64_t end, float* y) const {
    const int64_t at = begin + border, stop = end + border, apart = kBlock * hop;
    std::fill(y + begin, y + end, 0.F);
    int64_t b = std::max<int64_t>(0, at - width() + 1) / apart;
    for (; b < blocks() && b * apart < stop; ++b) {
      const int64_t origin = b * apart, to = std::min(stop, origin + width());
      const float* sum = sums + b * width();
      for (int64_t s = std::max(at, origin); s < to; ++s) y[s - border] += sum[s - origin];
    }
    for (int64_t s = begin; s < end; ++s) y[s] /= squares[s];
  }
};

void want_squares(const float* squares, int64_t count) {
  for (int64_t s = 0; s < count; ++s)
    if (squares[s] < 1e-11F)
      throw sdk::Failure(TENON_NUMERIC_ERROR,
                         "operand window: expected squares that add up to 1e-11 or more at each "
                         "sample, got " +
                             std::to_string(squares[s]) + " at sample " + std::to_string(s),
                         s);
}

}  // namespace

sdk::Kernel make_istft(const sdk::op::istft& n, const sdk::Node& node) {
  const sdk::Type &x = n.x.type(), &y = node.out(0).type();
  if (x.dtype != TENON_DTYPE_C64) throw sdk::Refusal::dtype("x", x.dtype);
  if (!n.onesided) throw sdk::Refusal::attribute("onesided", "false");
  const auto o = std::make_shared<Overlap>(n, x, y);
  const int64_t tasks = o->batch * o->blocks(), covered = o->covered();
  const int64_t chunks = (covered + kChunk - 1) / kChunk;
  const Slots slots = make_slots(tasks, bytes_of(o->area()), kBlock * transform_cost(n.n_fft));
  const auto run = [=, window = n.window.position()](const sdk::Call& c) {
    const float* w = c.in<float>(window);
    auto* squares = reinterpret_cast<float*>(static_cast<char*>(c.scratch) + slots.scratch());
    float* sums = squares + rounded(covered);
    std::fill_n(squares, covered, 0.F);
    parallel_for(chunks, 1, [&](int64_t begin, int64_t end) {
      o->add_squares(w, begin * kChunk, std::min(end * kChunk, covered), squares);
    });
    want_squares(squares, covered);
    slots.run(c.scratch, [&](int64_t begin, int64_t end, char* area) {
      for (int64_t k = begin; k < end; ++k) {
        const int64_t b = k / o->blocks(), from = k % o->blocks() * kBlock;
        o->add_block(c.in<float>(0) + b * 2 * o->bins * o->frames, w, from,
                     std::min(from + kBlock, o->frames), sums + k * o->width(),
                     reinterpret_cast<float*>(area));
      }
    });
    parallel_for(o->batch * chunks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k) {
        const int64_t b = k / chunks, at = k % chunks * kChunk;
        o->finish(sums + b * o->blocks() * o->width(), squares, at, std::min(at + kChunk, covered),
                  c.out<float>(0) + b * o->length);
      }
    });
    for (int64_t b = 0; b < o->batch; ++b)
      std::fill(c.out<float>(0) + b * o->length + covered, c.out<float>(0) + (b + 1) * o->length,
                0.F);
  };
  return {.run = run,
          .prepare = [o] { o->transform.fill(); },
          .scratch = slots.scratch() +
                     static_cast<uint64_t>(bytes_of(rounded(covered) + tasks * o->width()))};
}

}  // namespace tenon::cpu
