// SPDX-License-Identifier: Apache-2.0
// Non-temporal stores for results that are larger than the last-level cache. They bypass the
// caches: no line is read before it is written, and no other line is evicted.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>

namespace tenon::cpu {

// True if a working set of this size (a result and its operands) does not stay in the last-level
// cache from one run to the next. Cached data is several times as fast as memory.
bool beyond_cache(int64_t bytes);

// True if the result of `bytes` bytes at `to` should be written with non-temporal stores. The
// operands are about as large as the result; absent ones are null. False if the result overwrites
// an operand: its lines are in the cache then.
inline bool bypasses_cache(const void* to, int64_t bytes,
                           std::initializer_list<const void*> operands) {
  int64_t all = bytes;
  for (const void* from : operands) {
    if (from == to) return false;
    if (from != nullptr) all += bytes;
  }
  return beyond_cache(all);
}

// Rows up to this size are assembled in a buffer on the stack.
inline constexpr int64_t kNontemporalRow = 16 << 10;  // bytes

// memcpy, and memset to zero, with non-temporal stores. `from` should be in the first-level cache.
void nontemporal_copy(const void* from, void* to, int64_t bytes);
void nontemporal_zero(void* to, int64_t bytes);
// Makes the stores of this thread visible to others. Call it after the last store.
void nontemporal_fence();

// Computes the n elements at y. Calls f(begin, count, to): once with y itself, or part by part with
// a buffer that is copied to y by non-temporal stores. The caller fences.
template <class T, class F>
void nontemporal_parts(bool nontemporal, int64_t n, T* y, F&& f) {
  if (!nontemporal) return f(int64_t{0}, n, y);
  constexpr int64_t kPart = 8192 / sizeof(T);
  alignas(64) char buffer[kPart * sizeof(T)];
  T* const part = reinterpret_cast<T*>(buffer);
  for (int64_t i = 0; i < n; i += kPart) {
    const int64_t count = std::min(kPart, n - i);
    f(i, count, part);
    nontemporal_copy(part, y + i, count * static_cast<int64_t>(sizeof(T)));
  }
}

// The destination of one row of a result: the row itself, or a buffer that `done` copies to the row
// by non-temporal stores.
template <class T>
class NontemporalRow {
 public:
  NontemporalRow(bool nontemporal, int64_t n)
      : nontemporal_(nontemporal && n * static_cast<int64_t>(sizeof(T)) <= kNontemporalRow),
        n_(n) {}
  ~NontemporalRow() {
    if (nontemporal_) nontemporal_fence();
  }
  NontemporalRow(const NontemporalRow&) = delete;
  NontemporalRow& operator=(const NontemporalRow&) = delete;

  bool nontemporal() const { return nontemporal_; }
  T* at(T* row) { return nontemporal_ ? reinterpret_cast<T*>(buffer_) : row; }
  void done(T* row) const {
    if (nontemporal_) nontemporal_copy(buffer_, row, n_ * static_cast<int64_t>(sizeof(T)));
  }

 private:
  bool nontemporal_;
  int64_t n_;
  alignas(64) char buffer_[kNontemporalRow];
};

}  // namespace tenon::cpu
