// SPDX-License-Identifier: Apache-2.0
// What the kernels of attention share. The query rows of all heads of a group, which read the same
// keys, lie in one list: row r is step r / group of head r % group of the group.
// Defines: TT (dtype), TS (of sums); MASK (0 none, 1 bool, 2 numbers), SOFTCAP, KV_LEN and PAST_LEN
// (dtypes) where they are there.
//variant: TT=bf16 TS=f32 MASK=0
#pragma once
#include "tile.cuh"

typedef TT T;
typedef TS S;

typedef AttentionStrides Strides;

struct RowPlace {
  i32 head, step;
};
struct Head {  // the block's batch and key head
  i32 batch, k_head;
  __device__ Head(const Attention& p, i32 index) : batch(index / p.k_heads), k_head(index % p.k_heads) {}
  __device__ RowPlace row(const Attention& p, i32 r) const {
    return {k_head * p.group + r % p.group, r / p.group};
  }
};
__device__ inline i64 at(const Strides& s, i32 batch, i32 head, i32 step) {
  return batch * s.batch + head * s.head + step * s.step;
}
__device__ inline i64 row_index(const Attention& p, const Head& h, const RowPlace& r) {
  return ((i64)h.batch * p.k_heads * p.group + r.head) * p.q_len + r.step;
}

constexpr i64 kFar = (i64)1 << 60;
// The keys that a query step may attend to, masks aside.
struct Limits {
  i32 first, last;
};
__device__ inline Limits wide_limits(const Attention& p, i32 batch, i32 step) {
  i64 keys = p.k_len, offset = p.offset;
#ifdef KV_LEN
  keys = ((const KV_LEN*)p.kv_len)[batch];
  keys = keys < 0 ? 0 : keys < p.k_len ? keys : p.k_len;
#endif
#ifdef PAST_LEN
  offset = ((const PAST_LEN*)p.past_len)[batch];
#endif
  offset = offset < -kFar ? -kFar : offset > kFar ? kFar : offset;
  const i64 here = step + offset;
  i64 low = 0, high = keys;
  if (p.causal && here + 1 < high) high = here + 1;
  if (p.right >= 0 && here + p.right + 1 < high) high = here + p.right + 1;
  if (p.left >= 0 && here - p.left > low) low = here - p.left;
  return {(i32)(low < p.k_len ? low : p.k_len), (i32)(high > 0 ? high : 0)};
}
__device__ inline Limits limits_of(const Attention& p, i32 batch, i32 step) {
  const Limits l = wide_limits(p, batch, step);
  return l.first < l.last ? l : Limits{0, 0};
}
// What holds those of rows [begin, end): both limits ascend with the steps.
__device__ inline Limits limits_of_rows(const Attention& p, const Head& h, i32 begin, i32 end) {
  return {wide_limits(p, h.batch, begin / p.group).first,
          wide_limits(p, h.batch, (end - 1) / p.group).last};
}

__device__ inline f32 infinity(f32) { return __int_as_float(0x7F800000); }
__device__ inline f64 infinity(f64) { return __longlong_as_double(0x7FF0000000000000ll); }

// The score of an allowed key: from a product to what the softmax is over. `capped` is the score
// before the mask.
__device__ inline S score(const Attention& p, S x, const T* mask_row, i32 key, S& capped) {
  S s = x * (S)p.scale;
#ifdef SOFTCAP
  s = (S)p.softcap * tanh(s / (S)p.softcap);
#endif
  capped = s;
#if MASK == 1
  if (!((const u8*)mask_row)[key * p.mask_strides[3]]) s = -infinity(S(0));
#elif MASK == 2
  s += widen(mask_row[key * p.mask_strides[3]]);
#endif
  return s;
}
__device__ inline const T* mask_row_of(const Attention& p, const Head& h, const RowPlace& r) {
#if MASK
  const i64 to = h.batch * p.mask_strides[0] + r.head * p.mask_strides[1] + r.step * p.mask_strides[2];
  return MASK == 1 ? (const T*)((const u8*)p.mask + to) : (const T*)p.mask + to;
#else
  return nullptr;
#endif
}

// `rows` rows of COLS elements into shared memory, STRIDE apart; zeros where place_of gives nullptr
// and from column `cols` on. anywhere: an address that may be named where nothing is read.
template <int COLS, int STRIDE, bool VEC, int THREADS, class PlaceOf>
__device__ __forceinline__ void load_rows(T* to, const void* anywhere, int rows, int cols,
                                          PlaceOf place_of) {
#if __CUDA_ARCH__ >= 800
  for (int c = threadIdx.x; c < rows * (COLS / 8); c += THREADS) {
    const int row = c / (COLS / 8), col = c % (COLS / 8) * 8;
    const T* from = place_of(row);
    T* target = to + row * STRIDE + col;
    const bool valid = from && col < cols;
    if (VEC) {
      copy_async(target, valid ? from + col : (const T*)anywhere, valid);
    } else {
      Vec<T, 8> v;
#pragma unroll
      for (int e = 0; e < 8; ++e) v.v[e] = valid && col + e < cols ? from[col + e] : T{0};
      store(target, v);
    }
  }
#endif
}
constexpr f32 kLog2E = 1.4426950408889634f;
// Within 2 units of the last place; 0 where the result is no normal number.
__device__ inline f32 exp2_of(f32 x) {
  f32 y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Two numbers as two halves, the first below.
#if __CUDA_ARCH__ >= 800
__device__ inline u32 pack_as(f32 x, f32 y, f16) {
  u32 both;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(y), "f"(x));
  return both;
}
__device__ inline u32 pack_as(f32 x, f32 y, bf16) {
  u32 both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(y), "f"(x));
  return both;
}
template <class E = T>
__device__ inline u32 pack(f32 x, f32 y) {
  return pack_as(x, y, E{});
}
// What `pack` lost, again as two halves.
template <class E = T>
__device__ inline u32 pack_rest(u32 packed, f32 x, f32 y) {
  return pack<E>(x - widen(E{(u16)packed}), y - widen(E{(u16)(packed >> 16)}));
}
#endif

// Weights are rounded to the halves that the tensor cores take. Of n weights alike these roundings
// cancel: about 0.4 u / sqrt(n) of the values is lost, u being the dtype's unit roundoff, no more
// than the rounding of such a mean itself. With few keys more is lost than f32 sums may lose: there
// the weights come in two parts, the rounded and the rest.
template <class E>
struct FewKeys {
  static constexpr i32 kValue = 512;
};
template <>
struct FewKeys<f16> {
  static constexpr i32 kValue = 256;
};
// Has one of rows [begin, end) fewer? The number of keys rises and falls, so an end has the fewest.
__device__ inline bool is_fine(const Attention& p, const Head& h, i32 begin, i32 end) {
  const Limits a = wide_limits(p, h.batch, begin / p.group),
               b = wide_limits(p, h.batch, (end - 1) / p.group);
  return min(a.last - a.first, b.last - b.first) < FewKeys<T>::kValue;
}
