// SPDX-License-Identifier: Apache-2.0
// decode_attention.cu in the order of sums of attention_spans.cuh: one token of each sequence. A block has the
// queries of a key head and takes spans of its keys: every one, or one in SPLITS. SEGMENTS segments of a span are
// taken at once, by the same number of its WARPS warps each. Each warp multiplies the queries by its part of the
// segment's keys; then the warps of a segment exchange maxima and weights through shared memory, and each multiplies
// all weights by its own elements of the values. Keys and values go from memory to the registers from which tensor cores take them. The warp whose
// keys have the token's own position turns its key, too, and puts key and value into the caches. Spans of
// several blocks are joined by the blocks of a cluster, or by attention_join.cu; with the same bits.
// Defines: as decode_attention.cu; SEGMENTS (1 or 4); OWN_SPANS: spans of a block, whose sums
// lie in its shared memory (0: in p.parts).
//variant: TT=f16 TS=f32 MASK=0 DIM=128 V_DIM=128 GROUP=4 K_HEADS=8 SPLITS=8 SEGMENTS=4 WARPS=8 OWN_SPANS=2 CLUSTER=8 KV_LEN=i64 PAST_LEN=i64 ROWS=i64 ROPE=1 HALF=64 IDS=i64
//variant: TT=bf16 TS=f32 MASK=0 DIM=80 V_DIM=80 GROUP=16 K_HEADS=2 SPLITS=1 SEGMENTS=1 WARPS=4 OWN_SPANS=0 SOFTCAP=1 CLUSTER=1 KV_LEN=i32 PAST_LEN=i32 ROWS=i32 ROPE=2 HALF=13 IDS=i32 BLOCK_TABLE=i64
//variant: TT=bf16 TS=f32 MASK=0 DIM=96 V_DIM=40 GROUP=1 K_HEADS=3 SPLITS=6 SEGMENTS=1 WARPS=4 OWN_SPANS=0 CLUSTER=1 KV_LEN=i64 PAST_LEN=i64 ROWS=i64 ROPE=1 HALF=24 IDS=i64 BLOCK_TABLE=i32
//variant: TT=bf16 TS=f32 MASK=0 DIM=64 V_DIM=64 GROUP=4 K_HEADS=8 SPLITS=2 SEGMENTS=1 WARPS=4 OWN_SPANS=0 CLUSTER=1 KV_LEN=i64 PAST_LEN=i64 ROWS=i64 ROPE=0 HALF=0
//variant: TT=f16 TS=f32 MASK=0 DIM=128 V_DIM=120 GROUP=8 K_HEADS=2 SPLITS=4 SEGMENTS=4 WARPS=8 OWN_SPANS=5 CLUSTER=4 KV_LEN=i64 PAST_LEN=i64 ROWS=i64 ROPE=1 HALF=24 IDS=i64 BLOCK_TABLE=i64
#include "attention_spans.cuh"
#include "cluster.cuh"
#include "decode_attention.cuh"
#include "rotation.cuh"

#if __CUDA_ARCH__ >= 800
constexpr int kWarps = WARPS / SEGMENTS, kKeys = kSegment / kWarps;  // of a segment; of a warp
constexpr int kThreads = 32 * WARPS, kHeadHalves = GROUP > 8 ? 2 : 1;
constexpr int kResidentBlocks = SEGMENTS > 1 ? 1 : GROUP > 8 ? 2 : 4;  // on a multiprocessor
static_assert(SEGMENTS == 1 || SEGMENTS * kSegment == kSpan, "a segment or a span at once");

__device__ inline int warp() { return threadIdx.x / 32 % kWarps; }       // among those of a segment
__device__ inline int segment() { return threadIdx.x / (32 * kWarps); }  // of those at once
// Until all warps of the segment have come.
__device__ inline void await_warps() {
  if constexpr (SEGMENTS == 1)
    __syncthreads();
  else
    asm volatile("bar.sync %0, %1;" ::"r"(1 + segment()), "n"(32 * kWarps) : "memory");
}

// ---- Queries and keys: lane l has row l / 4 of eight, and of each 16 elements four

constexpr int kSteps = (DIM + 15) / 16;
typedef Vec<u32, 2> Piece;
__device__ inline int column_of(int step) { return step * 16 + lane() % 4 * 4; }
__device__ __forceinline__ Piece piece_at(const T* row, int column) {
  return load<u32, 2>(reinterpret_cast<const u32*>(row + column));
}
struct Line {
  Piece step[kSteps];

  __device__ __forceinline__ void load_from(const T* row, bool real) {
#pragma unroll
    for (int c = 0; c < kSteps; ++c) {
      step[c] = {};
      if (real && column_of(c) < DIM) step[c] = piece_at(row, column_of(c));
    }
  }
};

// Turns the two elements of `low` with those of `high`, by angles `e` and the next of four.
__device__ __forceinline__ void turn_words(u32& low, u32& high, const Vec<f32, 4>& cosine,
                                           const Vec<f32, 4>& sine, int e) {
  const Turned<f32> a = turned(first_of(low, T{}), first_of(high, T{}), cosine.v[e], sine.v[e]),
                    b = turned(second_of(low, T{}), second_of(high, T{}), cosine.v[e + 1],
                               sine.v[e + 1]);
  low = pack(a.first, b.first), high = pack(a.second, b.second);
}
// Rotates lines by the angles whose cosines and sines begin here. They were loaded from `rows`; null: zeros.
template <int N>
__device__ __forceinline__ void rotate(Line (&lines)[N], const T* const (&rows)[N],
                                       const f32* cosines, const f32* sines) {
  constexpr bool kInLane = HALF % 16 == 0;  // both elements of a pair
#pragma unroll
  for (int c = 0; c < kSteps; ++c) {
    const int at = column_of(c);
    if constexpr (ROPE == 1) {
      if (kInLane ? c >= HALF / 16 : at >= 2 * HALF) continue;
      const bool first = at < HALF;
      const int pair = first ? at : at - HALF;
      const Vec<f32, 4> cosine = load<f32, 4>(cosines + pair), sine = load<f32, 4>(sines + pair);
#pragma unroll
      for (int n = 0; n < N; ++n) {
        Piece& own = lines[n].step[c];
        if constexpr (kInLane) {
#pragma unroll
          for (int e = 0; e < 2; ++e)
            turn_words(own.v[e], lines[n].step[c + HALF / 16].v[e], cosine, sine, 2 * e);
        } else if (rows[n]) {  // another lane has the other one; it is loaded again
          const Piece other = piece_at(rows[n], first ? at + HALF : at - HALF);
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            u32 low = first ? own.v[e] : other.v[e], high = first ? other.v[e] : own.v[e];
            turn_words(low, high, cosine, sine, 2 * e);
            own.v[e] = first ? low : high;
          }
        }
      }
    } else if constexpr (ROPE == 2) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int pair = at / 2 + e;
        if (pair >= HALF) continue;
        const f32 cosine = cosines[pair], sine = sines[pair];
#pragma unroll
        for (int n = 0; n < N; ++n) {
          u32& both = lines[n].step[c].v[e];
          const Turned<f32> t = turned(first_of(both, T{}), second_of(both, T{}), cosine, sine);
          both = pack(t.first, t.second);
        }
      }
    }
  }
}

// ---- Which keys

struct Token : TokenOfBlock {
  using TokenOfBlock::TokenOfBlock;
  // The first segment of the warp, and the one behind another. If SEGMENTS are taken at once, the block's
  // first span may begin with some that no key of is attended to.
  __device__ i32 begin() const {
    const i32 key = keys.first / kSegment * kSegment, span = key / kSpan,
              ahead = (split - span % SPLITS + SPLITS) % SPLITS;
    if (SEGMENTS > 1) return (span + ahead) * kSpan + segment() * kSegment;
    return ahead == 0 ? key : (span + ahead) * kSpan;
  }
  __device__ i32 next_of(i32 key) const {
    if (SEGMENTS > 1) return key + kSpan * SPLITS;
    key += kSegment;
    return key % kSpan == 0 ? key + kSpan * (SPLITS - 1) : key;
  }
  // Are there more spans, or segments, from that of `key` on?
  __device__ bool has(i32 key) const {
    return (SEGMENTS > 1 ? key - segment() * kSegment : key) < keys.last;
  }
  __device__ bool is_of_warp() const {
    return own >= 0 && own / kSpan % SPLITS == split && own % kSegment / kKeys == warp() &&
           (SEGMENTS == 1 || own % kSpan / kSegment == segment());
  }
};

// Where the keys of the segment at `key` lie: steps from the sequence's first, or that of the pool; -1: a
// key that is not attended to. Lane l knows keys l and 32 + l.
struct KeyLines {
  i32 of[2];
  __device__ __forceinline__ KeyLines(const Attention& p, const Token& token, i32 key) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const i32 mine = key + 32 * h + lane();
      of[h] = -1;
      if (mine < token.keys.first || mine >= token.keys.last) continue;
#ifdef BLOCK_TABLE
      of[h] = line_of(p, token.head.batch, mine);
#else
      of[h] = mine;
#endif
    }
  }
  // Of key `at` of the segment. All lanes of a warp ask together, for keys of one half.
  __device__ __forceinline__ i32 operator()(int half, int at) const {
    return __shfl_sync(~0u, half == 0 ? of[0] : of[1], at % 32);
  }
};

// ---- Values: of each 16 keys, lane l has keys 2 * (l % 4) and the next, and those 8 further; of its warp's
// elements, kEach

constexpr int kEach = V_DIM <= 16 * kWarps ? 2 : V_DIM <= 32 * kWarps ? 4 : 8, kTiles = kEach / 2;
static_assert(V_DIM <= 8 * kEach * kWarps, "all elements of a value have a warp");
__device__ inline int own_element() { return (warp() * 8 + lane() / 4) * kEach; }

constexpr int kGroups = kSegment / 16;  // of keys
struct Values {
  Vec<u32, kTiles> of[kGroups][4];

  // Lane l knows where keys l and 32 + l lie; null: zeros.
  __device__ __forceinline__ void load_from(const T* const (&rows)[2]) {
#pragma unroll
    for (int j = 0; j < kGroups; ++j)
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int key = j * 16 + lane() % 4 * 2 + k % 2 + k / 2 * 8;
        const u64 row = __shfl_sync(~0u, (u64)rows[j / 2], key % 32);
        of[j][k] = {};
        if (row != 0 && own_element() < V_DIM)
          of[j][k] = load<u32, kTiles>(reinterpret_cast<const u32*>((const T*)row + own_element()));
      }
  }
  // Tile t of 16 keys as a left operand: rows l / 4 and 8 further are elements 2 * t and the next.
  __device__ __forceinline__ void left(u32 (&to)[4], int group, int tile) const {
    const auto words = [&](int k, u32 order) {
      return __byte_perm(of[group][k].v[tile], of[group][k + 1].v[tile], order);
    };
    to[0] = words(0, 0x5410), to[1] = words(0, 0x7632);
    to[2] = words(2, 0x5410), to[3] = words(2, 0x7632);
  }
};

// ---- Sums

// Element 2 * e + h of part of[i][t] is that of element 2 * t + e of the lane and of head
// 8 * i + 2 * (l % 4) + h, to which top[i][h] and total[i][h] belong.
struct HeadSums {
  f32 of[kHeadHalves][kTiles][4] = {}, top[kHeadHalves][2], total[kHeadHalves][2] = {};

  __device__ __forceinline__ HeadSums() {
#pragma unroll
    for (int i = 0; i < kHeadHalves; ++i) top[i][0] = top[i][1] = -infinity(0.f);
  }
  __device__ __forceinline__ void join(const HeadSums& now) {
#pragma unroll
    for (int i = 0; i < kHeadHalves; ++i)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const Joint joint(top[i][h], now.top[i][h]);
#pragma unroll
        for (int t = 0; t < kTiles; ++t)
#pragma unroll
          for (int e = h; e < 4; e += 2) of[i][t][e] = joint.of(of[i][t][e], now.of[i][t][e]);
        total[i][h] = joint.of(total[i][h], now.total[i][h]), top[i][h] = joint.top;
      }
  }
  // Of head 8 * i + 2 * (l % 4) + h: the lane's elements.
  __device__ __forceinline__ Vec<f32, kEach> elements(int i, int h) const {
    Vec<f32, kEach> v;
#pragma unroll
    for (int e = 0; e < kEach; ++e) v.v[e] = of[i][e / 2][e % 2 * 2 + h];
    return v;
  }
  // Calls to(head, i, h) for each head whose elements the lane has.
  template <class To>
  __device__ __forceinline__ void each_head(To to) const {
#pragma unroll
    for (int i = 0; i < kHeadHalves; ++i)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int head = 8 * i + lane() % 4 * 2 + h;
        if (head < GROUP) to(head, i, h);
      }
  }
};

// What the warps of a segment give each other: maxima of heads; weights as right operands, the rounded ones
// of both tiles of 16 keys, then what rounding took; and sums of the two weights that a lane has of a tile.
struct Exchange {
  f32 maxima[kWarps][8 * kHeadHalves];
  Vec<u32, 4> weights[kGroups][kHeadHalves][32];
  f32 pairs[2 * kGroups][kHeadHalves][32];
};
// Segments that are taken one by one use two of them by turns.
constexpr int kExchanges = SEGMENTS == 1 ? 2 : 1;

// Four elements of a head, by which threads join the segments of a span; and the heads' rows in shared memory.
constexpr int kFours = V_DIM / 4, kOwnFours = (GROUP * kFours + kThreads - 1) / kThreads;
constexpr int kRow = V_DIM + 4;  // with the maximum and the sum of weights
struct FourSums {
  f32 of[4] = {}, top = -infinity(0.f), total = 0;
  __device__ __forceinline__ void join(const f32 (&now)[4], f32 now_top, f32 now_total) {
    const Joint joint(top, now_top);
#pragma unroll
    for (int e = 0; e < 4; ++e) of[e] = joint.of(of[e], now[e]);
    total = joint.of(total, now_total), top = joint.top;
  }
};

extern "C" IN_CLUSTER __global__ void __launch_bounds__(kThreads, kResidentBlocks)
    attention(const DecodeAttention d) {
  __shared__ __align__(16) T fresh[kSteps * 16];
  __shared__ __align__(16) Exchange exchanges[SEGMENTS][kExchanges];
#if SEGMENTS > 1
  __shared__ __align__(16) f32 of_segments[SEGMENTS][GROUP][kRow];
  FourSums all[kOwnFours];
#else
  __shared__ HeadSums of_earlier[SPLITS == 1 ? kThreads : 1];  // of spans, of each thread
  HeadSums span;
#endif
#if OWN_SPANS
  __shared__ __align__(16) f32 own_spans[OWN_SPANS][GROUP][kRow];
#endif
  constexpr int kOfSegments =
                    SEGMENTS > 1 ? SEGMENTS * GROUP * kRow * 4 : kThreads * sizeof(HeadSums),
                kMostStatic = 48 << 10;
  static_assert(
      sizeof(fresh) + sizeof(exchanges) + kOfSegments + OWN_SPANS * GROUP * kRow * 4 <= kMostStatic,
      "shared memory of a fixed size");
  begin_early();
  const Attention& p = d.attention;
  const Token token(d);
  const Head& head = token.head;
  const T *const k_base = first_key(head, p.k, p.k_strides), *const v_base =
                                                                 first_key(head, p.v, p.v_strides);
  const T* const new_value = (const T*)d.v + at(d.new_v, head.batch, head.k_head, 0);
#ifdef BLOCK_TABLE
  if (token.split == 0 && head.k_head == 0) check_blocks(p, head.batch);
#endif

  // `key`: where the segment at hand begins; `next`: the one whose keys and values are loaded meanwhile.
  constexpr int kKeyTiles = kKeys / 8;
  const int own_keys = warp() * kKeys;  // of a segment
  i32 key = 0, next = token.begin();
  KeyLines next_lines(p, token, next);
  Line keys[kKeyTiles];
  Values values;
  const auto load_keys = [&] {
#pragma unroll
    for (int h = 0; h < kKeyTiles; ++h) {
      const i32 line = next_lines(own_keys / 32, own_keys + 8 * h + lane() / 4);
      keys[h].load_from(k_base + (i64)line * (K_HEADS * DIM), line >= 0);
    }
  };
  const auto load_values = [&] {
    const T* rows[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const i32 line = next_lines.of[h];
      rows[h] = line < 0 ? nullptr : v_base + (i64)line * (K_HEADS * V_DIM);
      if (line >= 0 && next + 32 * h + lane() == token.own) rows[h] = new_value;
    }
    values.load_from(rows);
  };

  // Queries as left operands: heads l / 4 and l / 4 + 8. Behind them the token's own key, in one warp.
  Line lines[kHeadHalves + 1];
  const auto prepare = [&] {
    const T* rows[kHeadHalves + 1] = {};
    const bool appends = token.is_of_warp();
#pragma unroll
    for (int i = 0; i < kHeadHalves; ++i)
      if (8 * i + lane() / 4 < GROUP)
        rows[i] = (const T*)p.q +
                  at(p.q_strides, head.batch, head.k_head * GROUP + 8 * i + lane() / 4, 0);
    if (appends) rows[kHeadHalves] = (const T*)d.k + at(d.new_k, head.batch, head.k_head, 0);
#pragma unroll
    for (int i = 0; i <= kHeadHalves; ++i) lines[i].load_from(rows[i], rows[i] != nullptr);
#if ROPE
    const i64 id = ((const IDS*)d.ids)[head.batch];
    if (id >= 0 && id < d.table_rows)
      rotate(lines, rows, (const f32*)d.cosines + id * HALF, (const f32*)d.sines + id * HALF);
    else if (head.k_head + token.split + (i32)threadIdx.x == 0)
      report(p.sink, kIndexOutOfRange, (u64)((i64)p.batch * p.blocks + head.batch));
#endif
    if (!appends) return;
    const i64 line = token.row * K_HEADS + head.k_head;
    const Line& own_key = lines[kHeadHalves];
    if (lane() < 4)
#pragma unroll
      for (int c = 0; c < kSteps; ++c)
        if (column_of(c) < DIM) {
          store(reinterpret_cast<u32*>(fresh + column_of(c)), own_key.step[c]);
          store(reinterpret_cast<u32*>((T*)d.k_next + line * DIM + column_of(c)), own_key.step[c]);
        }
    token.append_value(d, new_value);
    __syncwarp();
  };

  // Scores of the segment, by its keys.
  const auto multiply_keys = [&](f32(&s)[kKeyTiles][4]) {
    const i32 first = key + own_keys;
    if (token.among(first, kKeys))
#pragma unroll
      for (int h = 0; h < kKeyTiles; ++h)
        if (first + 8 * h + lane() / 4 == token.own) keys[h].load_from(fresh, true);
#pragma unroll
    for (int c = 0; c < kSteps; ++c) {
      const Piece other = kHeadHalves > 1 ? lines[kHeadHalves - 1].step[c] : Piece{};
      const u32 left[4] = {lines[0].step[c].v[0], other.v[0], lines[0].step[c].v[1], other.v[1]};
#pragma unroll
      for (int h = 0; h < kKeyTiles; ++h)
        multiply_add(s[h], left, keys[h].step[c].v[0], keys[h].step[c].v[1], T{});
    }
  };
  // Its sums, by its values. Scores: of head 8 * i + l / 4, keys 8 * h + 2 * (l % 4) and the next.
  const auto multiply_values = [&](f32(&s)[kKeyTiles][4], HeadSums& now, Exchange& exchange) {
#pragma unroll
    for (int i = 0; i < kHeadHalves; ++i) {
      f32 top = -infinity(0.f);
#pragma unroll
      for (int h = 0; h < kKeyTiles; ++h)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const i32 at = key + own_keys + 8 * h + lane() % 4 * 2 + e;
          f32& x = s[h][2 * i + e];
          x = (at >= token.keys.first) & (at < token.keys.last) ? fixed_score(p, x)
                                                                : -infinity(0.f);
          top = fmaxf(top, x);
        }
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
      if (lane() % 4 == 0) exchange.maxima[warp()][8 * i + lane() / 4] = top;
    }
    await_warps();
#pragma unroll
    for (int i = 0; i < kHeadHalves; ++i) {
      f32 top = -infinity(0.f);
#pragma unroll
      for (int w = 0; w < kWarps; ++w) top = fmaxf(top, exchange.maxima[w][8 * i + lane() / 4]);
#pragma unroll
      for (int h = 0; h < 2; ++h) now.top[i][h] = __shfl_sync(~0u, top, (lane() % 4 * 2 + h) * 4);
      const f32 base = base_of(top);
#pragma unroll
      for (int j = 0; j < kKeyTiles / 2; ++j) {  // 16 keys
        u32 rounded[2], rest[2];
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const f32* const of_head = s[2 * j + h] + 2 * i;
          const f32 x = fixed_weight(of_head[0], base), y = fixed_weight(of_head[1], base);
          rounded[h] = pack(x, y), rest[h] = pack_rest(rounded[h], x, y);
          exchange.pairs[kKeyTiles * warp() + 2 * j + h][i][lane()] = x + y;
        }
        exchange.weights[kKeyTiles / 2 * warp() + j][i][lane()] = {rounded[0], rounded[1], rest[0],
                                                                   rest[1]};
      }
    }
    await_warps();
#pragma unroll
    for (int i = 0; i < kHeadHalves; ++i) {
      f32 total = 0;
#pragma unroll
      for (int t = 0; t < 2 * kGroups; ++t) total += exchange.pairs[t][i][lane()];
      total += __shfl_xor_sync(~0u, total, 1);
      total += __shfl_xor_sync(~0u, total, 2);
#pragma unroll
      for (int h = 0; h < 2; ++h)
        now.total[i][h] = __shfl_sync(~0u, total, (lane() % 4 * 2 + h) * 4);
    }
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
      u32 left[kTiles][4];
#pragma unroll
      for (int t = 0; t < kTiles; ++t) values.left(left[t], j, t);
#pragma unroll
      for (int i = 0; i < kHeadHalves; ++i) {
        const Vec<u32, 4> w = exchange.weights[j][i][lane()];
#pragma unroll
        for (int r = 0; r < 4; r += 2)
#pragma unroll
          for (int t = 0; t < kTiles; ++t)
            multiply_add(now.of[i][t], left[t], w.v[r], w.v[r + 1], T{});
      }
    }
  };

  // Where the block leaves the sums of a span.
  const auto part_of_span = [&](i32 of, int row) -> f32* {
#if OWN_SPANS
    return own_spans[of / SPLITS][row];
#else
    return span_part(p, of, head.batch * K_HEADS + head.k_head, row);
#endif
  };
#if SEGMENTS > 1
  // The segments of the span become one.
  const auto join = [&](const HeadSums& now) {
    now.each_head([&](int row, int i, int h) {
      f32* const to = of_segments[segment()][row];
      if (own_element() < V_DIM) store(to + own_element(), now.elements(i, h));
      if (threadIdx.x % (32 * kWarps) < 4)
        to[V_DIM] = now.top[i][h], to[V_DIM + 1] = now.total[i][h];
    });
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kOwnFours; ++k) {
      const int four = k * kThreads + (int)threadIdx.x, row = four / kFours;
      if (row >= GROUP) break;
      FourSums span;
#pragma unroll
      for (int w = 0; w < SEGMENTS; ++w) {
        const f32* const from = of_segments[w][row];
        const Vec<f32, 4> of = load<f32, 4>(from + four % kFours * 4);
        span.join(of.v, from[V_DIM], from[V_DIM + 1]);
      }
#if SPLITS == 1
      all[k].join(span.of, span.top, span.total);
#else
      f32* const part = part_of_span(key / kSpan, row);
      store(part + four % kFours * 4, Vec<f32, 4>{span.of[0], span.of[1], span.of[2], span.of[3]});
      if (four % kFours == 0) store(part + V_DIM, Vec<f32, 2>{span.top, span.total});
#endif
    }
    __syncthreads();
  };
#else
#if SPLITS == 1
  of_earlier[threadIdx.x] = HeadSums();
#endif
  // The segment joins those before it; then the span ends, or goes on.
  const auto join = [&](const HeadSums& now) {
    span.join(now);
    if (next < token.keys.last && next % kSpan != 0) return;
#if SPLITS == 1
    of_earlier[threadIdx.x].join(span);
#else
    span.each_head([&](int row, int i, int h) {
      f32* const part = part_of_span(key / kSpan, row);
      if (own_element() < V_DIM) store(part + own_element(), span.elements(i, h));
      if (threadIdx.x < 4) store(part + V_DIM, Vec<f32, 2>{span.top[i][h], span.total[i][h]});
    });
#endif
    span = HeadSums();
  };
#endif
  // The first pass only loads, so that the code of loads is there once.
  bool loaded =
      next < 0;  // false; the compiler, which would split the first pass off, does not know
#pragma unroll 1
  for (int own_exchange = 0;; own_exchange = (own_exchange + 1) % kExchanges, loaded = true) {
    f32 s[kKeyTiles][4] = {};
    HeadSums now;
    const bool more = token.has(next);
    if (loaded) multiply_keys(s);
    if (more) load_keys();
    if (loaded) multiply_values(s, now, exchanges[segment()][own_exchange]);
    if (more) load_values();
    if (loaded)
      join(now);
    else
      prepare();
    key = next, next = token.next_of(key);
    next_lines = KeyLines(p, token, next);
    if (!more) break;
  }

#if SPLITS == 1 && SEGMENTS > 1
#pragma unroll
  for (int k = 0; k < kOwnFours; ++k) {
    const int four = k * kThreads + (int)threadIdx.x, row = four / kFours;
    if (row >= GROUP) break;
    Vec<T, 4> y;
#pragma unroll
    for (int e = 0; e < 4; ++e) y.v[e] = mean(all[k].of[e], all[k].total);
    store(result_of(p, head, {head.k_head * GROUP + row, 0}) + four % kFours * 4, y);
  }
#elif SPLITS == 1
  const HeadSums& all = of_earlier[threadIdx.x];
  all.each_head([&](int row, int i, int h) {
    const Vec<f32, kEach> sums = all.elements(i, h);
    Vec<T, kEach> y;
#pragma unroll
    for (int e = 0; e < kEach; ++e) y.v[e] = mean(sums.v[e], all.total[i][h]);
    if (own_element() < V_DIM)
      store(result_of(p, head, {head.k_head * GROUP + row, 0}) + own_element(), y);
  });
#elif CLUSTER > 1
  cluster_arrive();
  cluster_wait();
  constexpr int kAllWarps = kWarps * SEGMENTS;
  for (int row = token.split + CLUSTER * (int)(threadIdx.x / 32); row < GROUP;
       row += CLUSTER * kAllWarps)
    join_spans(p, head, token.keys, row, lane(), 32, [&](i32 of) -> const f32* {
#if OWN_SPANS
      return in_block(&own_spans[of / SPLITS][row][0], of % SPLITS);
#else
      return part_of_span(of, row);
#endif
    });
#if OWN_SPANS  // no block ends while others read its sums
  cluster_arrive();
  cluster_wait();
#endif
#endif
}
#endif
