// SPDX-License-Identifier: Apache-2.0
// Walks over the elements of known tensors, and integer rules that several files need.
#pragma once

#include "import/onnx/known.hpp"

namespace tenon::core::onnx {

inline Ints strides_of(const Ints& dims) {
  Ints out(dims.size(), 1);
  for (size_t i = dims.size(); i-- > 1;) out[i - 1] = out[i] * dims[i];
  return out;
}

// Calls f(flat, coordinates) for each element of these dims, in order.
template <class F>
void each(const Ints& dims, F&& f) {
  const int64_t count = count_of(dims);
  Ints at(dims.size(), 0);
  for (int64_t i = 0; i < count; ++i) {
    f(i, at);
    for (size_t k = dims.size(); k-- > 0;) {
      if (++at[k] < dims[k]) break;
      at[k] = 0;
    }
  }
}

inline bool is_unsigned(DType t) { return t == kU8 || t == kU16 || t == kU32 || t == kU64; }
// The quotient, with tenon's rules for division by 0 and overflow.
inline int64_t divide(DType t, int64_t a, int64_t b) {
  if (b == 0) return -1;
  if (is_unsigned(t))
    return static_cast<int64_t>(static_cast<uint64_t>(a) / static_cast<uint64_t>(b));
  return b == -1 ? static_cast<int64_t>(0 - static_cast<uint64_t>(a)) : a / b;
}

}  // namespace tenon::core::onnx
