// SPDX-License-Identifier: Apache-2.0
// Gradients of attention. `delta` computes facts about query rows (attention_sums.cu corrects them
// if lse is large); `queries` computes dq, a block takes a tile of query rows through the keys;
// `keys` computes dk and dv, a block takes a tile of keys through the rows. Each sum has one writer
// and a fixed order.
// Defines: as attention_tiles.cuh; with MMA: THROUGH (rows of a tile of the other side); else:
// ONE_BUFFER (1: both tiles of the other side use the same memory in turn, for devices with little
// shared memory).
//variant: TT=bf16 TS=f32 MASK=0 DP=128 VP=128 MMA=1 WIDE=1 SIZE=64 THROUGH=32
//variant: TT=f16 TS=f32 MASK=2 DP=64 VP=32 MMA=1 WIDE=0 SIZE=64 THROUGH=64 SOFTCAP=1 KV_LEN=i32 PAST_LEN=i64
//variant: TT=f32 TS=f32 MASK=1 DP=64 VP=64 MMA=0 WIDE=0 SIZE=64 ONE_BUFFER=0
//variant: TT=f64 TS=f64 MASK=2 DP=16 VP=32 MMA=0 WIDE=0 SIZE=16 ONE_BUFFER=1 SOFTCAP=1 KV_LEN=i64 PAST_LEN=i32
#include "attention_facts.cuh"
#include "attention_tiles.cuh"

// A warp sums one row.
extern "C" __global__ void __launch_bounds__(128) delta(const Attention p) {
  const i32 rows = p.q_len * p.group;
  const i64 index = (i64)blockIdx.x * 4 + threadIdx.x / 32;
  if (index >= (i64)p.batch * p.k_heads * rows) return;
  const Head head(p, index / rows);
  const RowPlace place = head.row(p, index % rows);
  const i64 from = at(p.o_strides, head.batch, place.head, place.step);
  S sum = 0;
  for (int d = threadIdx.x % 32; d < p.v_dim; d += 32)
    sum += (S)widen(((const T*)p.dout)[from + d]) * (S)widen(((const T*)p.o)[from + d]);
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
  if (threadIdx.x % 32 == 0)
    facts_of(p, 0)[index] =
        row_facts(((const S*)p.lse_in)[row_index(p, head, place)], sum);
}

// A query row of a tile.
struct Row {
  Limits limits;
  S shift, factor, delta;  // factor 0: it has no keys
  const T* mask;
};
// Of a row beyond the end, the limits keep the weights 0.
__device__ inline Row row_of(const Attention& p, const Head& head, i32 index, i32 r, i32 rows) {
  if (r >= rows) return {{0, 0}, S(0), S(1), S(0), nullptr};
  const RowPlace place = head.row(p, r);
  const RowFacts facts = facts_of(p, index)[r];
  return {limits_of(p, head.batch, place.step), facts.shift, facts.factor, facts.delta,
          mask_row_of(p, head, place)};
}
// The products q·k and dout·v of an element become its weight and the slope of q·k (without the
// factor of the scale).
__device__ inline void weigh(const Attention& p, const Row& row, i32 key, S& qk, S& dov) {
  S weight = 0, slope = 0;
  if (key >= row.limits.first && key < row.limits.last && row.factor != 0) {
    S capped;
    const S s = score(p, qk, row.mask, key, capped);
    weight = exp(s - row.shift) * row.factor;
    slope = slope_of(p, row.delta, weight, dov, capped);
  }
  qk = weight;
  dov = slope;
}

#if MMA && __CUDA_ARCH__ >= 800
constexpr int kThrough = THROUGH;

// c (16 x COLS) += a (16 x N, as multiply_rows leaves it) times the N rows of b.
template <int COLS, int N>
__device__ __forceinline__ void multiply_sums(f32 (&c)[COLS / 2], const f32 (&a)[N / 2],
                                              const T* b) {
#pragma unroll
  for (int j = 0; j < N / 16; ++j) {
    u32 left[4];
    round_sixteen<false>(a + j * 8, left, left);
#pragma unroll
    for (int d = 0; d < COLS; d += 16) {
      u32 right[4];
      load_right<false>(right, b, COLS + 8, d, j * 16);
      multiply_add(c + d / 2, left, right[0], right[1], T{});
      multiply_add(c + d / 2 + 4, left, right[2], right[3], T{});
    }
  }
}
// Stores the thread's part of the row h (of two) of sums, times `factor`.
template <int COLS>
__device__ __forceinline__ void store_sums(T* to, const f32 (&c)[COLS / 2], int h, int cols,
                                           f32 factor) {
#pragma unroll
  for (int j = 0; j < COLS / 8; ++j) {
    const int col = j * 8 + threadIdx.x % 4 * 2;
    if (col < cols) to[col] = narrow<T>(c[j * 4 + h * 2] * factor);
    if (col + 1 < cols) to[col + 1] = narrow<T>(c[j * 4 + h * 2 + 1] * factor);
  }
}

extern "C" __global__ void __launch_bounds__(kThreads) queries(const Attention p) {
  extern __shared__ __align__(16) u8 smem[];
  T *qs = (T*)smem, *dos = qs + 64 * kQStride, *ks = dos + 64 * kVStride,
    *vs = ks + kThrough * kQStride;
  const i32 rows = p.q_len * p.group, tiles = (rows + 63) / 64;
  const i32 r0 = (tiles - 1 - blockIdx.x % tiles) * 64;
  const Head head(p, blockIdx.x / tiles);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const Limits all = limits_of_rows(p, head, r0, min(r0 + 64, rows));
  load_query_rows<DP>(qs, 64, p, head, p.q, p.q_strides, r0, p.dim);
  load_query_rows<VP>(dos, 64, p, head, p.dout, p.o_strides, r0, p.v_dim);
  Row row[2];
#pragma unroll
  for (int h = 0; h < 2; ++h)
    row[h] = row_of(p, head, blockIdx.x / tiles, r0 + warp * 16 + h * 8 + lane / 4, rows);
  f32 dq[DP / 2] = {};
  for (i32 key = all.first; key < all.last; key += kThrough) {
    __syncthreads();
    load_key_rows<DP>(ks, kThrough, head, p.k, p.k_strides, key, all.last, p.dim);
    load_key_rows<VP>(vs, kThrough, head, p.v, p.v_strides, key, all.last, p.v_dim);
    copy_commit();
    copy_wait<0>();
    __syncthreads();
    f32 s[kThrough / 2] = {}, ds[kThrough / 2] = {};
    multiply_rows<DP, kThrough>(s, qs, warp * 16, ks);
    multiply_rows<VP, kThrough>(ds, dos, warp * 16, vs);
#pragma unroll
    for (int i = 0; i < kThrough / 2; ++i)
      weigh(p, row[i / 2 % 2], key + i / 4 * 8 + lane % 4 * 2 + i % 2, s[i], ds[i]);
    multiply_sums<DP, kThrough>(dq, ds, ks);
  }
  copy_wait<0>();
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const i32 r = r0 + warp * 16 + h * 8 + lane / 4;
    if (r >= rows) continue;
    if (row[h].factor == 0) {  // 0 times a NaN of k
#pragma unroll
      for (int i = h * 2; i < DP / 2; i += 4) dq[i] = dq[i + 1] = 0;
    }
    const RowPlace place = head.row(p, r);
    store_sums<DP>((T*)p.dq + at(p.q_strides, head.batch, place.head, place.step), dq, h, p.dim,
                   (f32)p.scale);
  }
}

extern "C" __global__ void __launch_bounds__(kThreads) keys(const Attention p) {
  extern __shared__ __align__(16) u8 smem[];
  T *ks = (T*)smem, *vs = ks + 64 * kQStride, *qs = vs + 64 * kVStride,
    *dos = qs + kThrough * kQStride;
  __shared__ Row row[kThrough];
  const i32 rows = p.q_len * p.group, tiles = (p.k_len + 63) / 64, key0 = blockIdx.x % tiles * 64;
  const Head head(p, blockIdx.x / tiles);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  // No row attends to keys beyond the limit of the last step, and these may hold anything.
  const i32 end = rows > 0 ? limits_of_rows(p, head, 0, rows).last : 0;
  load_key_rows<DP>(ks, 64, head, p.k, p.k_strides, key0, end, p.dim);
  load_key_rows<VP>(vs, 64, head, p.v, p.v_strides, key0, end, p.v_dim);
  f32 dk[DP / 2] = {}, dv[VP / 2] = {};
  for (i32 r0 = 0; r0 < rows; r0 += kThrough) {
    const Limits all = limits_of_rows(p, head, r0, min(r0 + kThrough, rows));
    if (all.first >= key0 + 64 || all.last <= key0) continue;
    __syncthreads();
    load_query_rows<DP>(qs, kThrough, p, head, p.q, p.q_strides, r0, p.dim);
    load_query_rows<VP>(dos, kThrough, p, head, p.dout, p.o_strides, r0, p.v_dim);
    copy_commit();
    if (threadIdx.x < kThrough)
      row[threadIdx.x] = row_of(p, head, blockIdx.x / tiles, r0 + threadIdx.x, rows);
    copy_wait<0>();
    // A row without keys gives nothing to dv, even if its dout is NaN. A warp clears a row.
    static_assert(VP / 8 <= 32);
    if (__syncthreads_or(threadIdx.x < kThrough && row[threadIdx.x].factor == 0)) {
#pragma unroll 1
      for (int r = warp; r < kThrough; r += kThreads / 32)
        if (lane < VP / 8 && row[r].factor == 0) store(dos + r * kVStride + lane * 8, Vec<T, 8>{});
      __syncthreads();
    }
    f32 s[kThrough / 2] = {}, ds[kThrough / 2] = {};  // keys down, rows across
    multiply_rows<DP, kThrough>(s, ks, warp * 16, qs);
    multiply_rows<VP, kThrough>(ds, vs, warp * 16, dos);
#pragma unroll
    for (int i = 0; i < kThrough / 2; ++i)
      weigh(p, row[i / 4 * 8 + lane % 4 * 2 + i % 2],
            key0 + warp * 16 + i / 2 % 2 * 8 + lane / 4, s[i], ds[i]);
    multiply_sums<VP, kThrough>(dv, s, dos);
    multiply_sums<DP, kThrough>(dk, ds, qs);
  }
  copy_wait<0>();
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const i32 key = key0 + warp * 16 + h * 8 + lane / 4;
    if (key >= p.k_len) continue;
    store_sums<DP>((T*)p.dk + at(p.k_strides, head.batch, head.k_head, key), dk, h, p.dim,
                   (f32)p.scale);
    store_sums<VP>((T*)p.dv + at(p.v_strides, head.batch, head.k_head, key), dv, h, p.v_dim, 1.f);
  }
}
#elif !MMA
constexpr int kWeightStride = kTile + 1;

// Tiles of the block's own side, then of the other side (one after the other with ONE_BUFFER), then
// weights.
struct Tiles {
  S *dims, *values, *other_dims, *other_values, *weights;
  __device__ Tiles(u8* smem) {
    constexpr int kLongest = DP > VP ? kQStride : kVStride;
    dims = (S*)smem, values = dims + kTile * kQStride, other_dims = values + kTile * kVStride;
    other_values = ONE_BUFFER ? other_dims : other_dims + kTile * kQStride;
    weights = ONE_BUFFER ? other_dims + kTile * kLongest : other_values + kTile * kVStride;
  }
};
// q·k and dout·v of an element become its weight and slope, for all elements of a thread.
__device__ inline void weigh_tile(const Attention& p, const Row (&row)[kEach], i32 key,
                                  S (&s)[kEach][kEach], S (&ds)[kEach][kEach]) {
#pragma unroll
  for (int i = 0; i < kEach; ++i)
#pragma unroll
    for (int j = 0; j < kEach; ++j)
      weigh(p, row[i], key + (i32)threadIdx.x % 16 + 16 * j, s[i][j], ds[i][j]);
}
__device__ inline void put(const Tiles& t, const S (&s)[kEach][kEach]) {
  const int x = threadIdx.x % 16, y = threadIdx.x / 16;
#pragma unroll
  for (int i = 0; i < kEach; ++i)
#pragma unroll
    for (int j = 0; j < kEach; ++j) t.weights[(y + 16 * i) * kWeightStride + x + 16 * j] = s[i][j];
}
// c += weights times the rows of b. BY_KEY: the rows of c are keys, and query rows are summed; else
// the reverse.
template <int PADDED, bool BY_KEY>
__device__ inline void add_products(S (&c)[kEach][PADDED / 16], const Tiles& t, const S* b) {
  const int x = threadIdx.x % 16, y = threadIdx.x / 16;
#pragma unroll 2
  for (int k = 0; k < kTile; ++k) {
    S a[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i)
      a[i] = BY_KEY ? t.weights[k * kWeightStride + y + 16 * i]
                    : t.weights[(y + 16 * i) * kWeightStride + k];
#pragma unroll
    for (int j = 0; j < PADDED / 16; ++j) {
      const S value = b[k * (PADDED + 1) + x + 16 * j];
#pragma unroll
      for (int i = 0; i < kEach; ++i) c[i][j] += a[i] * value;
    }
  }
}
template <int PADDED>
__device__ inline void store_row(T* to, const S (&c)[PADDED / 16], int cols, S factor) {
#pragma unroll
  for (int j = 0; j < PADDED / 16; ++j) {
    const int col = threadIdx.x % 16 + 16 * j;
    if (col < cols) to[col] = narrow<T>(c[j] * factor);
  }
}

extern "C" __global__ void __launch_bounds__(kThreads) queries(const Attention p) {
  extern __shared__ __align__(16) u8 smem[];
  const Tiles t(smem);
  const i32 rows = p.q_len * p.group, tiles = (rows + kTile - 1) / kTile;
  const i32 r0 = (tiles - 1 - blockIdx.x % tiles) * kTile;
  const Head head(p, blockIdx.x / tiles);
  const int y = threadIdx.x / 16;
  const Limits all = limits_of_rows(p, head, r0, min(r0 + kTile, rows));
  load_query_tile<DP>(t.dims, p, head, p.q, p.q_strides, r0, p.dim);
  load_query_tile<VP>(t.values, p, head, p.dout, p.o_strides, r0, p.v_dim);
  Row row[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i)
    row[i] = row_of(p, head, blockIdx.x / tiles, r0 + y + 16 * i, rows);
  S dq[kEach][DP / 16] = {};
  for (i32 key = all.first; key < all.last; key += kTile) {
    const auto load_keys = [&] {
      load_key_tile<DP>(t.other_dims, head, p.k, p.k_strides, key, all.last, p.dim);
    };
    S s[kEach][kEach] = {}, ds[kEach][kEach] = {};
    __syncthreads();
    load_key_tile<VP>(t.other_values, head, p.v, p.v_strides, key, all.last, p.v_dim);
    if (!ONE_BUFFER) load_keys();
    __syncthreads();
    multiply_tiles<VP>(ds, t.values, t.other_values);
    if (ONE_BUFFER) {
      __syncthreads();
      load_keys();
      __syncthreads();
    }
    multiply_tiles<DP>(s, t.dims, t.other_dims);
    weigh_tile(p, row, key, s, ds);
    put(t, ds);
    __syncthreads();
    add_products<DP, false>(dq, t, t.other_dims);
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const i32 r = r0 + y + 16 * i;
    if (r >= rows) continue;
    if (row[i].factor == 0) {  // 0 times a NaN of k
#pragma unroll
      for (int j = 0; j < DP / 16; ++j) dq[i][j] = 0;
    }
    const RowPlace place = head.row(p, r);
    store_row<DP>((T*)p.dq + at(p.q_strides, head.batch, place.head, place.step), dq[i], p.dim,
                  (S)p.scale);
  }
}

extern "C" __global__ void __launch_bounds__(kThreads) keys(const Attention p) {
  extern __shared__ __align__(16) u8 smem[];
  const Tiles t(smem);
  const i32 rows = p.q_len * p.group, tiles = (p.k_len + kTile - 1) / kTile;
  const i32 key0 = blockIdx.x % tiles * kTile;
  const Head head(p, blockIdx.x / tiles);
  const int y = threadIdx.x / 16;
  // No row attends to keys beyond the limit of the last step, and these may hold anything.
  const i32 end = rows > 0 ? limits_of_rows(p, head, 0, rows).last : 0;
  load_key_tile<DP>(t.dims, head, p.k, p.k_strides, key0, end, p.dim);
  load_key_tile<VP>(t.values, head, p.v, p.v_strides, key0, end, p.v_dim);
  S dk[kEach][DP / 16] = {}, dv[kEach][VP / 16] = {};
  for (i32 r0 = 0; r0 < rows; r0 += kTile) {
    const Limits all = limits_of_rows(p, head, r0, min(r0 + kTile, rows));
    if (all.first >= key0 + kTile || all.last <= key0) continue;
    Row row[kEach];
    bool dead = false;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      row[i] = row_of(p, head, blockIdx.x / tiles, r0 + y + 16 * i, rows);
      dead |= row[i].factor == 0;
    }
    const auto load_queries = [&] {
      load_query_tile<DP>(t.other_dims, p, head, p.q, p.q_strides, r0, p.dim);
    };
    const auto load_douts = [&] {
      load_query_tile<VP>(t.other_values, p, head, p.dout, p.o_strides, r0, p.v_dim);
    };
    S s[kEach][kEach] = {}, ds[kEach][kEach] = {};
    __syncthreads();
    load_queries();
    if (!ONE_BUFFER) load_douts();
    dead = __syncthreads_or(dead);  // of any thread from here on
    multiply_tiles<DP>(s, t.other_dims, t.dims);
    if (ONE_BUFFER) {
      __syncthreads();
      load_douts();
      __syncthreads();
    }
    if (dead) {
      // A row without keys gives nothing to dv, even if its dout is NaN.
#pragma unroll
      for (int i = 0; i < kEach; ++i)
        if (row[i].factor == 0)
          for (int d = threadIdx.x % 16; d < VP; d += 16)
            t.other_values[(y + 16 * i) * kVStride + d] = 0;
      __syncthreads();
    }
    multiply_tiles<VP>(ds, t.other_values, t.values);
    weigh_tile(p, row, key0, s, ds);
    put(t, s);
    __syncthreads();
    add_products<VP, true>(dv, t, t.other_values);
    __syncthreads();
    put(t, ds);
    if (ONE_BUFFER) load_queries();
    __syncthreads();
    add_products<DP, true>(dk, t, t.other_dims);
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const i32 key = key0 + y + 16 * i;
    if (key >= p.k_len) continue;
    store_row<DP>((T*)p.dk + at(p.k_strides, head.batch, head.k_head, key), dk[i], p.dim,
                  (S)p.scale);
    store_row<VP>((T*)p.dv + at(p.v_strides, head.batch, head.k_head, key), dv[i], p.v_dim, S(1));
  }
}
#endif
