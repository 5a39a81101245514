// SPDX-License-Identifier: Apache-2.0
// welch_psd and welch_peaks of f32: segments are cut, transformed and added up in blocks that stay
// in the cache. The planner decomposes medians and spectra of two sides.
#include "spectrum.hpp"

#include <algorithm>
#include <memory>
#include <vector>

#include "../kernels.hpp"
#include "fft.hpp"
#include "fft_real.hpp"
#include "slots.hpp"
#include "tenon/spectra.hpp"

namespace tenon::cpu {
namespace {

using sdk::Refusal;

constexpr int64_t kTogether = 16;  // segments that are transformed together
constexpr int64_t kBlock = 64;     // segments that one thread adds up

Trend trend_of(const std::string& detrend) {
  if (detrend == "none") return Trend::none;
  if (detrend == "constant") return Trend::constant;
  if (detrend != "linear") throw Refusal::attribute("detrend", detrend);
  return Trend::linear;
}
int64_t bytes_of(int64_t floats) { return floats * static_cast<int64_t>(sizeof(float)); }

class Welch {
 public:
  template <class Op>
  Welch(const Op& n, const sdk::Type& x)
      : transform_(n.nfft == 0 ? n.nperseg : n.nfft, false, 1, kTogether),
        trend_(trend_of(n.detrend)),
        size_(n.nperseg),
        step_(n.nperseg - (n.noverlap < 0 ? n.nperseg / 2 : n.noverlap)),
        batch_(x.dims[0]),
        samples_(x.dims[1]),
        segments_((samples_ - size_) / step_ + 1),
        fs_(n.fs),
        density_(n.scaling == "density"),
        given_(n.window ? n.window.position() : 0) {
    if (x.dtype != TENON_DTYPE_F32) throw Refusal::dtype("x", x.dtype);
    if (!n.onesided) throw Refusal::attribute("onesided", "false");
    if (n.average != "mean") throw Refusal::attribute("average", n.average);
    if (!density_ && n.scaling != "spectrum") throw Refusal::attribute("scaling", n.scaling);
    if (!n.window)
      for (const double v : sdk::hann_window(size_)) window_.push_back(static_cast<float>(v));
    slots_ = make_slots(batch_ * blocks(), bytes_of(area()),
                        std::min(kBlock, segments_) * transform_cost(transform_.points()));
  }
  void fill() { transform_.fill(); }
  int64_t batch() const { return batch_; }
  int64_t bins() const { return transform_.bins(); }
  uint64_t scratch() const {
    return slots_.scratch() + static_cast<uint64_t>(bytes_of(batch_ * blocks() * bins()));
  }
  void run(const sdk::Call& c, float* psd) const {
    const float* w = window_.empty() ? c.in<float>(given_) : window_.data();
    const double scale = scale_of(w);
    auto* sums = reinterpret_cast<float*>(static_cast<char*>(c.scratch) + slots_.scratch());
    slots_.run(c.scratch, [&](int64_t begin, int64_t end, char* own) {
      for (int64_t k = begin; k < end; ++k)
        add_block(c.in<float>(0), w, k, sums + k * bins(), reinterpret_cast<float*>(own));
    });
    parallel_for(batch_, grain_for(bytes_of(blocks() * bins())), [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b)
        add_up(sums + b * blocks() * bins(), scale, psd + b * bins());
    });
  }

 private:
  int64_t blocks() const { return (segments_ + kBlock - 1) / kBlock; }
  int64_t together() const { return std::min(transform_.group(), kTogether); }
  int64_t rows_floats() const { return (together() * transform_.points() + 15) / 16 * 16; }
  int64_t bins_floats() const { return (together() * 2 * bins() + 15) / 16 * 16; }
  int64_t area() const { return rows_floats() + bins_floats() + transform_.scratch_floats(); }

  double scale_of(const float* w) const {
    double sum = 0;
    for (int64_t k = 0; k < size_; ++k) sum += density_ ? double(w[k]) * w[k] : w[k];
    if (sum == 0)
      throw sdk::Failure(TENON_NUMERIC_ERROR,
                         "operand window: expected weights whose sum is not 0, got a sum of 0", 0);
    return 1 / ((density_ ? sum * fs_ : sum * sum) * static_cast<double>(segments_));
  }

  // The powers of block k of all signals.
  void add_block(const float* x, const float* w, int64_t k, float* sums, float* rows) const {
    float* bins = rows + rows_floats();
    float* rest = bins + bins_floats();
    const int64_t points = transform_.points(), width = transform_.bins();
    const float* signal = x + k / blocks() * samples_;
    const int64_t first = k % blocks() * kBlock, end = std::min(first + kBlock, segments_);
    std::fill_n(sums, width, 0.F);
    const int64_t group = together();
    for (int64_t s = first; s < end; s += group) {
      const int64_t count = std::min(group, end - s);
      for (int64_t r = 0; r < count; ++r) {
        cut_segment(signal + (s + r) * step_, w, size_, trend_, rows + r * points);
        std::fill(rows + r * points + size_, rows + (r + 1) * points, 0.F);
      }
      transform_.run(rows, bins, count, rest);
      for (int64_t r = 0; r < count; ++r) add_powers(bins + r * 2 * width, width, sums);
    }
  }

  // All bins but the first, and the last of an even length, stand for two.
  void add_up(const float* sums, double scale, float* psd) const {
    const int64_t width = bins(), points = transform_.points();
    const auto once = static_cast<float>(scale), twice = static_cast<float>(2 * scale);
    for (int64_t f = 0; f < width; ++f) {
      float sum = 0;
      for (int64_t k = 0; k < blocks(); ++k) sum += sums[k * width + f];
      psd[f] = sum * (f == 0 || 2 * f == points ? once : twice);
    }
  }

  RealTransform transform_;
  Trend trend_;
  int64_t size_, step_, batch_, samples_, segments_;
  double fs_;
  bool density_;
  size_t given_;               // the operand window
  std::vector<float> window_;  // otherwise
  Slots slots_;
};

sdk::Kernel make_welch_psd(const sdk::op::welch_psd& n, const sdk::Node&) {
  const auto w = std::make_shared<Welch>(n, n.x.type());
  return {.run = [w](const sdk::Call& c) { w->run(c, c.out<float>(0)); },
          .prepare = [w] { w->fill(); },
          .scratch = w->scratch()};
}

// The powers follow the scratch memory of welch_psd, which the search for peaks uses again.
sdk::Kernel make_welch_peaks(const sdk::op::welch_peaks& n, const sdk::Node&) {
  const auto w = std::make_shared<Welch>(n, n.x.type());
  const PeakRows peaks{peak_rule(n, w->bins()), w->batch()};
  const uint64_t area = (std::max(w->scratch(), peaks.scratch()) + 63) / 64 * 64;
  return {.run =
              [=](const sdk::Call& c) {
                auto* psd = reinterpret_cast<float*>(static_cast<char*>(c.scratch) + area);
                w->run(c, psd);
                peaks.run(psd, c.scratch, c.out<int32_t>(0), c.out<float>(1), c.out<int32_t>(2));
              },
          .prepare = [w] { w->fill(); },
          .scratch = area + static_cast<uint64_t>(bytes_of(w->batch() * w->bins()))};
}

constexpr sdk::Row kRows[] = {
    sdk::row<sdk::op::welch_psd, make_welch_psd>(),
    sdk::row<sdk::op::spectrum_peaks, make_spectrum_peaks>(),
    sdk::row<sdk::op::welch_peaks, make_welch_peaks>(),
};

}  // namespace

std::span<const sdk::Row> spectrum_rows() { return kRows; }

}  // namespace tenon::cpu
