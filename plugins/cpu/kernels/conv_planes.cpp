// SPDX-License-Identifier: Apache-2.0
// Convolutions of few channels per group (depthwise ones above all) from padded copies of the
// channels. A piece of work is a band of rows of one group of one image.
#include <algorithm>
#include <cstring>

#include "conv.hpp"
#include "convert.hpp"
#include "gemm.hpp"

namespace tenon::cpu {
namespace {

constexpr int64_t kPaddedBytes = 128 << 10;  // of a band: it fits L2, beside the results
constexpr int64_t kPieces = 32;              // of work that there should be
constexpr int64_t kFilters = 4;              // at a time

int64_t divide_up(int64_t n, int64_t by) { return (n + by - 1) / by; }
uint64_t aligned(int64_t bytes) { return static_cast<uint64_t>(divide_up(bytes, 64) * 64); }

template <class T>
double wide(T x) {
  if constexpr (std::is_same_v<T, double>)
    return x;
  else
    return to_float(x);
}

// Calls f(storage, accumulation) with values of the types of a float dtype.
template <class F>
void with_types(tenon_dtype t, F&& f) {
  switch (t) {
    case TENON_DTYPE_F64:
      return f(double{}, double{});
    case TENON_DTYPE_F16:
      return f(F16{}, float{});
    case TENON_DTYPE_BF16:
      return f(Bf16{}, float{});
    default:
      return f(float{}, float{});
  }
}

// A row of x as the phases of `step` positions each; position t of the padded row is x[at + t].
template <class T, class A>
void fill_row(const T* x, int64_t size, int64_t at, int64_t step, int64_t phase, A* row) {
  for (int64_t p = 0; p < step; ++p, row += phase) {
    const int64_t first = at + p;
    const int64_t before = first < 0 ? std::min(phase, (-first + step - 1) / step) : 0;
    const int64_t inside = first >= size ? 0 : std::min(phase, (size - 1 - first) / step + 1);
    std::fill_n(row, before, A{});
    if constexpr (std::is_same_v<T, A>) {
      if (step == 1) {
        if (inside > before)
          std::memcpy(row + before, x + first + before, (inside - before) * sizeof(T));
      } else {
        for (int64_t k = before; k < inside; ++k) row[k] = x[first + k * step];
      }
    } else {
      for (int64_t k = before; k < inside; ++k) row[k] = to_float(x[first + k * step]);
    }
    const int64_t filled = std::max(before, inside);
    std::fill_n(row + filled, phase - filled, A{});
  }
}

}  // namespace

ConvPlanes::ConvPlanes(TapConv conv, tenon_dtype dtype)
    : conv_(std::move(conv)), dtype_(dtype), sum_(gemm_sum_dtype(dtype)) {
  for (int k = 0; k < kConvAxes; ++k) {
    const std::vector<int64_t>& taps = conv_.axes[k].taps;
    if (taps.empty()) continue;
    const auto [least, most] = std::minmax_element(taps.begin(), taps.end());
    least_[k] = *least, reach_[k] = *most - *least;
  }
  const auto& [a0, a1, a2] = conv_.axes;
  const int64_t size = element_bytes(sum_);
  phase_ = a2.out + reach_[2] / a2.step;
  row_ = a2.step * phase_;
  band_axis_ = a0.out > 1 ? 0 : 1;
  const ConvAxis& along = conv_.axes[band_axis_];
  // What one more window along the band's axis adds to the padded copy.
  const int64_t rows1 = (a1.out - 1) * a1.step + reach_[1] + 1;
  const int64_t each = conv_.c * along.step * row_ * size * (band_axis_ == 0 ? rows1 : 1);
  const int64_t fixed = each / along.step * (reach_[band_axis_] + 1);
  const int64_t least =
      std::max<int64_t>(reach_[band_axis_] / along.step, 1);  // copied once or less
  const int64_t fitting = std::max((kPaddedBytes - fixed) / std::max<int64_t>(each, 1), least);
  const int64_t wanted = divide_up(kPieces, std::max<int64_t>(conv_.batch * conv_.groups, 1));
  band_ = std::clamp(std::min(fitting, divide_up(along.out, wanted)), std::min(least, along.out),
                     std::max<int64_t>(along.out, 1));
  bands_ = divide_up(along.out, band_);
  slice_rows_ = band_axis_ == 1 ? (band_ - 1) * a1.step + reach_[1] + 1 : rows1;
  const int64_t slices = ((band_axis_ == 0 ? band_ : a0.out) - 1) * a0.step + reach_[0] + 1;
  plane_ = slices * slice_rows_ * row_;
  for (int64_t c = 0; c < conv_.c; ++c)
    for (const int64_t t0 : a0.taps)
      for (const int64_t t1 : a1.taps)
        for (const int64_t t2 : a2.taps) {
          const int64_t d = t2 - least_[2];
          offsets_.push_back(c * plane_ + ((t0 - least_[0]) * slice_rows_ + t1 - least_[1]) * row_ +
                             d % a2.step * phase_ + d / a2.step);
        }
  const int64_t windows = band_ * a2.out * (band_axis_ == 0 ? a1.out : 1);
  padded_ = aligned(conv_.c * plane_ * size);
  weights_ = aligned(conv_.m * conv_.depth() * size);
  sums_ = aligned(kFilters * windows * size);
  slots_ = widest_arena();
  slot_ = padded_ + weights_ + sums_;
}

ConvPlanes::Band ConvPlanes::band(int64_t k) const {
  return {k * band_, std::min(band_, conv_.axes[band_axis_].out - k * band_)};
}

// x: the channels of a group of an image.
void ConvPlanes::fill(const char* x, const Band& band, char* padded) const {
  const auto& [a0, a1, a2] = conv_.axes;
  const int64_t slices = (slices_of(band) - 1) * a0.step + reach_[0] + 1;
  const int64_t rows = (rows_of(band) - 1) * a1.step + reach_[1] + 1;
  const int64_t first0 = least_[0] + (band_axis_ == 0 ? band.first * a0.step : 0);
  const int64_t first1 = least_[1] + (band_axis_ == 1 ? band.first * a1.step : 0);
  with_types(dtype_, [&]<class T, class A>(T, A) {
    for (int64_t c = 0; c < conv_.c; ++c)
      for (int64_t s = 0; s < slices; ++s)
        for (int64_t r = 0; r < rows; ++r) {
          A* const row = reinterpret_cast<A*>(padded) + c * plane_ + (s * slice_rows_ + r) * row_;
          const int64_t i0 = first0 + s, i1 = first1 + r;
          if (i0 < 0 || i0 >= a0.in || i1 < 0 || i1 >= a1.in) {
            std::fill_n(row, row_, A{});
          } else {
            fill_row(reinterpret_cast<const T*>(x) + ((c * a0.in + i0) * a1.in + i1) * a2.in, a2.in,
                     least_[2], a2.step, phase_, row);
          }
        }
  });
}

void ConvPlanes::pack_weights(const void* w, int64_t group, char* to) const {
  with_types(dtype_, [&]<class T, class A>(T, A) {
    A* next = reinterpret_cast<A*>(to);
    for (int64_t m = 0; m < conv_.m; ++m)
      for (int64_t c = 0; c < conv_.c; ++c) {
        const T* const from =
            static_cast<const T*>(w) + group * conv_.w_group + m * conv_.w_m + c * conv_.w_c;
        for (const int64_t t : conv_.w_tap) *next++ = static_cast<A>(wide(from[t]));
      }
  });
}

void ConvPlanes::run(const sdk::Call& call, const void* x, const void* w, void* y,
                     const ConvEnds& ends) const {
  if (conv_.m == 0) return;
  parallel_for_slots(
      conv_.batch * conv_.groups * bands_, 1, slots_, [&](int slot, int64_t begin, int64_t end) {
        char* const own = static_cast<char*>(call.scratch) + slot * slot_;
        for (int64_t piece = begin; piece < end; ++piece)
          run_piece(call, static_cast<const char*>(x), w, piece, static_cast<char*>(y), ends, own);
      });
}

void ConvPlanes::run_piece(const sdk::Call& call, const char* x, const void* w, int64_t piece,
                           char* y, const ConvEnds& ends, char* own) const {
  const auto& [a0, a1, a2] = conv_.axes;
  const int64_t which = piece / bands_, group = which % conv_.groups;
  const Band b = band(piece % bands_);
  const int64_t size = element_bytes(sum_), depth = conv_.depth();
  char *const padded = own, *const weights = own + padded_, *const buffer = weights + weights_;
  if (depth > 0) fill(x + which * conv_.c * conv_.pixels() * element_bytes(dtype_), b, padded);
  pack_weights(w, group, weights);
  const int64_t rows = rows_of(b), windows = rows * a2.out * slices_of(b);
  const bool dense = conv_.dense(), direct = dense && sum_ == dtype_;
  const int64_t first_window = b.first * a2.out * (band_axis_ == 0 ? a1.out : 1);
  for (int64_t m = 0; m < conv_.m; m += kFilters) {
    const int64_t filters = std::min(kFilters, conv_.m - m);
    const int64_t plane = which * conv_.m + m;
    char* const sums = direct ? y + (plane * conv_.y_plane + first_window) * size : buffer;
    const int64_t pitch = direct ? conv_.y_plane : windows;
    for (int64_t s = 0; s < slices_of(b); ++s)
      plane_sums({sum_, padded + s * a0.step * slice_rows_ * row_ * size, a1.step * row_,
                  offsets_.data(), depth, weights + m * depth * size, filters, rows, a2.out,
                  sums + s * rows * a2.out * size, a2.out, pitch});
    if (direct && ends.none(sum_, dtype_)) continue;
    for (int64_t f = 0; f < filters; ++f) {
      const int64_t channel = group * conv_.m + m + f;
      char* const own_sums = sums + f * pitch * size;
      const int64_t base = (plane + f) * conv_.y_plane + conv_.y_origin;
      if (dense) {
        ends.run(call, sum_, dtype_, own_sums, channel, base + first_window, 1, windows);
        continue;
      }
      const int64_t first0 = band_axis_ == 0 ? b.first : 0, first1 = band_axis_ == 1 ? b.first : 0;
      for (int64_t s = 0; s < slices_of(b); ++s)
        for (int64_t r = 0; r < rows; ++r)
          ends.run(call, sum_, dtype_, own_sums + (s * rows + r) * a2.out * size, channel,
                   base + (first0 + s) * conv_.y_pitch[0] + (first1 + r) * conv_.y_pitch[1],
                   conv_.y_pitch[2], a2.out);
    }
  }
}

// ---- the gradient of the weights: one group after the other, images and bands in order

uint64_t ConvPlanes::weight_scratch() const { return slots_ * slot_; }

void ConvPlanes::run_weight(const void* y, const void* x, void* dw, void* scratch) const {
  const auto& [a0, a1, a2] = conv_.axes;
  const int64_t depth = conv_.depth(), size = element_bytes(sum_), from = element_bytes(dtype_);
  parallel_for_slots(conv_.groups, 1, slots_, [&](int slot, int64_t begin, int64_t end) {
    char* const padded = static_cast<char*>(scratch) + slot * slot_;
    char *const dots = padded + padded_, *const rows_of_y = dots + weights_;
    for (int64_t group = begin; group < end; ++group) {
      std::memset(dots, 0, conv_.m * depth * size);
      for (int64_t piece = 0; piece < conv_.batch * bands_; ++piece) {
        const int64_t which = piece / bands_ * conv_.groups + group;
        const Band b = band(piece % bands_);
        fill(static_cast<const char*>(x) + which * conv_.c * conv_.pixels() * from, b, padded);
        const int64_t rows = rows_of(b), slices = slices_of(b), windows = slices * rows * a2.out;
        const int64_t first = b.first * a2.out * (band_axis_ == 0 ? a1.out : 1);
        for (int64_t m = 0; m < conv_.m; ++m) {
          const char* own = static_cast<const char*>(y) +
                            ((which * conv_.m + m) * conv_.windows() + first) * from;
          if (dtype_ != sum_) {
            widen(dtype_, own, reinterpret_cast<float*>(rows_of_y), windows);
            own = rows_of_y;
          }
          for (int64_t s = 0; s < slices; ++s)
            plane_dots({sum_, padded + s * a0.step * slice_rows_ * row_ * size, a1.step * row_,
                        offsets_.data(), depth, own + s * rows * a2.out * size, a2.out, rows,
                        a2.out, dots + m * depth * size});
        }
      }
      with_types(dtype_, [&]<class T, class A>(T, A) {
        T* const to = static_cast<T*>(dw) + group * conv_.m * depth;
        const A* const sums = reinterpret_cast<const A*>(dots);
        for (int64_t k = 0; k < conv_.m * depth; ++k) {
          if constexpr (std::is_same_v<T, A>) {
            to[k] = sums[k];
          } else {
            from_float(sums[k], to + k);
          }
        }
      });
    }
  });
}

}  // namespace tenon::cpu
