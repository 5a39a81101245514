// SPDX-License-Identifier: Apache-2.0
// The geometry of 2d pools. A row of an image is stored in spread columns: column k is at [t %
// stride][t / stride], where t = before + k. Then one tap of all windows of a row is a contiguous
// range.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace tenon::cpu {

// The windows along one axis. Window o has its taps at first(o) + k·dilation, k < kernel.
struct PoolLine {
  int64_t kernel = 1, stride = 1, before = 0, after = 0, dilation = 1;
  int64_t size = 0, count = 0;

  int64_t first(int64_t o) const { return o * stride - before; }
  // The taps [begin, end) of a window that are in [low, high).
  struct Range {
    int64_t begin, end;
    int64_t count() const { return std::max<int64_t>(end - begin, 0); }
  };
  Range within(int64_t o, int64_t low, int64_t high) const {
    const auto up_to = [&](int64_t limit) {  // taps before that position
      const int64_t room = limit - first(o);
      if (room <= 0) return int64_t{0};
      // Divisions would be most of the time of a narrow row.
      return std::min(kernel, dilation == 1 ? room : (room + dilation - 1) / dilation);
    };
    return {up_to(low), up_to(high)};
  }
  Range taps(int64_t o) const { return within(o, 0, size); }

  // Elements per phase of the spread columns, and the offset of each tap.
  int64_t phase() const {
    const int64_t reach = (kernel - 1) * dilation;
    return std::max(count + reach / stride, (size + before - 1) / stride + 1);
  }
  int64_t spread() const { return stride * phase(); }  // elements per row
  int64_t spread_at(int64_t column) const {
    const int64_t t = before + column;
    return t % stride * phase() + t / stride;
  }
  std::vector<int64_t> tap_offsets() const {
    std::vector<int64_t> offsets;
    for (int64_t k = 0; k < kernel; ++k)
      offsets.push_back(k * dilation % stride * phase() + k * dilation / stride);
    return offsets;
  }
};

struct PoolWindows {
  int64_t planes = 0;
  PoolLine h, w;
  int64_t pixels() const { return h.size * w.size; }
  int64_t windows() const { return h.count * w.count; }
};

}  // namespace tenon::cpu
