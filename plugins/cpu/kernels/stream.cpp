// SPDX-License-Identifier: Apache-2.0
#include "stream.hpp"

#include <algorithm>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/stream.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// after foreach_target
#include <hwy/cache_control.h>

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kLine = 64;

// How much of [to, to + bytes) lies before the first whole line: a line that is written in parts
// costs more than one that is not streamed.
HWY_INLINE int64_t head_of(const void* to, int64_t bytes) {
  return std::min(bytes, static_cast<int64_t>(-reinterpret_cast<uintptr_t>(to) % size_t{kLine}));
}

void bytes_target(const void* from, void* to, int64_t bytes) {
  const hn::CappedTag<uint8_t, kLine> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const uint8_t* x = static_cast<const uint8_t*>(from);
  uint8_t* y = static_cast<uint8_t*>(to);
  int64_t i = head_of(to, bytes);
  std::memcpy(y, x, static_cast<size_t>(i));
  for (; i + kLine <= bytes; i += kLine)
    for (int64_t k = 0; k < kLine; k += lanes) hn::Stream(hn::LoadU(d, x + i + k), d, y + i + k);
  std::memcpy(y + i, x + i, static_cast<size_t>(bytes - i));
}

void zeros_target(void* to, int64_t bytes) {
  const hn::CappedTag<uint8_t, kLine> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  uint8_t* y = static_cast<uint8_t*>(to);
  int64_t i = head_of(to, bytes);
  std::memset(y, 0, static_cast<size_t>(i));
  for (; i + kLine <= bytes; i += kLine)
    for (int64_t k = 0; k < kLine; k += lanes) hn::Stream(hn::Zero(d), d, y + i + k);
  std::memset(y + i, 0, static_cast<size_t>(bytes - i));
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {

HWY_EXPORT(bytes_target);
HWY_EXPORT(zeros_target);

void stream_bytes(const void* from, void* to, int64_t bytes) {
  HWY_DYNAMIC_DISPATCH(bytes_target)(from, to, bytes);
}
void stream_zeros(void* to, int64_t bytes) { HWY_DYNAMIC_DISPATCH(zeros_target)(to, bytes); }
void stream_fence() { hwy::FlushStream(); }

}  // namespace tenon::cpu
#endif
