// SPDX-License-Identifier: Apache-2.0
// How indices in data are read: negative ones count from the end; `oob` says what happens outside
// of the axis.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "../parallel.hpp"
#include "tenon/kernel.hpp"

namespace tenon::cpu {

enum class Oob { error, clamp, skip };

inline Oob parse_oob(std::string_view text) {
  if (text == "error") return Oob::error;
  if (text == "clamp") return Oob::clamp;
  if (text == "skip") return Oob::skip;
  throw sdk::Refusal::attribute("oob", text);
}

struct IndexAxis {
  int axis = 0;
  int64_t length = 0;
  Oob oob = Oob::error;

  // The position of index i, or -1 if it is skipped. With `error`, call check() first.
  int64_t resolve(int64_t i) const {
    const int64_t at = i < 0 ? i + length : i;
    if (static_cast<uint64_t>(at) < static_cast<uint64_t>(length)) return at;
    return oob == Oob::clamp ? (i < 0 ? 0 : length - 1) : -1;
  }

  // Throws Failure before anything is written if one of `count` indices is out of range; names the
  // first one.
  template <class X>
  void check(const X* indices, int64_t count) const {
    if (oob == Oob::skip || count == 0 || (oob == Oob::clamp && length > 0)) return;
    std::atomic<int64_t> first{count};
    parallel_for(count, grain_for(sizeof(X)), [&](int64_t begin, int64_t end) {
      if (begin >= first.load(std::memory_order_relaxed)) return;
      for (int64_t k = begin; k < end; ++k) {
        const int64_t i = indices[k];
        if (i >= -length && i < length) continue;
        int64_t seen = first.load();
        while (k < seen && !first.compare_exchange_weak(seen, k)) {
        }
        return;
      }
    });
    if (const int64_t bad = first.load(); bad < count)
      throw sdk::Failure(TENON_INDEX_OUT_OF_RANGE,
                         "operand indices: index " + std::to_string(indices[bad]) +
                             " at position " + std::to_string(bad) + " is outside axis " +
                             std::to_string(axis) + " of length " + std::to_string(length),
                         bad);
  }
};

// Calls f with the indices in their own dtype, i32 or i64.
template <class F>
void with_indices(tenon_dtype dtype, const void* indices, F&& f) {
  if (dtype == TENON_DTYPE_I32) return f(static_cast<const int32_t*>(indices));
  return f(static_cast<const int64_t*>(indices));
}

}  // namespace tenon::cpu
