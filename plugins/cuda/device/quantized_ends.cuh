// SPDX-License-Identifier: Apache-2.0
// What follows the sums of products of 8-bit integers: zero points, bias, and the rounding to y. Sums
// wrap, so they are u32.
// Defines: TYPE, FILTER, RESULT (dtypes of x, w and y); MMA: T is what byte_tile.cuh takes.
//variant: TYPE=u8 FILTER=i8 RESULT=u8 MMA=0
#pragma once
#include "quantized.args.cuh"

typedef TYPE X;
typedef FILTER F;
typedef RESULT Y;
typedef u32 S;
typedef QuantizedEnds Ends;
#if MMA
#include "byte_tile.cuh"
typedef BytePairs<F, X> T;
#else
typedef TYPE T;
#endif

__device__ __forceinline__ u32 x_zero_of(const Ends& e) {
  return e.x_zero ? (u32)(i32) * (const X*)e.x_zero : 0;
}
__device__ __forceinline__ u32 w_zero_of(const Ends& e, u32 channel) {
  return e.w_zero ? (u32)(i32)((const F*)e.w_zero)[channel * e.w_zero_step] : 0;
}

// Elements of x and of filters in a sum, less their zero points.
struct Operands {
  u32 x_zero, w_zero;
  __device__ Operands(const Ends& e, u32 channel)
      : x_zero(x_zero_of(e)), w_zero(w_zero_of(e, channel)) {}
  // What x has outside.
  template <int N>
  __device__ __forceinline__ Vec<X, N> outside() const {
    Vec<X, N> v;
#pragma unroll
    for (int k = 0; k < N; ++k) v.v[k] = (X)x_zero;
    return v;
  }
  __device__ __forceinline__ S x(S v) const { return v - x_zero; }
  __device__ __forceinline__ S w(S v) const { return v - w_zero; }
};

// What the zero point of x adds to a channel's sums, beside that of w, which needs the sums of x.
__device__ __forceinline__ u32 zero_terms(const Ends& e, u32 channel) {
  if (!e.w_sums || !e.x_zero) return 0;
  return x_zero_of(e) * (e.terms * w_zero_of(e, channel) - (u32)e.w_sums[channel]);
}
// What a channel's sums get: first `add`, then the multiplier.
struct ChannelEnds {
  u32 add = 0, w_zero = 0;
  f32 multiplier = 1;
  ChannelEnds() = default;
  __device__ ChannelEnds(const Ends& e, u32 channel) {
    add = zero_terms(e, channel), w_zero = w_zero_of(e, channel);
    if (e.bias) add += (u32)e.bias[channel];
    if (e.multiplier) multiplier = e.multiplier[channel * e.multiplier_step];
  }
};
// From sums to y. Where y has 8 bits, its zero point is added behind the clamp, whose ends are less by
// it: whole numbers too, so rounding may follow. Adding 1.5·2^23 rounds to the even number, which are
// the last bits then. That spares two conversions, of which a processor does few at a time.
struct ResultEnds {
  static constexpr f32 kRound = 12582912;
  f32 low = 0, high = 0;
  u32 zero = 0;
  bool relu;
  __device__ explicit ResultEnds(const Ends& e) : relu(e.relu != 0) {
    if constexpr (sizeof(Y) == 1) {
      const i32 own = e.y_zero ? *(const Y*)e.y_zero : 0;
      constexpr i32 kLow = (Y)-1 < (Y)0 ? -128 : 0;
      zero = (u32)own;
      low = relu ? 0 : (f32)(kLow - own), high = (f32)(kLow + 255 - own);
    }
  }
  __device__ __forceinline__ Y operator()(u32 sum, const ChannelEnds& c) const {
    const i32 s = (i32)(sum + c.add);
    if constexpr (sizeof(Y) == 1) {
      const f32 y = fminf(fmaxf(__fmul_rn((f32)s, c.multiplier), low), high);
      return (Y)(__float_as_uint(__fadd_rn(y, kRound)) + zero);
    } else {
      return relu ? max(s, 0) : s;
    }
  }
};

// W sums of one channel, for the elements of y from `at` on, a multiple of W.
template <int W>
__device__ __forceinline__ void finish(const Ends& ends, const ResultEnds& result,
                                       const ChannelEnds& c, const S (&sums)[W], i64 at) {
  Vec<Y, W> y;
#pragma unroll
  for (int k = 0; k < W; ++k) y.v[k] = result(sums[k], c);
  store((Y*)ends.y + at, y);
}
template <int W>
__device__ __forceinline__ void finish(const Ends& ends, const S (&sums)[W], i64 at, u32 channel) {
  finish<W>(ends, ResultEnds(ends), ChannelEnds(ends, channel), sums, at);
}
