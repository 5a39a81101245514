// SPDX-License-Identifier: Apache-2.0
// How many elements one access may move: at most 16 bytes, as operands are aligned.
#pragma once

#include <initializer_list>

#include "tenon/kernel.hpp"

namespace tenon::cuda {

// For values whose runs of `length` elements of `size` bytes are dense and begin where the value
// does, or whole runs later. Outputs lie on the device's alignment.
inline int common_width(int64_t size, int64_t length, std::initializer_list<sdk::Value> values) {
  int64_t width = size < 16 ? 16 / size : 1;
  const auto fits = [&](const sdk::Value& v) {
    const auto bytes = static_cast<uint64_t>(size * width);
    return v.alignment() == 0 ? width == 1 : v.alignment() % bytes == 0;
  };
  while (width > 1 && length % width != 0) width /= 2;
  for (const sdk::Value& v : values)
    while (width > 1 && !fits(v)) width /= 2;
  return static_cast<int>(width);
}

}  // namespace tenon::cuda
