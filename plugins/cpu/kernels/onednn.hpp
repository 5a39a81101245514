// SPDX-License-Identifier: Apache-2.0
// oneDNN's matrix product, in the calling thread alone. The only door to the library; its versions 2 and 3 agree here.
#pragma once

#include <cstdint>

namespace tenon::cpu {

// A row-major matrix, or with `transposed` the transpose of one; `ld` elements lie between rows as they are stored.
struct LibraryOperand {
  const float* data;
  int64_t ld;
  bool transposed;
};

// c[m, n] = a·b; c is overwritten, its rows lie `ldc` apart. m, n, k >= 1.
void library_product(int64_t m, int64_t n, int64_t k, const LibraryOperand& a, const LibraryOperand& b, float* c,
                     int64_t ldc);

}  // namespace tenon::cpu
