// SPDX-License-Identifier: Apache-2.0
// Transposes a matrix of any element size, in tiles that read and write whole cache lines.
#pragma once

#include <cstdint>

namespace tenon::cpu {

// out[i * out_stride + j] = in[j * in_stride + i] for i in [0, rows), j in [0, columns). Strides
// count elements of `size` bytes: 1, 2, 4 or 8. Single-threaded. `nontemporal`: for results that do
// not stay in the cache.
void transpose(const void* in, int64_t in_stride, void* out, int64_t out_stride, int64_t rows,
               int64_t columns, int64_t size, bool nontemporal);

}  // namespace tenon::cpu
