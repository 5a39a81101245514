// SPDX-License-Identifier: Apache-2.0
// cast to and from the 4-bit integers, two of which share a byte: the first is in its low half. A
// thread casts two elements. FROM, TO: the dtypes.
//variant: FROM=i4 TO=f32
//variant: FROM=u4 TO=bf16
//variant: FROM=bf16 TO=i4
//variant: FROM=f64 TO=u4
//variant: FROM=i64 TO=i4
//variant: FROM=b8 TO=u4
//variant: FROM=f8e4m3 TO=i4
//variant: FROM=i4 TO=f8e5m2
//variant: FROM=i4 TO=u4
#include "common.cuh"
#include "math.cuh"

struct i4 {};
struct u4 {};

template <class T>
struct Elements {
  __device__ static acc_t<T> read(const void* x, i64 i) { return widen(static_cast<const T*>(x)[i]); }
  // The elements i and, where there are two, i + 1.
  template <class From>
  __device__ static void write(void* y, i64 i, From first, From second, bool two, bool saturate) {
    T* to = static_cast<T*>(y) + i;
    to[0] = convert<T>(first, saturate);
    if (two) to[1] = convert<T>(second, saturate);
  }
};

// BYTE is the dtype that holds the same numbers in whole bytes.
template <class BYTE>
struct Nibbles {
  static constexpr bool is_signed = Traits<BYTE>::is_signed;

  __device__ static BYTE read(const void* x, i64 i) {
    const int code = static_cast<const u8*>(x)[i / 2] >> (i % 2 * 4) & 15;
    return (BYTE)(is_signed ? (code ^ 8) - 8 : code);
  }
  // Floats saturate, integers wrap.
  template <class From>
  __device__ static u32 code(From v) {
    int n = (int)convert<BYTE>(v, true);
    if (Traits<From>::floating) n = is_signed ? max(-8, min(7, n)) : min(15, n);
    return (u32)n & 15;
  }
  template <class From>
  __device__ static void write(void* y, i64 i, From first, From second, bool two, bool) {
    static_cast<u8*>(y)[i / 2] = (u8)(code(first) | (two ? code(second) << 4 : 0));
  }
};
template <>
struct Elements<i4> : Nibbles<i8> {};
template <>
struct Elements<u4> : Nibbles<u8> {};

extern "C" __global__ void __launch_bounds__(256)
    cast_nibbles(const void* x, void* y, i64 count, u32 saturate) {
  begin_early();
  const i64 i = 2 * ((i64)blockIdx.x * 256 + threadIdx.x);
  if (i >= count) return;
  const bool two = i + 1 < count;
  const auto first = Elements<FROM>::read(x, i), second = Elements<FROM>::read(x, two ? i + 1 : i);
  Elements<TO>::write(y, i, first, second, two, saturate != 0);
}
