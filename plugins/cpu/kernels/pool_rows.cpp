// SPDX-License-Identifier: Apache-2.0
// The forward pools: each row of windows is reduced down the image, then across.
#include "../parallel.hpp"
#include "norm.hpp"
#include "pool.hpp"

namespace tenon::cpu {

PoolRows::PoolRows(const PoolWindows& windows, tenon_dtype dtype, PoolKind kind,
                   std::vector<double> divide_rows, std::vector<double> divide_columns)
    : windows_(windows),
      dtype_(dtype),
      kind_(kind),
      divide_rows_(std::move(divide_rows)),
      divide_columns_(std::move(divide_columns)) {
  const PoolLine& w = windows.w;
  phase_ = w.phase();
  offsets_ = w.tap_offsets();
  const int64_t numbers = w.stride * phase_ + w.size + w.count;
  slots_ = make_slots(windows.planes * windows.h.count, numbers * bytes_of(acc_dtype(dtype)),
                      (windows.h.kernel + 2) * w.size * bytes_of(dtype));
}

void PoolRows::run(const void* x, void* y, void* scratch) const {
  slots_.run(scratch, [&](int64_t begin, int64_t end, void* area) {
    const char* from = static_cast<const char*>(x);
    char* to = static_cast<char*>(y);
    if (dtype_ == TENON_DTYPE_F64)
      return run_rows(from, to, begin, end, static_cast<double*>(area));
    run_rows(from, to, begin, end, static_cast<float*>(area));
  });
}

// area: the spread columns, the columns as they come, the divisors.
template <class A>
void PoolRows::run_rows(const char* x, char* y, int64_t begin, int64_t end, A* area) const {
  const PoolLine &h = windows_.h, &w = windows_.w;
  const int64_t size = bytes_of(dtype_);
  A* columns = area + w.stride * phase_;
  A* divisors = columns + w.size;
  const A nothing = kind_ == PoolKind::max ? -std::numeric_limits<A>::infinity() : A{0};
  std::fill(area, columns, nothing);
  std::copy(divide_columns_.begin(), divide_columns_.end(), divisors);
  for (int64_t row = begin; row < end; ++row) {
    const int64_t plane = row / h.count, o = row - plane * h.count;
    const PoolLine::Range taps = h.taps(o);
    const int64_t top = plane * h.size + h.first(o) + taps.begin * h.dilation;
    A* to = w.stride == 1 ? area + w.before : columns;
    pool_down(dtype_, kind_, x + (taps.count() > 0 ? top * w.size * size : 0), h.dilation * w.size,
              taps.count(), w.size, to);
    if (w.stride != 1) pool_spread(acc_dtype(dtype_), w.spread(), columns, area);
    const double divisor = divide_rows_.empty() ? 1 : divide_rows_[static_cast<size_t>(o)];
    pool_across(dtype_, kind_, area, offsets_.data(), w.kernel, w.count, divisor, divisors,
                y + row * w.count * size);
  }
}

}  // namespace tenon::cpu
