// SPDX-License-Identifier: Apache-2.0
// Descriptors of tensors for the copy engine of sm_90.
#pragma once

#include "../code.hpp"
#include "../driver.hpp"

namespace tenon::cuda {

// How the copy engine reads a tensor: CUtensorMapDataType and the other enumerations of the driver.
struct MapKind {
  int type, swizzle, promotion;
};
// Promotions: what L2 brings at a time for a copy of less, one line or two.
constexpr int kLine = 2, kTwoLines = 3;
// dims, strides in bytes of all dimensions but the first, and what a copy takes, with zeros beyond the
// tensor's end.
template <size_t N>
args::TensorMap tensor_map(const void* tensor, const MapKind& kind, const int64_t (&dims)[N],
                           const int64_t (&strides)[N - 1], const int64_t (&box)[N]) {
  constexpr int kNotInterleaved = 0, kZeros = 0;
  uint64_t lengths[N], steps[N - 1];
  uint32_t piece[N], every[N];
  for (size_t i = 0; i < N; ++i) {
    lengths[i] = static_cast<uint64_t>(dims[i]), piece[i] = static_cast<uint32_t>(box[i]);
    every[i] = 1;
    if (i > 0) steps[i - 1] = static_cast<uint64_t>(strides[i - 1]);
  }
  args::TensorMap map;
  TENON_CUDA(tensor_map_encode, &map, kind.type, int{N}, const_cast<void*>(tensor), lengths, steps,
             piece, every, kNotInterleaved, kind.swizzle, kind.promotion, kZeros);
  return map;
}
// Of halves: `box` comes in the order of wgmma.cuh. strides: in elements.
template <size_t N>
args::TensorMap tensor_map(const void* tensor, tenon_dtype dtype, const int64_t (&dims)[N],
                           const int64_t (&strides)[N - 1], const int64_t (&box)[N],
                           int promotion = kTwoLines) {
  constexpr int kF16 = 6, kBf16 = 9, kSwizzle128 = 3;
  int64_t bytes[N - 1];
  for (size_t i = 0; i + 1 < N; ++i) bytes[i] = strides[i] * 2;
  return tensor_map(tensor, {dtype == TENON_DTYPE_F16 ? kF16 : kBf16, kSwizzle128, promotion}, dims,
                    bytes, box);
}
// Of bytes, in columns of eight; a copy begins at a multiple of 16 bytes, and comes line by line.
template <size_t N>
args::TensorMap bytes_map(const void* tensor, const int64_t (&dims)[N],
                          const int64_t (&strides)[N - 1], const int64_t (&box)[N]) {
  constexpr int kI64 = 5, kNotSwizzled = 0;
  return tensor_map(tensor, {kI64, kNotSwizzled, kLine}, dims, strides, box);
}

}  // namespace tenon::cuda
