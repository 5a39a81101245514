// SPDX-License-Identifier: Apache-2.0
// Results too large to be in a cache when they are read next: written past the caches, so that
// their lines are not read first and push nothing else out.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>

namespace tenon::cpu {

// Is this more than the last cache keeps from one run to the next: a result and the operands that
// it is made of, in bytes? What stays there is read and written several times as fast as memory.
bool beyond_cache(int64_t bytes);

// Is a result of so many bytes, made of operands of about its size (null: absent), streamed? Not
// where it lies over one of them: its lines are in the cache by then.
inline bool streams(const void* to, int64_t bytes, std::initializer_list<const void*> operands) {
  int64_t all = bytes;
  for (const void* from : operands) {
    if (from == to) return false;
    if (from != nullptr) all += bytes;
  }
  return beyond_cache(all);
}

// A row up to this long is put together in a buffer on the stack, then streamed.
inline constexpr int64_t kStreamRow = 16 << 10;  // bytes

// memcpy and memset 0 past the caches. What is copied should lie in the first-level cache.
void stream_bytes(const void* from, void* to, int64_t bytes);
void stream_zeros(void* to, int64_t bytes);
// In the thread that streamed, before another one may look.
void stream_fence();

// Calls f(begin, count, to) for [0, n) of a result at y: all of it in place, or, streamed, part by
// part. The caller fences.
template <class T, class F>
void stream_parts(bool stream, int64_t n, T* y, F&& f) {
  if (!stream) return f(int64_t{0}, n, y);
  constexpr int64_t kPart = 8192 / sizeof(T);
  alignas(64) char buffer[kPart * sizeof(T)];
  T* const part = reinterpret_cast<T*>(buffer);
  for (int64_t i = 0; i < n; i += kPart) {
    const int64_t count = std::min(kPart, n - i);
    f(i, count, part);
    stream_bytes(part, y + i, count * static_cast<int64_t>(sizeof(T)));
  }
}

// The place of one row of a result: itself, or a buffer from which `done` streams it.
template <class T>
class StreamRow {
 public:
  StreamRow(bool stream, int64_t n)
      : stream_(stream && n * static_cast<int64_t>(sizeof(T)) <= kStreamRow), n_(n) {}
  ~StreamRow() {
    if (stream_) stream_fence();
  }
  StreamRow(const StreamRow&) = delete;
  StreamRow& operator=(const StreamRow&) = delete;

  bool streamed() const { return stream_; }
  T* at(T* row) { return stream_ ? reinterpret_cast<T*>(buffer_) : row; }
  void done(T* row) const {
    if (stream_) stream_bytes(buffer_, row, n_ * static_cast<int64_t>(sizeof(T)));
  }

 private:
  bool stream_;
  int64_t n_;
  alignas(64) char buffer_[kStreamRow];
};

}  // namespace tenon::cpu
