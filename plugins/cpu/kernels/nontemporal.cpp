// SPDX-License-Identifier: Apache-2.0
// Decides which results bypass the caches, and writes them with non-temporal stores.
#include "nontemporal.hpp"

#include <algorithm>
#include <cstring>
#include <fstream>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/nontemporal.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// after foreach_target
#include <hwy/cache_control.h>

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kLine = 64;

// Bytes of [to, to + bytes) before the first whole cache line. A partly written line costs more
// with non-temporal stores than with ordinary ones.
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

namespace {

// Size of the last-level cache as the system reports it; 0 if unknown.
int64_t last_cache_bytes() {
  std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index3/size");
  int64_t size = 0;
  char unit = 0;
  if (!(file >> size >> unit) || size < 0 || size > int64_t{1} << 32) return 0;
  return unit == 'K' ? size << 10 : unit == 'M' ? size << 20 : 0;
}

int64_t cache_capacity() {
  // On processors where many cores share the last-level cache, such as Intel's servers, a core can
  // count on its share only.
  constexpr int64_t kShared = 24 << 20;
#if defined(__x86_64__)
  // On AMD, few cores share it. Measured on Zen 5 with 32 MiB, time of ordinary stores over
  // non-temporal ones, by bytes read and written: 32 MiB 0.7, 48 MiB 1.0, 64 MiB and more 1.1 to
  // 1.3.
  __builtin_cpu_init();
  if (__builtin_cpu_is("amd")) return std::max(kShared, last_cache_bytes() / 5 * 7);
#endif
  return kShared;
}

}  // namespace

HWY_EXPORT(bytes_target);
HWY_EXPORT(zeros_target);

bool beyond_cache(int64_t bytes) {
  static const int64_t capacity = cache_capacity();
  return bytes >= capacity;
}

void nontemporal_copy(const void* from, void* to, int64_t bytes) {
  HWY_DYNAMIC_DISPATCH(bytes_target)(from, to, bytes);
}
void nontemporal_zero(void* to, int64_t bytes) { HWY_DYNAMIC_DISPATCH(zeros_target)(to, bytes); }
void nontemporal_fence() { hwy::FlushStream(); }

}  // namespace tenon::cpu
#endif
