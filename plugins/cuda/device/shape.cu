//variant: SIZE=16 RANK=1 MODE=0 NARROW=1 T=i32 NUMBER=i64 V=4
//variant: SIZE=4 RANK=4 MODE=2 NARROW=0 T=bf16 NUMBER=f64 V=8
//variant: SIZE=1 RANK=2 MODE=3 NARROW=1 T=f64 NUMBER=f64 V=2
// SPDX-License-Identifier: Apache-2.0
// pad, in units of SIZE bytes (MODE 0 constant, 1 edge, 2 reflect, 3 symmetric), and iota.
#include "common.cuh"
#include "units.cuh"

#ifdef SIZE
typedef UnitOf<SIZE>::type Unit;

// What position j of an axis reads, -1 for the constant.
__device__ inline i64 source_of(i64 j, i64 before, i64 in) {
  const i64 i = j - before;
  if (i >= 0 && i < in) return i;
  if (MODE == 0) return -1;
  if (MODE == 1) return i < 0 ? 0 : in - 1;
  if (MODE == 2) return i < 0 ? -i : 2 * (in - 1) - i;
  return i < 0 ? -i - 1 : 2 * in - 1 - i;
}

constexpr int kEach = 4;
extern "C" __global__ void __launch_bounds__(256) pad(const Unit* x, Unit* y, const Pad p) {
  const i64 first = (i64)blockIdx.x * (256 * kEach) + threadIdx.x;
#pragma unroll
  for (int k = 0; k < kEach; ++k) {
    const i64 g = first + k * 256;
    if (g >= p.count) continue;
    i64 at = 0, rest = g;
    bool inside = true;
#pragma unroll
    for (int i = RANK - 1; i >= 0; --i) {
#if NARROW
      const i64 q = i > 0 ? p.divisors[i].quotient((u32)rest) : 0;
#else
      const i64 q = i > 0 ? rest / p.out[i] : 0;
#endif
      const i64 s = source_of(rest - q * p.out[i], p.before[i], p.in[i]);
      inside &= s >= 0;
      at += s * p.strides[i];
      rest = q;
    }
    y[g] = inside ? x[at] : *reinterpret_cast<const Unit*>(p.value);
  }
}
#endif

#ifdef T
typedef IotaOf<NUMBER> Iota;
template <class To, class From>
__device__ inline To rounded(From x) {
  return (To)x;
}
template <>
__device__ inline f16 rounded<f16>(f64 x) {
  return f16{f64_to_f16(x)};
}
template <>
__device__ inline bf16 rounded<bf16>(f64 x) {
  return bf16{f64_to_bf16(x)};
}
// Integers are exact, and sums wrap. Product and sum of floats are rounded each, as everywhere.
__device__ inline u64 term(i64 start, i64 step, i64 i) { return (u64)start + (u64)step * (u64)i; }
__device__ inline f64 term(f64 start, f64 step, i64 i) {
  return __dadd_rn(start, __dmul_rn(step, (f64)i));
}
__device__ inline T iota_value(const Iota& o, i64 i) {
  return rounded<T>(term(o.start, o.step, i));
}
extern "C" __global__ void __launch_bounds__(256) iota(T* y, const Iota o) {
  const i64 first = ((i64)blockIdx.x * 256 + threadIdx.x) * V;
  if (first >= o.count) return;
  Vec<T, V> v;
  if (o.inner == 1 && o.length == o.count) {
#pragma unroll
    for (int k = 0; k < V; ++k) v.v[k] = iota_value(o, first + k);
  } else {
#pragma unroll
    for (int k = 0; k < V; ++k) v.v[k] = iota_value(o, (first + k) / o.inner % o.length);
  }
  if (first + V <= o.count) {
    store(y + first, v);
  } else {
    for (int k = 0; first + k < o.count; ++k) y[first + k] = v.v[k];
  }
}
#endif
