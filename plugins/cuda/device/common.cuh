// SPDX-License-Identifier: Apache-2.0
// What every kernel text may need besides dtypes: bad data, division by a number that the host knows.
#pragma once
#include "types.cuh"

// Where a kernel reports bad data: the host's error_sink(call). The smallest value stays.
struct ErrorSink {
  u64* word;
  u64 step;
};
constexpr u32 kIndexOutOfRange = 5, kNumericError = 6;  // TENON_*
__device__ inline void report(const ErrorSink& sink, u32 code, u64 index) {
  atomicMin(sink.word, sink.step << 44 | (u64)code << 40 | index);
}

// Division of numbers below 2^31 by one of 1 to 2^31 - 1: made by the host's Divisor.
struct Divisor {
  u32 value, multiplier, shift;
  __device__ u32 quotient(u32 n) const { return (__umulhi(n, multiplier) + n) >> shift; }
};
