// SPDX-License-Identifier: Apache-2.0
// decode_attention: one token of each sequence. A block turns the queries of its key head. The one
// whose range has the token's own position turns the key, too, puts key and value into the caches,
// and attends to them from shared memory; all others attend to what the caches hold.
// Defines: as attention_decode.cuh; ROWS: dtype of the rows of the caches; ROPE: 0: nothing turns, 1:
// halves of a head, 2: neighbours, with IDS, the dtype of position_ids.
//variant: TT=f16 TS=f32 MASK=0 DP=128 VP=128 SPLIT=2 STAGES=3 CLUSTER=8 KV_LEN=i64 PAST_LEN=i64 ROWS=i64 ROPE=1 IDS=i64
//variant: TT=bf16 TS=f32 MASK=0 DP=64 VP=80 SPLIT=0 SOFTCAP=1 STAGES=2 CLUSTER=1 KV_LEN=i32 PAST_LEN=i32 ROWS=i32 ROPE=2 IDS=i32 BLOCK_TABLE=i64
//variant: TT=bf16 TS=f32 MASK=0 DP=128 VP=128 SPLIT=2 STAGES=3 CLUSTER=1 KV_LEN=i64 PAST_LEN=i64 ROWS=i64 ROPE=0 BLOCK_TABLE=i32
#include "attention_decode.cuh"
#include "decode_attention.args.cuh"
#include "rotation.cuh"

#if __CUDA_ARCH__ >= 800
// A block's queries, its new key and its new value, behind what the warps need.
constexpr int kFresh = kRows * kQStride, kFreshValue = kFresh + kQStride;  // elements

struct TurnedQueries {
  const T* of[2];
  bool real[2];
  __device__ __forceinline__ u32 operator()(int which, int col) const {
    return *(const u32*)(of[which] + col);
  }
  __device__ __forceinline__ bool has(int which) const { return real[which]; }
};

// The key and value of the token, if the block's range has its position.
struct NewKey {
  const DecodeAttention& d;
  const T* fresh;  // the key, the value kQStride behind it
  i64 row = -1;    // of the caches; -1: this block has none
  i32 key = 0, k_head;

  __device__ NewKey(const DecodeAttention& d, const QueryTile& tile, const T* fresh)
      : d(d), fresh(fresh), k_head(tile.head.k_head) {
    const i64 at = ((const PAST_LEN*)d.attention.past_len)[tile.head.batch];
    i64 to = ((const ROWS*)d.rows)[tile.head.batch];
    if (to < 0) to += d.cache_rows;
    if (at < tile.keys.first || at >= tile.keys.last || to < 0 || to >= d.cache_rows) return;
    if (SPLIT && at / kSplitStep % d.attention.splits != tile.split) return;
    key = (i32)at, row = to;
  }
  template <int COLS>
  __device__ __forceinline__ void put_row(const T* from, T* stage, void* cache, int cols) const {
    T* const line = (T*)cache + (row * d.attention.k_heads + k_head) * cols;
    for (int c = threadIdx.x % 32 * 8; c < cols; c += 32 * 8) {
      const Vec<T, 8> v = load<T, 8>(from + c);
      store(stage + c, v);
      store(line + c, v);
    }
  }
  // The warp with the keys from `from` on has them in its stage.
  __device__ __forceinline__ void put(i32 from, T* keys) const {
    if (row < 0 || key < from || key >= from + kKeys) return;
    const int line = key - from;
    put_row<DP>(fresh, keys + line * kQStride, d.k_next, d.attention.dim);
    put_row<VP>(fresh + kQStride, keys + kKeys * kQStride + line * kVStride, d.v_next,
                d.attention.v_dim);
    __syncwarp();
  }
};

// A piece of a row of a head: a pair that turns, or an element that does not.
struct Piece {
  i32 first = -1, second = -1;  // elements of the row, if there are any
  T x, y;
  f32 cosine, sine;

  Piece() = default;
  // table: where the token's angles begin; -1: nothing turns.
  __device__ Piece(const DecodeAttention& d, const T* from, i64 step, i32 piece,
                   [[maybe_unused]] i64 table) {
#if ROPE
    if (table >= 0 && piece < d.half) {
      first = ROPE == 1 ? piece : 2 * piece, second = ROPE == 1 ? piece + d.half : first + 1;
      x = from[first * step], y = from[second * step];
      cosine = ((const f32*)d.cosines)[table + piece], sine = ((const f32*)d.sines)[table + piece];
      return;
    }
    piece += d.half;
#endif
    if (piece < d.attention.dim) first = piece, x = from[piece * step];
  }
  __device__ void put(T* to) const {
    if (second >= 0) {
      const Turned<f32> turn = turned(widen(x), widen(y), cosine, sine);
      to[first] = narrow<T>(turn.first), to[second] = narrow<T>(turn.second);
    } else if (first >= 0) {
      to[first] = x;
    }
  }
};

extern "C" IN_CLUSTER __global__ void __launch_bounds__(kWarps * 32)
    attention(const DecodeAttention d) {
  extern __shared__ __align__(16) u8 smem[];
  begin_early();
  const Attention& p = d.attention;
  const QueryTile tile(p, kRows);
  const Head& head = tile.head;
  T* const queries = (T*)(smem + kOfWarps);
  NewKey token(d, tile, queries + kFresh);
#if ROPE
  const i64 id = ((const IDS*)d.ids)[head.batch];
#endif
  const auto make_queries = [&](const QuadRows& rows) {
    i64 table = 0;
#if ROPE
    table = id * d.half;
    if (id < 0 || id >= d.table_rows) {
      table = -1;
      if (tile.index % p.k_heads + tile.split + (i32)threadIdx.x == 0)
        report(p.sink, kIndexOutOfRange, (u64)((i64)p.batch * p.blocks + head.batch));
    }
#endif
    // All that a thread reads is loaded together.
    const i32 pieces = p.dim - (ROPE ? d.half : 0), count = p.group + (token.row >= 0);
    const i32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const auto piece_of = [&](i32 r, i32 piece) {
      if (r >= count || piece >= pieces) return Piece();
      if (r == p.group)
        return Piece(d, (const T*)d.k + at(d.new_k, head.batch, head.k_head, 0), d.new_k.step,
                     piece, table);
      return Piece(d, (const T*)p.q + at(p.q_strides, head.batch, head.row(p, r).head, 0),
                   p.q_strides.step, piece, table);
    };
    static_assert(VP <= kWarps * 32, "an element of the value for each thread");
    const bool has_value = token.row >= 0 && (i32)threadIdx.x < p.v_dim;
    T value;
    if (has_value)
      value = ((const T*)d.v)[at(d.new_v, head.batch, head.k_head, 0) + threadIdx.x * d.new_v.step];
    for (i32 r = warp; r < count; r += 2 * kWarps)
      for (i32 piece = lane; piece < pieces; piece += 2 * 32) {
        const Piece own[2][2] = {{piece_of(r, piece), piece_of(r, piece + 32)},
                                 {piece_of(r + kWarps, piece), piece_of(r + kWarps, piece + 32)}};
#pragma unroll
        for (i32 k = 0; k < 2; ++k) {
          const i32 row = r + k * kWarps;
          T* const to = queries + (row < p.group ? row * kQStride : kFresh);
          own[k][0].put(to), own[k][1].put(to);
        }
      }
    if (has_value) queries[kFreshValue + threadIdx.x] = value;
    __syncthreads();
    TurnedQueries q;
#pragma unroll
    for (int h = 0; h < 2; ++h)
      q.real[h] = rows.row[h] < tile.end, q.of[h] = queries + rows.row[h] * kQStride;
    return q;
  };
  attend(p, tile, smem, make_queries, token);
}
#endif
