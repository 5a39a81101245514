//variant: OOB=0
// SPDX-License-Identifier: Apache-2.0
// How indices that live in data are read: negatives from the end, and what becomes of one outside
// its axis (OOB 0 error, 1 clamp, 2 skip).
#pragma once
#include "common.cuh"

__device__ inline i64 index_at(const IndexAxis& a, i64 k) {
  return a.wide ? static_cast<const i64*>(a.indices)[k]
                : (i64) static_cast<const i32*>(a.indices)[k];
}
// The place of index k, or -1 when it has none; then with OOB 0 that is reported.
__device__ inline i64 resolve(const IndexAxis& a, i64 k, bool tell) {
  const i64 i = index_at(a, k), at = i < 0 ? i + a.length : i;
  if ((u64)at < (u64)a.length) return at;
  if (OOB == 1 && a.length > 0) return i < 0 ? 0 : a.length - 1;
  if (OOB != 2 && tell) report(a.sink, kIndexOutOfRange, (u64)k);
  return -1;
}
