// SPDX-License-Identifier: Apache-2.0
// The layout of padded copies, and copying.
#include "conv_padded.hpp"

#include <algorithm>
#include <cstring>

#include "convert.hpp"
#include "gemm.hpp"
#include "qgemm.hpp"

namespace tenon::cpu {
namespace {

// Elements that may be read behind the last window of the last plane.
constexpr int64_t kBehind = 128;
// Rows of windows are cut if they are that many times longer than a band should be. The parts are
// not shorter than kLeastWidth, and as long as the taps reach, since parts copy what they share; but
// kMostReach is enough.
constexpr int64_t kLong = 4, kLeastWidth = 256, kMostReach = 4096;

// Of elements at + k * step, k < count, those with before <= k < inside are in [0, size).
struct Within {
  int64_t before, inside;
};
Within within(int64_t size, int64_t at, int64_t step, int64_t count) {
  const int64_t before = at < 0 ? std::min(count, (-at + step - 1) / step) : 0;
  return {before, at >= size ? 0 : std::min(count, (size - 1 - at) / step + 1)};
}

// position[k] = x[at + k * step], zero outside of x.
template <class T, class A>
void fill_row(const T* x, int64_t size, int64_t at, int64_t step, int64_t count, A* row) {
  const auto [before, inside] = within(size, at, step, count);
  for (int64_t k = 0; k < before; ++k) row[k] = A{};
  if constexpr (std::is_same_v<T, A>) {
    if (step == 1) {
      if (inside > before)
        std::memcpy(row + before, x + at + before, (inside - before) * sizeof(T));
    } else if (step == 2 && inside > before) {
      copy_every_second(x + at + 2 * before, row + before, inside - before);
    } else {
      for (int64_t k = before; k < inside; ++k) row[k] = x[at + k * step];
    }
  } else {
    for (int64_t k = before; k < inside; ++k) row[k] = to_float(x[at + k * step]);
  }
  for (int64_t k = std::max(before, inside); k < count; ++k) row[k] = A{};
}

// row[k] = element at + k * step of a row, `outside` beyond it. convert(first, count, to) writes
// elements of the row.
template <class A, class Convert>
void fill_converted(const ConvAxis& columns, int64_t at, int64_t count, A outside, A* row,
                    const Convert& convert) {
  constexpr int64_t kChunk = 512;
  const int64_t size = columns.in, step = columns.step;
  const auto [before, inside] = within(size, at, step, count);
  std::fill_n(row, before, outside);
  if (step == 1) {
    if (inside > before) convert(at + before, inside - before, row + before);
  } else {
    A chunk[kChunk];
    for (int64_t k = before; k < inside;) {
      const int64_t first = at + k * step, length = std::min(kChunk, size - first);
      const int64_t found = std::min(inside - k, (length - 1) / step + 1);
      convert(first, (found - 1) * step + 1, chunk);
      if (step == 2) {  // bits are copied, whatever they mean
        copy_every_second(reinterpret_cast<const float*>(chunk), reinterpret_cast<float*>(row + k),
                          found);
      } else {
        for (int64_t j = 0; j < found; ++j) row[k + j] = chunk[j * step];
      }
      k += found;
    }
  }
  const int64_t filled = std::max(before, inside);
  std::fill_n(row + filled, count - filled, outside);
}

int64_t index_of(const std::vector<int64_t>& list, int64_t value) {
  return std::find(list.begin(), list.end(), value) - list.begin();
}

}  // namespace

PaddedTaps::PaddedTaps(TapConv conv, tenon_dtype dtype, int64_t columns, int64_t bytes)
    : conv_(std::move(conv)), dtype_(dtype), sum_(gemm_sum_dtype(dtype)) {
  const auto& [a0, a1, a2] = conv_.axes;
  const auto needs = [](const ConvAxis& a) {
    Axis axis;
    if (a.taps.empty()) return axis;
    axis.least = *std::min_element(a.taps.begin(), a.taps.end());
    for (const int64_t t : a.taps) {
      axis.reach = std::max(axis.reach, (t - axis.least) / a.step);
      const int64_t phase = (t - axis.least) % a.step;
      if (index_of(axis.phases, phase) == static_cast<int64_t>(axis.phases.size()))
        axis.phases.push_back(phase);
    }
    return axis;
  };
  rows_ = needs(a1), columns_ = needs(a2);
  const int64_t planes =
      static_cast<int64_t>(a0.taps.size() * rows_.phases.size() * columns_.phases.size());
  cut_rows(columns, bytes, planes);
  pitch_ = band_width_ + columns_.reach;
  if (a2.step == 1 && column_bands_ == 1) {
    const int64_t left = std::max<int64_t>(-columns_.least, 0);
    const int64_t right = std::max<int64_t>(columns_.least + pitch_ - a2.in, 0);
    shared_ = std::min({left, right, columns_.reach});
    pitch_ -= shared_;
  }
  const int64_t per_row = std::max<int64_t>(conv_.c * planes * pitch_ * element_bytes(sum_), 1);
  const int64_t fitting = std::max<int64_t>(bytes / per_row - rows_.reach, 1);
  const int64_t wanted = (columns + pitch_ - 1) / pitch_;
  const int64_t rows = column_bands_ > 1 ? 1
                                         : std::clamp<int64_t>(std::min(wanted, fitting), 1,
                                                               std::max<int64_t>(a1.out, 1));
  row_bands_ = (a1.out + rows - 1) / rows;
  band_rows_ = row_bands_ > 0 ? (a1.out + row_bands_ - 1) / row_bands_ : 1;
  row_bands_ = (a1.out + band_rows_ - 1) / band_rows_;
  plane_ = (band_rows_ + rows_.reach) * pitch_ + shared_;
  channel_ = planes * plane_;
  for (int64_t c = 0; c < conv_.c; ++c)
    for (size_t t0 = 0; t0 < a0.taps.size(); ++t0)
      for (const int64_t t1 : a1.taps)
        for (const int64_t t2 : a2.taps) {
          const int64_t d1 = t1 - rows_.least, d2 = t2 - columns_.least;
          const int64_t plane = (static_cast<int64_t>(t0 * rows_.phases.size()) +
                                 index_of(rows_.phases, d1 % a1.step)) *
                                    static_cast<int64_t>(columns_.phases.size()) +
                                index_of(columns_.phases, d2 % a2.step);
          offsets_.push_back(c * channel_ + plane * plane_ + d1 / a1.step * pitch_ + d2 / a2.step);
        }
}

// Sets the width of bands.
void PaddedTaps::cut_rows(int64_t columns, int64_t bytes, int64_t planes) {
  const int64_t out = std::max<int64_t>(conv_.axes[2].out, 1);
  band_width_ = out;
  const int64_t least = std::max(kLeastWidth, std::min(columns_.reach, kMostReach));
  const int64_t per_column =
      std::max<int64_t>(conv_.c * planes * (1 + rows_.reach) * element_bytes(sum_), 1);
  const int64_t fitting = bytes / per_column - columns_.reach;
  if (out <= kLong * columns && out <= kLong * std::max<int64_t>(fitting, 1)) return;
  column_bands_ = (out - 1) / std::max(std::min(columns, fitting), least) + 1;
  band_width_ = (out - 1) / column_bands_ + 1;
  column_bands_ = (out - 1) / band_width_ + 1;
}

ConvBand PaddedTaps::band(int64_t k) const {
  const int64_t column = k % column_bands_ * band_width_;
  k /= column_bands_;
  const int64_t row = k % row_bands_ * band_rows_;
  return {.slice = k / row_bands_,
          .row = row,
          .rows = std::min(band_rows_, conv_.axes[1].out - row),
          .column = column,
          .width = std::min(band_width_, conv_.axes[2].out - column)};
}

uint64_t PaddedTaps::bytes() const {
  return static_cast<uint64_t>((conv_.c * channel_ + kBehind) * element_bytes(sum_) + 63) / 64 * 64;
}

// inside(channel, first element of the row in the channel, column of the row's first element, row)
template <class A, class Row>
void PaddedTaps::fill_rows(const ConvBand& band, A outside, A* plane, const Row& inside) const {
  const auto& [a0, a1, a2] = conv_.axes;
  const int64_t at = band.column * a2.step + columns_.least;
  for (int64_t c = 0; c < conv_.c; ++c)
    for (const int64_t t0 : a0.taps) {
      const int64_t i0 = band.slice * a0.step + t0;
      for (const int64_t p1 : rows_.phases)
        for (const int64_t p2 : columns_.phases) {
          A* row = plane;
          for (int64_t r = 0; r < band.rows + rows_.reach; ++r, row += pitch_) {
            const int64_t i1 = (band.row + r) * a1.step + rows_.least + p1;
            if (i0 < 0 || i0 >= a0.in || i1 < 0 || i1 >= a1.in) {
              std::fill_n(row, pitch_, outside);
            } else {
              inside(c, (i0 * a1.in + i1) * a2.in, at + p2, row);
            }
          }
          std::fill_n(row, shared_, outside);
          plane += plane_;
        }
    }
}

void PaddedTaps::fill(const void* x, const ConvBand& band, void* padded) const {
  const ConvAxis& columns = conv_.axes[2];
  const auto copy = [&]<class T, class A>(T, A) {
    fill_rows(band, A{}, static_cast<A*>(padded),
              [&](int64_t c, int64_t first, int64_t at, A* row) {
                fill_row(static_cast<const T*>(x) + c * conv_.pixels() + first, columns.in, at,
                         columns.step, pitch_, row);
              });
  };
  switch (dtype_) {
    case TENON_DTYPE_F64:
      return copy(double{}, double{});
    case TENON_DTYPE_F16:
      return copy(F16{}, float{});
    case TENON_DTYPE_BF16:
      return copy(Bf16{}, float{});
    default:
      return copy(float{}, float{});
  }
}

void PaddedTaps::fill_quads(const uint8_t* x, int64_t channels, uint8_t flip, uint8_t outside,
                            const ConvBand& band, uint32_t* padded) const {
  const ConvAxis& columns = conv_.axes[2];
  const uint32_t quad = static_cast<uint8_t>(outside ^ flip) * 0x01010101u;
  fill_rows(band, quad, padded, [&](int64_t c, int64_t first, int64_t at, uint32_t* row) {
    const uint8_t* rows[4];
    for (int64_t k = 0; k < 4; ++k)
      rows[k] = x + std::min(4 * c + k, channels - 1) * conv_.pixels() + first;
    fill_converted(columns, at, pitch_, quad, row, [&](int64_t from, int64_t count, uint32_t* to) {
      const uint8_t* const parts[4] = {rows[0] + from, rows[1] + from, rows[2] + from,
                                       rows[3] + from};
      q_interleave(parts, flip, count, to);
    });
  });
}

int64_t PaddedTaps::lines(const ConvAxis& rows, int64_t windows) const {
  const int64_t reach = rows.taps.empty() ? 0 : rows.taps.back() - rows.taps.front();
  return (windows - 1) * rows.step + reach + 1;
}

uint64_t PaddedTaps::row_bytes(const ConvAxis& rows) const {
  return columns_.phases.size() * static_cast<uint64_t>(lines(rows, band_rows_) * pitch_ + shared_);
}

void PaddedTaps::fill_row_quads(const uint8_t* x, const ConvAxis& rows, uint8_t flip,
                                uint8_t outside, const ConvBand& band, uint8_t* bytes,
                                uint32_t* padded) const {
  const ConvAxis& columns = conv_.axes[2];
  const int64_t top = band.row * rows.step + rows.taps.front();
  const int64_t count = lines(rows, band.rows), phase_bytes = count * pitch_ + shared_;
  uint8_t* line = bytes;
  for (const int64_t phase : columns_.phases) {
    const int64_t at = band.column * columns.step + columns_.least + phase;
    const auto [before, inside] = within(columns.in, at, columns.step, pitch_);
    for (int64_t i = top; i < top + count; ++i, line += pitch_) {
      std::memset(line, outside, pitch_);
      if (i < 0 || i >= rows.in || inside <= before) continue;
      const uint8_t* const from = x + i * columns.in + at;
      if (columns.step == 1)
        std::memcpy(line + before, from + before, inside - before);
      else
        for (int64_t k = before; k < inside; ++k) line[k] = from[k * columns.step];
    }
    std::memset(line, outside, shared_);
    line += shared_;
  }
  // Rows of windows that follow each other in x are one long row. In the order of the layout, since
  // elements behind short rows may be written, too.
  const bool one = rows.step == 1;
  const int64_t row_count = one ? 1 : band.rows, length = (one ? band.rows : 1) * pitch_ + shared_,
                last = static_cast<int64_t>(rows.taps.size()) - 1;
  for (int64_t c = 0; c < conv_.c; ++c)
    for (size_t phase = 0; phase < columns_.phases.size(); ++phase, padded += plane_) {
      const uint8_t* quad[4];
      for (int64_t k = 0; k < 4; ++k)
        quad[k] = bytes + static_cast<int64_t>(phase) * phase_bytes +
                  (rows.taps[std::min(4 * c + k, last)] - rows.taps.front()) * pitch_;
      for (int64_t r = 0; r < row_count; ++r) {
        q_interleave(quad, flip, length, padded + r * pitch_);
        for (const uint8_t*& row : quad) row += rows.step * pitch_;
      }
    }
}

void PaddedTaps::fill_centered(const uint8_t* x, tenon_dtype dtype, int32_t zero,
                               const ConvBand& band, float* padded) const {
  const ConvAxis& columns = conv_.axes[2];
  fill_rows(band, 0.0f, padded, [&](int64_t c, int64_t first, int64_t at, float* row) {
    const uint8_t* const from = x + c * conv_.pixels() + first;
    fill_converted(columns, at, pitch_, 0.0f, row, [&](int64_t begin, int64_t count, float* to) {
      q_center(from + begin, dtype, zero, count, to);
    });
  });
}

}  // namespace tenon::cpu
