// SPDX-License-Identifier: Apache-2.0
// Descriptors of tensors of halves for the copy engine of sm_90.
#pragma once

#include "../code.hpp"
#include "../driver.hpp"

namespace tenon::cuda {

// A copy takes `box`, in the order of wgmma.cuh, with zeros beyond the tensor's end. strides: in
// elements, of all dimensions but the first.
template <size_t N>
args::TensorMap tensor_map(const void* tensor, tenon_dtype dtype, const int64_t (&dims)[N],
                           const int64_t (&strides)[N - 1], const int64_t (&box)[N]) {
  constexpr int kF16 = 6, kBf16 = 9, kNotInterleaved = 0, kSwizzle128 = 3, kTwoLines = 3,
                kZeros = 0;
  uint64_t lengths[N], steps[N - 1];
  uint32_t piece[N], every[N];
  for (size_t i = 0; i < N; ++i) {
    lengths[i] = static_cast<uint64_t>(dims[i]), piece[i] = static_cast<uint32_t>(box[i]);
    every[i] = 1;
    if (i > 0) steps[i - 1] = static_cast<uint64_t>(strides[i - 1]) * 2;
  }
  args::TensorMap map;
  TENON_CUDA(tensor_map_encode, &map, dtype == TENON_DTYPE_F16 ? kF16 : kBf16, int{N},
             const_cast<void*>(tensor), lengths, steps, piece, every, kNotInterleaved, kSwizzle128,
             kTwoLines, kZeros);
  return map;
}

}  // namespace tenon::cuda
