// SPDX-License-Identifier: Apache-2.0
// Copies a strided tensor to a dense one, in host memory. The layer uses it if a plugin has no
// strided `copy` row. A small plugin with host memory can use it as that row.
#pragma once

#include <cstring>
#include <vector>

#include "../kernel.hpp"

namespace tenon::sdk {

namespace layer {
template <class T>
void copy_elements(const Type& x, const T* from, T* to) {
  const int64_t count = x.elements();
  Dims at{};
  for (int64_t k = 0; k < count; ++k) {
    to[k] = *from;
    for (int i = x.rank - 1; i >= 0; --i) {
      from += x.strides[i];
      if (++at[i] < x.dims[i]) break;
      from -= x.strides[i] * x.dims[i];
      at[i] = 0;
    }
  }
}
}  // namespace layer

// Copies bits unchanged, including NaN payloads.
inline Kernel copy_kernel(const Type& x) {
  const uint64_t bytes = x.bytes();
  if (x.dense())
    return {.run = [bytes](const Call& c) { std::memcpy(c.outputs[0], c.inputs[0], bytes); }};
  const auto run = [&x]<class T>(T) {
    return Kernel{.run = [x](const Call& c) { layer::copy_elements(x, c.in<T>(0), c.out<T>(0)); }};
  };
  return with_bits("x", x.dtype, run);
}

inline Kernel strided_copy(const op::copy& n, const Node&) { return copy_kernel(n.x.type()); }
template <>
inline constexpr bool kHostOnly<strided_copy> = true;

}  // namespace tenon::sdk
