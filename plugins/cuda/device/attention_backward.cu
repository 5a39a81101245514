// SPDX-License-Identifier: Apache-2.0
// Gradients of attention: `delta` prepares what is known of query rows (attention_sums.cu mends it
// where lse is large); `queries` gives dq, a block taking some query rows through the keys; `keys`
// gives dk and dv, a block taking some keys through the rows. Each sum has one writer and one order.
// Defines: as attention_tiles.cuh.
//variant: TT=bf16 TS=f32 MASK=0 DP=128 VP=128 MMA=1 WIDE=1 SIZE=64
//variant: TT=f16 TS=f32 MASK=2 DP=64 VP=32 MMA=1 WIDE=0 SIZE=64 SOFTCAP=1 KV_LEN=i32 PAST_LEN=i64
//variant: TT=f32 TS=f32 MASK=1 DP=64 VP=64 MMA=0 WIDE=0 SIZE=64
//variant: TT=f64 TS=f64 MASK=2 DP=16 VP=32 MMA=0 WIDE=0 SIZE=32 SOFTCAP=1 KV_LEN=i64 PAST_LEN=i32
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
  S shift, factor, delta;
  const T* mask;
};
__device__ inline Row row_of(const Attention& p, const Head& head, i32 index, i32 r, i32 rows) {
  if (r >= rows) return {{0, 0}, S(0), S(0), S(0), nullptr};
  const RowPlace place = head.row(p, r);
  const RowFacts facts = facts_of(p, index)[r];
  return {limits_of(p, head.batch, place.step), facts.shift, facts.factor, facts.delta,
          mask_row_of(p, head, place)};
}
// From the products q·k and dout·v of an element: its weight, and the slope of its product q·k
// without the factor of the scale.
__device__ inline void weigh(const Attention& p, const Row& row, i32 key, S& qk, S& dov) {
  S weight = 0, slope = 0;
  if (key >= row.limits.first && key < row.limits.last && row.factor != 0) {
    S capped;
    const S s = score(p, qk, row.mask, key, capped);
    weight = exp(s - row.shift) * row.factor;
    slope = weight * (dov - row.delta);
#ifdef SOFTCAP
    const S part = capped / (S)p.softcap;
    slope *= 1 - part * part;
#endif
  }
  qk = weight;
  dov = slope;
}

#if MMA && __CUDA_ARCH__ >= 800
// Rows of the side that is gone through: fewer where the sums need the registers.
constexpr int kThrough = DP > 64 || VP > 64 ? 32 : 64;

// c (16 x COLS) += a (16 x N, as the products above leave it) times the N rows of b.
template <int COLS, int N>
__device__ __forceinline__ void multiply_sums(f32 (&c)[COLS / 8][4], const f32 (&a)[N / 8][4],
                                              const T* b) {
#pragma unroll
  for (int j = 0; j < N / 16; ++j) {
    const f32 *x = a[j * 2], *y = a[j * 2 + 1];
    const u32 left[4] = {pack(x[0], x[1]), pack(x[2], x[3]), pack(y[0], y[1]), pack(y[2], y[3])};
#pragma unroll
    for (int d = 0; d < COLS; d += 16) {
      u32 right[4];
      load_right<false>(right, b, COLS + 8, d, j * 16);
      multiply_add(c[d / 8], left, right[0], right[1], T{});
      multiply_add(c[d / 8 + 1], left, right[2], right[3], T{});
    }
  }
}
// The half h of a warp's 16 rows of sums, times `factor`.
template <int COLS>
__device__ __forceinline__ void store_sums(T* to, const f32 (&c)[COLS / 8][4], int h, int cols,
                                           f32 factor) {
#pragma unroll
  for (int j = 0; j < COLS / 8; ++j) {
    const int col = j * 8 + threadIdx.x % 4 * 2;
    if (col < cols) to[col] = narrow<T>(c[j][h * 2] * factor);
    if (col + 1 < cols) to[col + 1] = narrow<T>(c[j][h * 2 + 1] * factor);
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
  f32 dq[DP / 8][4] = {};
  for (i32 key = all.first; key < all.last; key += kThrough) {
    __syncthreads();
    load_key_rows<DP>(ks, kThrough, p, head, p.k, p.k_strides, key, all.last, p.dim);
    load_key_rows<VP>(vs, kThrough, p, head, p.v, p.v_strides, key, all.last, p.v_dim);
    copy_commit();
    copy_wait<0>();
    __syncthreads();
    f32 s[kThrough / 8][4] = {}, ds[kThrough / 8][4] = {};
    multiply_rows<DP, kThrough>(s, qs, warp * 16, ks);
    multiply_rows<VP, kThrough>(ds, dos, warp * 16, vs);
#pragma unroll
    for (int j = 0; j < kThrough / 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        weigh(p, row[e / 2], key + j * 8 + lane % 4 * 2 + e % 2, s[j][e], ds[j][e]);
    multiply_sums<DP, kThrough>(dq, ds, ks);
  }
  copy_wait<0>();
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const i32 r = r0 + warp * 16 + h * 8 + lane / 4;
    if (r >= rows) continue;
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
  // No row looks beyond the last step's limit, and what is there may hold anything.
  const i32 end = rows > 0 ? limits_of_rows(p, head, 0, rows).last : 0;
  load_key_rows<DP>(ks, 64, p, head, p.k, p.k_strides, key0, end, p.dim);
  load_key_rows<VP>(vs, 64, p, head, p.v, p.v_strides, key0, end, p.v_dim);
  f32 dk[DP / 8][4] = {}, dv[VP / 8][4] = {};
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
    __syncthreads();
    f32 s[kThrough / 8][4] = {}, ds[kThrough / 8][4] = {};  // keys down, rows across
    multiply_rows<DP, kThrough>(s, ks, warp * 16, qs);
    multiply_rows<VP, kThrough>(ds, vs, warp * 16, dos);
#pragma unroll
    for (int j = 0; j < kThrough / 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        weigh(p, row[j * 8 + lane % 4 * 2 + e % 2], key0 + warp * 16 + e / 2 * 8 + lane / 4,
              s[j][e], ds[j][e]);
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
constexpr int kPStride = kTile + 1;

struct Tiles {
  S *q, *dout, *k, *v, *weights;
  __device__ Tiles(u8* smem) {
    q = (S*)smem, dout = q + kTile * kQStride, k = dout + kTile * kVStride;
    v = k + kTile * kQStride, weights = v + kTile * kVStride;
  }
};
__device__ inline void load_queries(const Tiles& t, const Attention& p, const Head& head, i32 r0) {
  load_query_tile<DP>(t.q, p, head, p.q, p.q_strides, r0, p.dim);
  load_query_tile<VP>(t.dout, p, head, p.dout, p.o_strides, r0, p.v_dim);
}
__device__ inline void load_keys(const Tiles& t, const Attention& p, const Head& head, i32 key,
                                 i32 end) {
  load_key_tile<DP>(t.k, p, head, p.k, p.k_strides, key, end, p.dim);
  load_key_tile<VP>(t.v, p, head, p.v, p.v_strides, key, end, p.v_dim);
}
// s = q·k, ds = dout·v of the tile, then weights and slopes.
__device__ inline void weigh_tile(const Tiles& t, const Attention& p, const Row (&row)[kEach],
                                  i32 key, S (&s)[kEach][kEach], S (&ds)[kEach][kEach]) {
  multiply_tiles<DP>(s, t.q, t.k);
  multiply_tiles<VP>(ds, t.dout, t.v);
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
    for (int j = 0; j < kEach; ++j) t.weights[(y + 16 * i) * kPStride + x + 16 * j] = s[i][j];
}
// c += weights times b's rows; BY_KEY: c's rows are keys, summed over rows, else the reverse.
template <int PADDED, bool BY_KEY>
__device__ inline void add_products(S (&c)[kEach][PADDED / 16], const Tiles& t, const S* b) {
  const int x = threadIdx.x % 16, y = threadIdx.x / 16;
#pragma unroll 2
  for (int k = 0; k < kTile; ++k) {
    S a[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i)
      a[i] = BY_KEY ? t.weights[k * kPStride + y + 16 * i] : t.weights[(y + 16 * i) * kPStride + k];
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
  load_queries(t, p, head, r0);
  Row row[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i)
    row[i] = row_of(p, head, blockIdx.x / tiles, r0 + y + 16 * i, rows);
  S dq[kEach][DP / 16] = {};
  for (i32 key = all.first; key < all.last; key += kTile) {
    __syncthreads();
    load_keys(t, p, head, key, all.last);
    __syncthreads();
    S s[kEach][kEach] = {}, ds[kEach][kEach] = {};
    weigh_tile(t, p, row, key, s, ds);
    put(t, ds);
    __syncthreads();
    add_products<DP, false>(dq, t, t.k);
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const i32 r = r0 + y + 16 * i;
    if (r >= rows) continue;
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
  // No row looks beyond the last step's limit, and what is there may hold anything.
  const i32 end = rows > 0 ? limits_of_rows(p, head, 0, rows).last : 0;
  load_keys(t, p, head, key0, end);
  S dk[kEach][DP / 16] = {}, dv[kEach][VP / 16] = {};
  for (i32 r0 = 0; r0 < rows; r0 += kTile) {
    const Limits all = limits_of_rows(p, head, r0, min(r0 + kTile, rows));
    if (all.first >= key0 + kTile || all.last <= key0) continue;
    Row row[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i)
      row[i] = row_of(p, head, blockIdx.x / tiles, r0 + y + 16 * i, rows);
    __syncthreads();
    load_queries(t, p, head, r0);
    __syncthreads();
    S s[kEach][kEach] = {}, ds[kEach][kEach] = {};
    weigh_tile(t, p, row, key0, s, ds);
    put(t, s);
    __syncthreads();
    add_products<VP, true>(dv, t, t.dout);
    __syncthreads();
    put(t, ds);
    __syncthreads();
    add_products<DP, true>(dk, t, t.q);
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
