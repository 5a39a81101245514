// SPDX-License-Identifier: Apache-2.0
// What all attention kernels share: which keys a query row may attend to, scores, and how rows get to shared
// memory. The query rows of all heads of a group read the same keys, so they form one list: row r is step
// r / group of head r % group of the group.
// Defines: TT (dtype), TS (dtype of sums); MASK (0 none, 1 bool, 2 numbers to add); SOFTCAP, KV_LEN and PAST_LEN
// (their dtypes) if the node has them; BLOCK_TABLE (its dtype) if keys and values are in blocks of a pool; SPLIT (1: a
// block takes a range of the keys and leaves partial sums; 2: it takes tiles of kSplitStep keys, `splits` apart).
//variant: TT=bf16 TS=f32 MASK=0
#pragma once
#include "tile.cuh"

typedef TT T;
typedef TS S;
#ifndef SPLIT
#define SPLIT 0
#endif

typedef AttentionStrides Strides;

struct RowPlace {
  i32 head, step;
};
struct Head {  // batch and key head
  i32 batch, k_head;
  __device__ Head(i32 batch, i32 k_head) : batch(batch), k_head(k_head) {}
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

// ---- Which keys

constexpr i64 kFar = (i64)1 << 60;
// The keys that a query step may attend to, apart from masks.
struct Limits {
  i32 first, last;
};
__device__ inline i64 valid_keys(const Attention& p, [[maybe_unused]] i32 batch) {
#ifdef KV_LEN
  const i64 keys = ((const KV_LEN*)p.kv_len)[batch];
  return keys < 0 ? 0 : keys < p.k_len ? keys : p.k_len;
#else
  return p.k_len;
#endif
}
__device__ inline Limits wide_limits(const Attention& p, i32 batch, i32 step) {
  const i64 keys = valid_keys(p, batch);
  i64 offset = p.offset;
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
// The keys that any of rows [begin, end) may attend to: both limits ascend with the steps.
__device__ inline Limits limits_of_rows(const Attention& p, const Head& h, i32 begin, i32 end) {
  return {wide_limits(p, h.batch, begin / p.group).first,
          wide_limits(p, h.batch, (end - 1) / p.group).last};
}

// ---- Keys in blocks

#ifdef BLOCK_TABLE
__device__ inline i64 block_number(const Attention& p, i64 at) {
  return ((const BLOCK_TABLE*)p.block_table)[at];
}
// How many steps of the pool a key is behind the first one of its head; -1 if its block is not in the pool.
__device__ inline i32 line_of(const Attention& p, i32 batch, i32 key) {
  const i32 block = (i32)p.by_block.quotient((u32)key);
  const i64 number = block_number(p, (i64)batch * p.blocks + block);
  if ((u64)number >= (u64)p.pool) return -1;
  return (i32)number * p.block_lines + (key - block * (i32)p.by_block.value);
}
// Reports numbers that are not in the pool, also those of keys that no query attends to.
__device__ inline void check_blocks(const Attention& p, i32 batch) {
  const i64 keys = valid_keys(p, batch), first = (i64)batch * p.blocks;
  for (i32 i = threadIdx.x; (i64)i * p.by_block.value < keys; i += blockDim.x)
    if ((u64)block_number(p, first + i) >= (u64)p.pool)
      report(p.sink, kIndexOutOfRange, (u64)(first + i));
}
#endif
// Key 0 of a head, or line 0 of a pool.
template <class E = T>
__device__ inline const E* first_key(const Head& head, const void* base, const Strides& strides) {
#ifdef BLOCK_TABLE
  return (const E*)base + at(strides, 0, head.k_head, 0);
#else
  return (const E*)base + at(strides, head.batch, head.k_head, 0);
#endif
}

// What a block works on: query rows [r0, end) of one head, and the keys that any of them may attend to (with
// SPLIT, its part of them). Blocks of late rows start first: with a causal mask these have the most keys.
struct QueryTile {
  i32 index, split, r0, end;
  Head head;
  Limits keys;
  __device__ QueryTile(const Attention& p, i32 rows_of_tile) : head(p, 0) {
    const i32 rows = p.q_len * p.group, tiles = (rows + rows_of_tile - 1) / rows_of_tile;
    const i32 rest = (i32)blockIdx.x / tiles;
    r0 = (tiles - 1 - (i32)blockIdx.x % tiles) * rows_of_tile;
    end = min(r0 + rows_of_tile, rows);
    split = SPLIT ? rest % p.splits : 0;
    index = SPLIT ? rest / p.splits : rest;
    head = Head(p, index);
    keys = limits_of_rows(p, head, r0, end);
    if (SPLIT == 2) keys.first = keys.first / kSplitStep * kSplitStep;
    if (SPLIT == 1) {
      // A tile of keys that a window lets begin anywhere would reach into the next split. Tiles have kSplitStep keys,
      // or a part of it.
      keys.first = max(keys.first / kSplitStep * kSplitStep, split * p.split_keys);
      keys.last = min(keys.last, (split + 1) * p.split_keys);
    }
#ifdef BLOCK_TABLE
    if (r0 == 0 && split == 0 && head.k_head == 0) check_blocks(p, head.batch);
#endif
  }
};

__device__ inline f32 infinity(f32) { return __int_as_float(0x7F800000); }
__device__ inline f64 infinity(f64) { return __longlong_as_double(0x7FF0000000000000ll); }

// ---- Scores

// The score of an allowed key from its product q·k: what the softmax is over. `capped` is the score before the
// mask.
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

// ---- Rows to shared memory

// Addresses of the rows of a tile, nullptr for a row that does not exist: query rows from r0 on, of q or of a
// tensor with its layout; and keys (or values) from `key` on.
struct QueryPlaces {
  const Attention& p;
  const Head& head;
  const void* base;
  const Strides& strides;
  i32 r0, end;
  __device__ const T* operator()(int row) const {
    const RowPlace r = head.row(p, r0 + row);
    return r0 + row < end ? (const T*)base + at(strides, head.batch, r.head, r.step) : nullptr;
  }
};
struct KeyPlaces {
  const T* from;
  i64 step;
  i32 count;
  __device__ KeyPlaces(const Head& head, const void* base, const Strides& strides, i32 key, i32 end)
      : from((const T*)base + at(strides, head.batch, head.k_head, key)),
        step(strides.step),
        count(end - key) {}
  __device__ const T* operator()(int row) const { return row < count ? from + row * step : nullptr; }
};

#ifdef BLOCK_TABLE
// The same of keys in blocks: each key is looked up in the table when it is asked for.
struct BlockPlaces {
  const Attention& p;
  const T* base;
  i64 step;
  i32 batch, key, end;
  __device__ const T* operator()(int row) const {
    const i32 line = key + row < end ? line_of(p, batch, key + row) : -1;
    return line < 0 ? nullptr : base + line * step;
  }
};
// The same of a tile of 64 keys that were looked up before: lane i of a warp has keys i and 32 + i. All lanes of a warp
// ask together.
struct FoundPlaces {
  const T* base;
  i64 step;
  i32 lower, upper;
  __device__ __forceinline__ const T* operator()(int row) const {
    const i32 line = __shfl_sync(~0u, row < 32 ? lower : upper, row % 32);
    return line < 0 ? nullptr : base + line * step;
  }
};
#endif
__device__ inline auto key_places(const Attention& p, const Head& head, const void* base, const Strides& strides,
                                  i32 key, i32 end) {
#ifdef BLOCK_TABLE
  return BlockPlaces{p, first_key(head, base, strides), strides.step, head.batch, key, end};
#else
  return KeyPlaces(head, base, strides, key, end);
#endif
}
// A tile of 64 keys from `key` on, whose places a warp finds before it needs them.
struct KeyTile {
#ifdef BLOCK_TABLE
  i32 line[2];
  __device__ KeyTile(const Attention& p, const Head& head, i32 key, i32 end) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const i32 mine = key + h * 32 + (i32)threadIdx.x % 32;
      line[h] = mine < end ? line_of(p, head.batch, mine) : -1;
    }
  }
  __device__ auto places(const Head& head, const void* base, const Strides& strides) const {
    return FoundPlaces{first_key(head, base, strides), strides.step, line[0], line[1]};
  }
#else
  i32 key, end;
  __device__ KeyTile(const Attention&, const Head&, i32 key, i32 end) : key(key), end(end) {}
  __device__ auto places(const Head& head, const void* base, const Strides& strides) const {
    return KeyPlaces(head, base, strides, key, end);
  }
#endif
};

// `rows` rows of COLS halves into shared memory, STRIDE apart; zeros for rows that do not exist and from column
// `cols` on. anywhere: a valid address, named by copies that read nothing.
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

// The same, converted to the dtype of sums. VEC (T is f32): 16 bytes at a time, by asynchronous copies where the
// device has them.
template <int COLS, int STRIDE, bool VEC, int THREADS, class PlaceOf>
__device__ __forceinline__ void load_tile(S* to, const void* anywhere, int rows, int cols,
                                          PlaceOf place_of) {
  constexpr int kStep = VEC ? 4 : 1, kPerRow = COLS / kStep;
#pragma unroll 4
  for (int c = threadIdx.x; c < rows * kPerRow; c += THREADS) {
    const int row = c / kPerRow, col = c % kPerRow * kStep;
    const T* from = place_of(row);
    S* target = to + row * STRIDE + col;
    const bool valid = from && col < cols;
#if __CUDA_ARCH__ >= 800
    if constexpr (VEC) {
      copy_async(target, valid ? (const void*)(from + col) : anywhere, valid);
      continue;
    }
#endif
#pragma unroll
    for (int e = 0; e < kStep; ++e) target[e] = valid ? (S)widen(from[col + e]) : S(0);
  }
}
// Until all threads' copies have arrived.
__device__ __forceinline__ void await_tile() {
#if __CUDA_ARCH__ >= 800
  copy_commit();
  copy_wait<0>();
#endif
  __syncthreads();
}

// ---- Weights as halves

constexpr f32 kLog2E = 1.4426950408889634f;
// Within 2 units in the last place; results below the normal numbers become 0.
__device__ inline f32 exp2_of(f32 x) {
  f32 y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

#if __CUDA_ARCH__ >= 800
// Two numbers as two halves, the first in the low bits.
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
// The numbers of two halves.
__device__ inline f32 first_of(u32 packed, f16) { return f16_to_f32((u16)packed); }
__device__ inline f32 second_of(u32 packed, f16) { return f16_to_f32((u16)(packed >> 16)); }
__device__ inline f32 first_of(u32 packed, bf16) { return __uint_as_float(packed << 16); }
__device__ inline f32 second_of(u32 packed, bf16) { return __uint_as_float(packed & 0xFFFF0000u); }
// The rounding errors of `pack`, again as two halves.
template <class E = T>
__device__ inline u32 pack_rest(u32 packed, f32 x, f32 y) {
  return pack<E>(x - first_of(packed, E{}), y - second_of(packed, E{}));
}
// Sums of 16 columns (as multiply_add leaves them) as a left operand of tensor cores. REST: also the rounding
// errors as a second one.
template <bool REST>
__device__ __forceinline__ void round_sixteen(const f32* s, u32 (&rounded)[4], u32 (&rest)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    rounded[i] = pack(s[i * 2], s[i * 2 + 1]);
    if (REST) rest[i] = pack_rest(rounded[i], s[i * 2], s[i * 2 + 1]);
  }
}
#endif

// Weights are rounded to the halves that tensor cores take. The rounding errors of n weights cancel: about
// 0.4 u sqrt(sum of squared weights) of the values is lost (u: the unit roundoff of the dtype), 0.4 u / sqrt(n) if the
// weights are equal and 0.7 u / sqrt(n) if the scores are normal. That is no more than the rounding of such a mean
// itself, but a mean near zero loses as much, while its own rounding is small. With fewer keys than this it is far more
// than sums in f32 may lose. Then weights are two halves: the rounded weight and the rest.
constexpr i32 kFewKeys = 512;
// Does a row of [begin, end) have fewer? The number of keys rises and then falls, so an end has the fewest.
__device__ inline bool has_few_keys(const Attention& p, const Head& h, i32 begin, i32 end) {
  const Limits a = wide_limits(p, h.batch, begin / p.group),
               b = wide_limits(p, h.batch, (end - 1) / p.group);
  return min(a.last - a.first, b.last - b.first) < kFewKeys;
}
