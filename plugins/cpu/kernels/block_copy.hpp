// SPDX-License-Identifier: Apache-2.0
// Copies a block of bytes between two strided layouts, for concat, pad and the dynamic slices.
#pragma once

#include <cstdint>
#include <span>

#include "tenon/kernel.hpp"

namespace tenon::cpu {

// Runs of `run` contiguous bytes over `rank` outer axes. Strides are in bytes.
struct BlockCopy {
  int rank = 0;
  sdk::Dims dims{};
  sdk::Dims src_strides{};
  sdk::Dims dst_strides{};
  int64_t run = 0;

  void operator()(const void* src, void* dst) const;
};

// The copy of a block of shape `dims`. Strides are in elements of `bytes` bytes; the innermost axis
// is dense. Axes that are contiguous in both layouts are merged.
BlockCopy block_copy(std::span<const int64_t> dims, std::span<const int64_t> src_strides,
                     std::span<const int64_t> dst_strides, int64_t bytes);

// memcpy and memset on all threads.
void copy_bytes(const void* src, void* dst, int64_t bytes);
void zero_bytes(void* dst, int64_t bytes);

}  // namespace tenon::cpu
