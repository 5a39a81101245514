// SPDX-License-Identifier: Apache-2.0
// What a target says of itself: must() ends the process with a word where a promise is broken;
// read() touches every byte, so that a sanitizer sees what is out of bounds.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace tenon::fuzz {

inline void must(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

inline volatile uint64_t seen;  // keeps the reads from being optimized away

inline void read(const void* bytes, uint64_t size) {
  uint64_t sum = 0;
  for (uint64_t i = 0; i < size; ++i) sum += static_cast<const unsigned char*>(bytes)[i];
  seen = sum;
}

}  // namespace tenon::fuzz
