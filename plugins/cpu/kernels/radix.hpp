// SPDX-License-Identifier: Apache-2.0
// A stable radix sort of entries that contain their key, for sort, topk and the scatters.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

namespace tenon::cpu {

namespace detail {

inline constexpr int kMaxDigits = 8;

// One pass: copies the entries of `from` to `to`, ordered by the digit. `start` holds the first
// position of each digit.
template <class Entry, class Key>
void radix_pass(const Entry* from, Entry* to, int64_t n, int shift, uint64_t mask, int64_t* start,
                Key key) {
  for (int64_t i = 0; i < n; ++i) to[start[key(from[i]) >> shift & mask]++] = from[i];
}

template <int digit_bits, class Entry, class Key>
Entry* radix_sort(Entry* a, Entry* b, int64_t n, int bits, Key key) {
  constexpr uint64_t kMask = (uint64_t{1} << digit_bits) - 1;
  const int digits = (bits + digit_bits - 1) / digit_bits;
  int64_t counts[kMaxDigits][kMask + 1];
  std::memset(counts, 0, sizeof(counts[0]) * digits);
  for (int64_t i = 0; i < n; ++i) {
    uint64_t k = key(a[i]);
    for (int d = 0; d < digits; ++d, k >>= digit_bits) ++counts[d][k & kMask];
  }
  for (int d = 0; d < digits; ++d) {
    const int shift = d * digit_bits;
    int64_t* count = counts[d];
    if (count[key(a[0]) >> shift & kMask] == n) continue;  // all keys share this digit
    int64_t place = 0;
    for (uint64_t i = 0; i <= kMask; ++i) place += std::exchange(count[i], place);
    radix_pass(a, b, n, shift, kMask, count, key);
    std::swap(a, b);
  }
  return a;
}

}  // namespace detail

// Sorts a[0, n) by the low `bits` bits of key(entry), ascending and stable. b has the size of a.
// Returns a or b, whichever holds the result.
template <class Entry, class Key>
Entry* radix_sort(Entry* a, Entry* b, int64_t n, int bits, Key key) {
  if (n <= 1) return a;
  if (n <= 48) {  // insertion sort; binary search does not pay
    for (int64_t i = 1; i < n; ++i) {
      const Entry e = a[i];
      int64_t at = i;
      for (; at > 0 && key(e) < key(a[at - 1]); --at) a[at] = a[at - 1];
      a[at] = e;
    }
    return a;
  }
  return n < (1 << 14) ? detail::radix_sort<8>(a, b, n, bits, key)
                       : detail::radix_sort<11>(a, b, n, bits, key);
}

}  // namespace tenon::cpu
