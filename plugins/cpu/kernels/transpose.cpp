// SPDX-License-Identifier: Apache-2.0
// Blocks of 16 bytes by 16 bytes are transposed in registers. A tile of a cache line each way is
// assembled in a buffer, so that lines with colliding addresses are read once and written once.
#include "transpose.hpp"

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

namespace tenon::cpu {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kLine = 64;

// A square of lanes: a perfect shuffle of the rows for each bit of the lane number.
template <class T>
void transpose_square(const T* in, int64_t in_stride, T* out, int64_t out_stride) {
  constexpr int64_t kLanes = 16 / sizeof(T);
  const hn::FixedTag<T, kLanes> d;
  hn::Vec<decltype(d)> v[kLanes], w[kLanes];
  for (int64_t k = 0; k < kLanes; ++k) v[k] = hn::LoadU(d, in + k * in_stride);
  for (int64_t round = 1; round < kLanes; round *= 2) {
    for (int64_t k = 0; k < kLanes / 2; ++k) {
      w[2 * k] = hn::InterleaveLower(d, v[k], v[k + kLanes / 2]);
      w[2 * k + 1] = hn::InterleaveUpper(d, v[k], v[k + kLanes / 2]);
    }
    std::copy(w, w + kLanes, v);
  }
  for (int64_t k = 0; k < kLanes; ++k) hn::StoreU(v[k], d, out + k * out_stride);
}

// `nontemporal` avoids reading a line that is written whole.
template <class T>
void store_line(const T* line, T* to, bool nontemporal) {
  if (!nontemporal || reinterpret_cast<uintptr_t>(to) % kLine != 0) {
    std::memcpy(to, line, kLine);
    return;
  }
  constexpr int64_t kLanes = 16 / sizeof(T);
  const hn::FixedTag<T, kLanes> d;
  for (int64_t k = 0; k < kLine / 16; ++k)
    hn::Stream(hn::Load(d, line + k * kLanes), d, to + k * kLanes);
}

template <class T>
void transpose_tile(const T* in, int64_t in_stride, T* out, int64_t out_stride, bool nontemporal) {
  constexpr int64_t kLanes = 16 / sizeof(T), kSide = kLine / sizeof(T);
  alignas(kLine) T tile[kSide * kSide];
  for (int64_t j = 0; j < kSide; j += kLanes)
    for (int64_t i = 0; i < kSide; i += kLanes)
      transpose_square(in + j * in_stride + i, in_stride, tile + i * kSide + j, kSide);
  for (int64_t i = 0; i < kSide; ++i)
    store_line(tile + i * kSide, out + i * out_stride, nontemporal);
}

// Two rows of `in`, element by element in turn.
template <class T>
void interleave(const T* in, int64_t in_stride, T* out, int64_t rows) {
  constexpr int64_t kLanes = 16 / sizeof(T);
  const hn::FixedTag<T, kLanes> d;
  int64_t i = 0;
  for (; i + kLanes <= rows; i += kLanes) {
    const auto a = hn::LoadU(d, in + i), b = hn::LoadU(d, in + in_stride + i);
    hn::StoreU(hn::InterleaveLower(d, a, b), d, out + 2 * i);
    hn::StoreU(hn::InterleaveUpper(d, a, b), d, out + 2 * i + kLanes);
  }
  for (; i < rows; ++i) out[2 * i] = in[i], out[2 * i + 1] = in[in_stride + i];
}

// Visits the tiles column by column, so that the lines read from one row of `in` are adjacent.
template <class T>
void transpose_matrix(const T* in, int64_t in_stride, T* out, int64_t out_stride, int64_t rows,
                      int64_t columns, bool nontemporal) {
  constexpr int64_t kSide = kLine / sizeof(T);
  if (columns == 2 && out_stride == 2) return interleave(in, in_stride, out, rows);
  for (int64_t j0 = 0; j0 < columns; j0 += kSide) {
    const int64_t width = std::min(kSide, columns - j0);
    for (int64_t i0 = 0; i0 < rows; i0 += kSide) {
      const int64_t height = std::min(kSide, rows - i0);
      const T* from = in + j0 * in_stride + i0;
      T* to = out + i0 * out_stride + j0;
      if (width == kSide && height == kSide) {
        transpose_tile(from, in_stride, to, out_stride, nontemporal);
        continue;
      }
      for (int64_t i = 0; i < height; ++i)
        for (int64_t j = 0; j < width; ++j) to[i * out_stride + j] = from[j * in_stride + i];
    }
  }
}

}  // namespace

void transpose(const void* in, int64_t in_stride, void* out, int64_t out_stride, int64_t rows,
               int64_t columns, int64_t size, bool nontemporal) {
  const auto as = [&](auto t) {
    using T = decltype(t);
    transpose_matrix(static_cast<const T*>(in), in_stride, static_cast<T*>(out), out_stride, rows,
                     columns, nontemporal);
  };
  switch (size) {
    case 1:
      as(uint8_t{});
      break;
    case 2:
      as(uint16_t{});
      break;
    case 4:
      as(uint32_t{});
      break;
    default:
      as(uint64_t{});
      break;
  }
  if (nontemporal) hwy::FlushStream();
}

}  // namespace tenon::cpu
