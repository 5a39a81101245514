// SPDX-License-Identifier: Apache-2.0
// What the kernels of losses share.
#pragma once
#include "rows.cuh"

template <class A, class W>
__device__ inline A weight_of(const W* weight, i64 c) {
  return weight ? (A)widen(weight[c]) : 1;
}
// e^(x - lse) has a part of |lse| times its rounding. A larger one than this is not used: the kernel
// sums again.
template <class A>
__device__ inline bool trusted(A lse) {
  return fabs(lse) <= 16;
}
__device__ inline bool is_class(i64 label, const LossShape& s) { return label >= 0 && label < s.n; }
// The label of an item: -1 when ignored or out of range, which the one that tells reports.
__device__ inline i64 label_of(i64 label, i64 line, const LossShape& s, const ErrorSink& sink,
                               bool tell) {
  if (label == s.ignore) return -1;
  if (is_class(label, s)) return label;
  if (tell) report(sink, kIndexOutOfRange, line);
  return -1;
}
// Of a line with +inf: the log of the sum is +inf, and so is the loss of every other
// label that is not smoothed.
template <class A>
__device__ inline ExpSum<A> infinite_or(ExpSum<A> sum) {
  if (sum.most == infinity<A>()) sum.scale = 1;
  return sum;
}
