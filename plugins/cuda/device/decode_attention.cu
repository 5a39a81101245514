// SPDX-License-Identifier: Apache-2.0
// decode_attention: one token of each sequence. A block has the queries of a key head and tiles of its
// keys, 16 for each warp: every tile, or one in SPLITS. Keys and values go from memory to the registers
// from which tensor cores take them. Both operands of a product have their terms in the same order, which
// need not be that in memory, so a lane loads 16 bytes at a time. The warp whose keys have the token's own
// position turns its key, too, and puts key and value into the caches. The sums of warps are joined in
// order, and those of blocks by the blocks of a cluster, or by attention_merge.cu; with the same bits.
// Defines: as attention.cuh; DIM, V_DIM, GROUP and K_HEADS: sizes of Attention; SPLITS, WARPS;
// CLUSTER (blocks that join their sums: all splits, or 1); ROWS: dtype of the rows of the caches; ROPE: 0:
// nothing turns, 1: halves of a head, 2: neighbours; HALF: pairs that turn; IDS: dtype of position_ids.
//variant: TT=f16 TS=f32 MASK=0 DIM=128 V_DIM=128 GROUP=4 K_HEADS=8 SPLITS=8 WARPS=8 CLUSTER=8 KV_LEN=i64 PAST_LEN=i64 ROWS=i64 ROPE=1 HALF=64 IDS=i64
//variant: TT=bf16 TS=f32 MASK=0 DIM=80 V_DIM=80 GROUP=16 K_HEADS=2 SPLITS=1 WARPS=4 SOFTCAP=1 CLUSTER=1 KV_LEN=i32 PAST_LEN=i32 ROWS=i32 ROPE=2 HALF=13 IDS=i32 BLOCK_TABLE=i64
//variant: TT=bf16 TS=f32 MASK=0 DIM=96 V_DIM=40 GROUP=1 K_HEADS=3 SPLITS=6 WARPS=4 CLUSTER=1 KV_LEN=i64 PAST_LEN=i64 ROWS=i64 ROPE=1 HALF=24 IDS=i64 BLOCK_TABLE=i32
//variant: TT=bf16 TS=f32 MASK=0 DIM=64 V_DIM=64 GROUP=4 K_HEADS=8 SPLITS=2 WARPS=4 CLUSTER=1 KV_LEN=i64 PAST_LEN=i64 ROWS=i64 ROPE=0 HALF=0
#include "attention_epilogue.cuh"
#include "cluster.cuh"
#include "decode_attention.cuh"
#include "rotation.cuh"
#include "row_max.cuh"

#if __CUDA_ARCH__ >= 800
constexpr int kKeys = 16, kTile = kKeys * WARPS;  // keys of a warp, of a block
constexpr int kThreads = 32 * WARPS, kHeadHalves = GROUP > 8 ? 2 : 1;
constexpr int kResidentBlocks = WARPS > 4 ? 1 : GROUP > 8 ? 2 : 4;  // on a multiprocessor
typedef Vec<u32, 4> Piece;                                          // eight elements

__device__ inline int warp() { return threadIdx.x / 32; }

// ---- Queries and keys: lane l has row l / 4 of eight, and of each chunk of its row a piece

constexpr int kTurned = ROPE == 1 ? HALF : 0, kTurnedChunks = (kTurned + 31) / 32;
constexpr int kChunks = 2 * kTurnedChunks + (DIM - 2 * kTurned + 31) / 32;
// Where the lane's piece begins, DIM or more if it has none. Halves that turn together are
// kTurnedChunks chunks apart, in one lane.
__device__ inline int column_of(int chunk) {
  const int own = lane() % 4 * 8;
  if (chunk >= 2 * kTurnedChunks) return 2 * kTurned + (chunk - 2 * kTurnedChunks) * 32 + own;
  const int at = chunk % (kTurnedChunks > 0 ? kTurnedChunks : 1) * 32 + own;
  return at < kTurned ? at + chunk / (kTurnedChunks > 0 ? kTurnedChunks : 1) * kTurned : DIM;
}
struct Line {
  Piece chunk[kChunks];

  __device__ __forceinline__ void load_from(const T* row, bool real) {
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      chunk[c] = {};
      if (real && column_of(c) < DIM)
        chunk[c] = load<u32, 4>(reinterpret_cast<const u32*>(row + column_of(c)));
    }
  }
  // Turns by the angles whose cosines and sines begin here.
  __device__ __forceinline__ void turn(const f32* cosines, const f32* sines);
};
__device__ __forceinline__ void turn_pair(u32& x, u32& y, f32 cosine, f32 sine, f32 next_cosine,
                                          f32 next_sine) {
  const Turned<f32> a = turned(first_of(x, T{}), first_of(y, T{}), cosine, sine),
                    b = turned(second_of(x, T{}), second_of(y, T{}), next_cosine, next_sine);
  x = pack(a.first, b.first), y = pack(a.second, b.second);
}
__device__ __forceinline__ void Line::turn(const f32* cosines, const f32* sines) {
  if constexpr (ROPE == 1) {
#pragma unroll
    for (int c = 0; c < kTurnedChunks; ++c) {
      const int at = column_of(c);
      if (at >= DIM) continue;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const Vec<f32, 4> cosine = load<f32, 4>(cosines + at + 4 * i),
                          sine = load<f32, 4>(sines + at + 4 * i);
#pragma unroll
        for (int e = 0; e < 2; ++e)
          turn_pair(chunk[c].v[2 * i + e], chunk[kTurnedChunks + c].v[2 * i + e], cosine.v[2 * e],
                    sine.v[2 * e], cosine.v[2 * e + 1], sine.v[2 * e + 1]);
      }
    }
  } else if constexpr (ROPE == 2) {
#pragma unroll
    for (int c = 0; c < kChunks; ++c)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int pair = column_of(c) / 2 + e;
        if (pair >= HALF) continue;
        u32& both = chunk[c].v[e];
        const Turned<f32> t =
            turned(first_of(both, T{}), second_of(both, T{}), cosines[pair], sines[pair]);
        both = pack(t.first, t.second);
      }
  }
}

// ---- Which keys

struct Token : TokenOfBlock {
  using TokenOfBlock::TokenOfBlock;
  // The warp's first key.
  __device__ i32 begin() const {
    const i32 tile = keys.first / kTile, ahead = (split - tile % SPLITS + SPLITS) % SPLITS;
    return (tile + ahead) * kTile + warp() * kKeys;
  }
  __device__ bool is_of_warp() const {
    return own >= 0 && own / kTile % SPLITS == split && own / kKeys % WARPS == warp();
  }
};

// Where the 16 keys from `key` on lie: steps from the sequence's first, or that of the pool; -1: a key
// that is not attended to. Lane l knows keys l / 4 and l / 4 + 8.
struct KeyLines {
  i32 of[2];
  __device__ __forceinline__ KeyLines(const Attention& p, const Token& token, i32 key) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const i32 mine = key + 8 * h + lane() / 4;
      of[h] = -1;
      if (mine < token.keys.first || mine >= token.keys.last) continue;
#ifdef BLOCK_TABLE
      of[h] = line_of(p, token.head.batch, mine);
#else
      of[h] = mine;
#endif
    }
  }
  // Of key 2 * (l % 4) + next + 8 * half, for lane l.
  __device__ __forceinline__ i32 of_value(int half, int next) const {
    return __shfl_sync(~0u, of[half], lane() % 4 * 8 + 4 * next);
  }
};

// ---- Values: lane l has keys 2 * (l % 4) and the next, and those 8 further; of each part of 64 elements the
// eight from 8 * (l / 4) on

constexpr int kParts = (V_DIM + 63) / 64;
struct Values {
  Piece of[kParts][4];

  __device__ __forceinline__ void load_from(const T* base, i64 step, const KeyLines& lines,
                                            const T* fresh, i32 fresh_at) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const i32 line = lines.of_value(k / 2, k % 2);
      const T* const row =
          lane() % 4 * 2 + k % 2 + k / 2 * 8 == fresh_at ? fresh : base + line * step;
#pragma unroll
      for (int b = 0; b < kParts; ++b) {
        const int column = b * 64 + lane() / 4 * 8;
        of[b][k] = {};
        if (line >= 0 && column < V_DIM)
          of[b][k] = load<u32, 4>(reinterpret_cast<const u32*>(row + column));
      }
    }
  }
};

// ---- Sums

// Of a warp: element 2 * e + h of part `of[i][b][t]` is that of element 64 * b + 8 * (l / 4) + 2 * t + e and
// head 8 * i + 2 * (l % 4) + h. Maxima and sums of weights: of head 8 * i + l / 4.
struct HeadSums {
  f32 of[kHeadHalves][kParts][4][4] = {}, row_max[kHeadHalves], row_sum[kHeadHalves] = {};

  __device__ HeadSums() {
#pragma unroll
    for (int i = 0; i < kHeadHalves; ++i) row_max[i] = -infinity(0.f);
  }
  // s: scores of 16 keys, as multiply_add leaves them: of heads l / 4 and l / 4 + 8. They become weights.
  __device__ __forceinline__ void follow(f32 (&s)[8]) {
#pragma unroll
    for (int i = 0; i < kHeadHalves; ++i) {
      f32 now = fmaxf(fmaxf(s[2 * i], s[2 * i + 1]), fmaxf(s[4 + 2 * i], s[5 + 2 * i]));
      now = fmaxf(now, __shfl_xor_sync(~0u, now, 1));
      now = fmaxf(now, __shfl_xor_sync(~0u, now, 2));
      const RowMax next = follow_max<false>(row_max[i], now, kLog2E);
      row_max[i] = next.row_max;
      f32 sum = 0;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        f32& x = s[e / 2 * 4 + 2 * i + e % 2];
        x = weight_of<false>(x, next.base, kLog2E);
        sum += x;
      }
      row_sum[i] = row_sum[i] * next.rescale + sum;
      if (!__any_sync(~0u, next.rescale != 1)) continue;
      const f32 factor[2] = {__shfl_sync(~0u, next.rescale, lane() % 4 * 8),
                             __shfl_sync(~0u, next.rescale, lane() % 4 * 8 + 4)};
#pragma unroll
      for (int b = 0; b < kParts; ++b)
#pragma unroll
        for (int t = 0; t < 4; ++t)
#pragma unroll
          for (int e = 0; e < 4; ++e) of[i][b][t][e] *= factor[e % 2];
    }
  }
  // Weights as two halves, the rounded one and the rest: the second product costs no time here.
  __device__ __forceinline__ void add(const f32 (&s)[8], const Values& values) {
    u32 weights[4], rest[4];
    round_sixteen<true>(s, weights, rest);
#pragma unroll
    for (int b = 0; b < kParts; ++b)
#pragma unroll
      for (int t = 0; t < 4; ++t) {
        const auto words = [&](int k, u32 order) {
          return __byte_perm(values.of[b][k].v[t], values.of[b][k + 1].v[t], order);
        };
        const u32 left[4] = {words(0, 0x5410), words(0, 0x7632), words(2, 0x5410),
                             words(2, 0x7632)};
#pragma unroll
        for (int i = 0; i < kHeadHalves; ++i) {
          multiply_add(of[i][b][t], left, weights[i], weights[2 + i], T{});
          multiply_add(of[i][b][t], left, rest[i], rest[2 + i], T{});
        }
      }
  }
};

// In shared memory: of a head V_DIM sums, the maximum, the sum of weights.
constexpr int kStride = kParts * 64 + 4, kOfMax = kStride - 2, kOfSum = kStride - 1;
typedef f32 SharedSums[GROUP][kStride];

__device__ __forceinline__ void put(const HeadSums& sums, SharedSums& to) {
#pragma unroll
  for (int i = 0; i < kHeadHalves; ++i) {
    f32 sum = sums.row_sum[i];
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    const int row = 8 * i + lane() / 4;
    if (lane() % 4 == 0 && row < GROUP) to[row][kOfMax] = sums.row_max[i], to[row][kOfSum] = sum;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int head = 8 * i + lane() % 4 * 2 + h;
      if (head >= GROUP) continue;
#pragma unroll
      for (int b = 0; b < kParts; ++b)
#pragma unroll
        for (int t = 0; t < 4; t += 2)
          store(&to[head][b * 64 + lane() / 4 * 8 + 2 * t],
                Vec<f32, 4>{sums.of[i][b][t][h], sums.of[i][b][t][2 + h], sums.of[i][b][t + 1][h],
                            sums.of[i][b][t + 1][2 + h]});
    }
  }
}

// Four elements of a head, and what belongs to them.
struct Part {
  Vec<f32, 4> of;
  f32 top, total;
};
// The sum of N parts in order, by their factors.
template <int N, class Exp>
__device__ __forceinline__ Part joined(const Part (&part)[N], Exp exp_of) {
  f32 top = part[0].top;
#pragma unroll
  for (int i = 1; i < N; ++i) top = fmaxf(top, part[i].top);
  const f32 base = top == -infinity(0.f) ? 0.f : top;
  Part sum{{}, top, 0};
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const f32 factor = exp_of(part[i].top - base);
    sum.total += part[i].total * factor;
#pragma unroll
    for (int e = 0; e < 4; ++e) sum.of.v[e] += part[i].of.v[e] * factor;
  }
  return sum;
}
constexpr int kFours = V_DIM / 4;  // of a head
__device__ __forceinline__ void put_result(const Attention& p, const Token& token, int four,
                                           const Part& sum) {
  Vec<T, 4> y;
#pragma unroll
  for (int e = 0; e < 4; ++e) y.v[e] = mean(sum.of.v[e], sum.total);
  const i32 row = token.head.k_head * GROUP + four / kFours;
  store(result_of(p, token.head, {row, 0}) + four % kFours * 4, y);
}

extern "C" IN_CLUSTER __global__ void __launch_bounds__(kThreads, kResidentBlocks)
    attention(const DecodeAttention d) {
  __shared__ __align__(16) T fresh[DIM];
  __shared__ __align__(16) SharedSums of_warps[WARPS];
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

  i32 key = token.begin();
  KeyLines next(p, token, key);
  Line keys[2];
  Values values;
  const auto load_keys = [&](const KeyLines& lines) {
#pragma unroll
    for (int h = 0; h < 2; ++h)
      keys[h].load_from(k_base + lines.of[h] * p.k_strides.step, lines.of[h] >= 0);
  };
  const auto load_values = [&](i32 from, const KeyLines& lines) {
    values.load_from(v_base, p.v_strides.step, lines, new_value,
                     token.among(from, kKeys) ? token.own - from : kKeys);
  };
  load_keys(next), load_values(key, next);

  // Queries as left operands: heads l / 4 and l / 4 + 8 in turn.
  Line queries[kHeadHalves], own_key;
#pragma unroll
  for (int i = 0; i < kHeadHalves; ++i) {
    const int row = 8 * i + lane() / 4;
    queries[i].load_from((const T*)p.q + at(p.q_strides, head.batch, head.k_head * GROUP + row, 0),
                         row < GROUP);
  }
  const bool appends = token.is_of_warp();
  if (appends) own_key.load_from((const T*)d.k + at(d.new_k, head.batch, head.k_head, 0), true);
#if ROPE
  const i64 id = ((const IDS*)d.ids)[head.batch];
  if (id >= 0 && id < d.table_rows) {
    const f32* const cosines = (const f32*)d.cosines + id * HALF;
    const f32* const sines = (const f32*)d.sines + id * HALF;
#pragma unroll
    for (int i = 0; i < kHeadHalves; ++i) queries[i].turn(cosines, sines);
    if (appends) own_key.turn(cosines, sines);
  } else if (head.k_head + token.split + (i32)threadIdx.x == 0) {
    report(p.sink, kIndexOutOfRange, (u64)((i64)p.batch * p.blocks + head.batch));
  }
#endif
  if (appends) {
    const i64 line = token.row * K_HEADS + head.k_head;
    if (lane() < 4)
#pragma unroll
      for (int c = 0; c < kChunks; ++c)
        if (column_of(c) < DIM) {
          store(reinterpret_cast<u32*>(fresh + column_of(c)), own_key.chunk[c]);
          store(reinterpret_cast<u32*>((T*)d.k_next + line * DIM + column_of(c)), own_key.chunk[c]);
        }
    token.append_value(d, new_value);
    __syncwarp();
  }

  HeadSums sums;
  next = KeyLines(p, token, key + kTile * SPLITS);
  for (; key < token.keys.last; key += kTile * SPLITS) {
    if (token.among(key, kKeys))
#pragma unroll
      for (int h = 0; h < 2; ++h)
        if (key + 8 * h + lane() / 4 == token.own) keys[h].load_from(fresh, true);
    f32 s[8] = {};
#pragma unroll
    for (int c = 0; c < kChunks; ++c)
#pragma unroll
      for (int e = 0; e < 4; e += 2) {
        const u32 left[4] = {queries[0].chunk[c].v[e],
                             kHeadHalves > 1 ? queries[kHeadHalves - 1].chunk[c].v[e] : 0,
                             queries[0].chunk[c].v[e + 1],
                             kHeadHalves > 1 ? queries[kHeadHalves - 1].chunk[c].v[e + 1] : 0};
#pragma unroll
        for (int h = 0; h < 2; ++h)
          multiply_add(s + 4 * h, left, keys[h].chunk[c].v[e], keys[h].chunk[c].v[e + 1], T{});
      }
    const KeyLines lines = next;
    next = KeyLines(p, token, key + 2 * kTile * SPLITS);
    load_keys(lines);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const i32 at = key + i / 4 * 8 + lane() % 4 * 2 + i % 2;
      f32 capped;
      s[i] = (at >= token.keys.first) & (at < token.keys.last) ? score(p, s[i], nullptr, at, capped)
                                                               : -infinity(0.f);
    }
    sums.follow(s);
    sums.add(s, values);
    load_values(key + kTile * SPLITS, lines);
  }
  put(sums, of_warps[warp()]);
  __syncthreads();

  const auto part_at = [](const SharedSums& from, int four) {
    const f32* const row = from[four / kFours];
    return Part{load<f32, 4>(row + four % kFours * 4), row[kOfMax], row[kOfSum]};
  };
  const auto of_block = [&](int four) {
    Part part[WARPS];
#pragma unroll
    for (int w = 0; w < WARPS; ++w) part[w] = part_at(of_warps[w], four);
    return joined(part, [](f32 x) { return exp2_of(x * kLog2E); });
  };
#if SPLITS == 1
  for (int four = threadIdx.x; four < GROUP * kFours; four += kThreads)
    put_result(p, token, four, of_block(four));
#elif CLUSTER == 1
  for (int four = threadIdx.x; four < GROUP * kFours; four += kThreads) {
    const Part sum = of_block(four);
    S* const to = part_of(p, head.batch * K_HEADS + head.k_head, token.split, four / kFours);
#pragma unroll
    for (int e = 0; e < 4; ++e) to[four % kFours * 4 + e] = sum.of.v[e];
    if (four % kFours == 0) to[V_DIM] = sum.top, to[V_DIM + 1] = sum.total;
  }
#else
  __shared__ __align__(16) SharedSums of_block_sums;
  for (int four = threadIdx.x; four < GROUP * kFours; four += kThreads) {
    const Part sum = of_block(four);
    f32* const to = of_block_sums[four / kFours];
    store(to + four % kFours * 4, sum.of);
    if (four % kFours == 0) to[kOfMax] = sum.top, to[kOfSum] = sum.total;
  }
  cluster_arrive();
  cluster_wait();
  for (int four = token.split + CLUSTER * (int)threadIdx.x; four < GROUP * kFours;
       four += CLUSTER * kThreads) {
    Part part[CLUSTER];
#pragma unroll
    for (int c = 0; c < CLUSTER; ++c) part[c] = part_at(*in_block(&of_block_sums, c), four);
    put_result(p, token, four, joined(part, [](f32 x) { return exp(x); }));
  }
  // No block ends while others read its sums.
  cluster_arrive();
  cluster_wait();
#endif
}
#endif
