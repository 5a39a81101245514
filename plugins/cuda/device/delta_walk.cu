//variant: TYPE=bf16 KEYS=128 COLUMNS=128 STAGES=3
//variant: TYPE=bf16 KEYS=128 COLUMNS=64 STAGES=1
//variant: TYPE=bf16 KEYS=64 COLUMNS=32 STAGES=2
// SPDX-License-Identifier: Apache-2.0
// gated_delta_rule in chunks of 64 tokens: the walk through the chunks of a value head, one after the
// other, and the walk back through the gradients of the states. delta_chunks.cu has the formulas.
// A warp keeps 16 columns of the state, transposed, in registers: results of its products are left
// operands of the next ones, so warps exchange nothing. STAGES: chunks whose operands are in shared
// memory at once.
//entry: delta_walk_forward = forward(DeltaRule, DeltaChunks, Out, f32*)
//entry: delta_walk_save = save(DeltaRule, DeltaChunks)
//entry: delta_walk_back = back(DeltaRule, DeltaChunks, DeltaChunkGradients)
#include "delta_chunks.cuh"

constexpr int kColumns = COLUMNS, kStages = STAGES, kThreads = kColumns * 2;
constexpr int kBlocks = kKeys / 8;  // of a warp's states
extern __shared__ __align__(16) unsigned char memory[];

struct SaveStage {
  T k[kTokens][kKeyPitch], x[kTokens][kPitch];
  T v[kTokens][kColumns + 8];  // or dO; then results
  f32 facts[kFacts][kTokens];
};
struct WholeStage : SaveStage {
  T q[kTokens][kKeyPitch], pairs[kTokens][kPitch];
};

// What kernels/delta_rule_chunks.cpp asks for.
static_assert(sizeof(SaveStage) == 128 * (kKeyPitch + kColumns + 8) + 11008, "");
static_assert(sizeof(WholeStage) == sizeof(SaveStage) + 128 * kKeyPitch + 9216, "");

#if __CUDA_ARCH__ >= 800

typedef f32 State[kBlocks][4];  // 16 columns, all keys

// A block's columns of a value head, and the columns of its warp.
struct Walker {
  const DeltaRule& s;
  const DeltaChunks& from;
  i64 sequence, chunks, states;  // states: place of the head's states
  int head, column, own;         // own: the warp's first column in the block

  __device__ Walker(const DeltaRule& s, const DeltaChunks& from) : s(s), from(from) {
    const i64 heads = (i64)s.heads * s.each, outer = blockIdx.x / s.tiles;
    column = (int)(blockIdx.x % s.tiles) * kColumns;
    sequence = outer / heads, head = (int)(outer % heads);
    chunks = (s.tokens + kTokens - 1) / kTokens;
    states = outer * s.keys * (i64)s.values;
    own = threadIdx.x / 32 * 16;
  }
  __device__ i64 key_head() const { return sequence * s.heads + head / s.each; }
  // Is one of the key head's chunks odd? Marks it then. All threads come here.
  __device__ bool is_any_odd() const {
    const i64 heads = (i64)s.heads * s.each;
    const int first = head / s.each * s.each;
    bool found = false;
    for (i64 i = threadIdx.x; i < chunks * s.each; i += kThreads)
      found = found ||
              from.odd[(sequence * chunks + i / s.each) * heads + first + (int)(i % s.each)] != 0;
    found = __syncthreads_or(found) != 0;
    mark(found);
    return found;
  }
  // Later kernels see the mark, and give what this one cannot.
  __device__ void mark(bool odd) const {
    if (odd) from.odd_heads[key_head()] = 1;
  }
  __device__ ChunkPlace place(i64 chunk) const { return {s, sequence, chunk, head}; }
  __device__ i64 key_stride() const { return (i64)s.heads * s.keys; }
  __device__ i64 value_stride() const { return (i64)s.heads * s.each * s.values; }
  __device__ i64 values_at(const ChunkPlace& at) const { return at.row(s) * s.values + column; }

  // values: v or dO.
  __device__ void fetch(const ChunkPlace& at, SaveStage& to, const void* values) const {
    fetch_rows<kThreads, kKeys>(static_cast<const T*>(s.k) + at.key_row(s) * s.keys, key_stride(),
                                at.count, to.k);
    fetch_rows<kThreads, kTokens>(static_cast<const T*>(from.x) + at.index(s) * kTokens * kTokens,
                                  kTokens, kTokens, to.x);
    fetch_rows<kThreads, kColumns>(static_cast<const T*>(values) + values_at(at), value_stride(),
                                   at.count, to.v);
    fetch_facts<kThreads>(from.facts + at.index(s) * kFacts * kTokens, to.facts);
  }
  __device__ void fetch(const ChunkPlace& at, WholeStage& to, const void* values) const {
    fetch(at, static_cast<SaveStage&>(to), values);
    fetch_rows<kThreads, kKeys>(static_cast<const T*>(s.q) + at.key_row(s) * s.keys, key_stride(),
                                at.count, to.q);
    fetch_rows<kThreads, kTokens>(
        static_cast<const T*>(from.pairs) + at.index(s) * kTokens * kTokens, kTokens, kTokens,
        to.pairs);
  }

  template <class F>
  __device__ void for_state(F&& f) const {  // f(block, element, where it is in [K, V])
    for_elements<kBlocks>([&](int j, int i, int row, int key) {
      f(j, i, states + key * (i64)s.values + column + own + row);
    });
  }
  // Rounded, as [V, K] of a chunk.
  __device__ void keep(const State& state, const ChunkPlace& at, void* to) const {
    T* const p = static_cast<T*>(to) + (at.index(s) * s.values + column + own) * kKeys;
    for_pairs<kBlocks>([&](int j, int i, int row, int key) {
      put_pair(p + row * kKeys + key, state[j][i], state[j][i + 1]);
    });
  }
  // Results of the warp, 16 columns of 64 tokens, by way of its columns of `area`.
  template <int kTo>
  __device__ void give(const f32 (&acc)[8][4], T (*area)[kTo], T* to, i64 stride, int count) const {
    __syncwarp();
    for_elements<8>(
        [&](int j, int i, int row, int token) { area[token][own + row] = narrow<T>(acc[j][i]); });
    __syncwarp();
    for (int i = threadIdx.x % 32; i < kTokens * 2; i += 32) {
      const int t = i / 2, c = own + i % 2 * 8;
      if (t < count) store(to + t * stride + c, load<T, 8>(&area[t][c]));
    }
  }
};

// NaN if one of the elements is not finite, else 0.
__device__ inline void watch(const u32 (&words)[4], f32& odd) {
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int e = 0; e < 2; ++e) odd = fmaf(widen_half(words[i], e, T{}), 0.f, odd);
}
// acc = v - acc, of the warp's columns.
template <int kTo>
__device__ inline void subtract_from(f32 (&acc)[8][4], const T (*v)[kTo], int own, f32& odd) {
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    u32 words[4];
    load_left<false>(words, &v[0][0], kTo, own, step * 16);
    watch(words, odd);
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        f32& x = acc[2 * step + i / 2][i % 2 * 2 + e];
        x = widen_half(words[i], e, T{}) - x;
      }
  }
}
__device__ inline void decay(State& state, f32 factor) {
#pragma unroll
  for (int j = 0; j < kBlocks; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) state[j][i] *= factor;
}
// For each chunk, in the order of step(i): fetch(chunk, its stage), then use(chunk, its stage).
template <class Stage, class Order, class Fetch, class Use>
__device__ inline void for_stages(i64 chunks, Order&& order, Fetch&& fetch, Use&& use) {
  Stage* const stages = reinterpret_cast<Stage*>(memory);
  const auto start = [&](i64 i) {
    if (i < chunks) fetch(order(i), stages[i % kStages]);
    copy_commit();
  };
#pragma unroll
  for (int i = 0; i < kStages - 1; ++i) start(i);
  for (i64 i = 0; i < chunks; ++i) {
    if (kStages == 1) {
      __syncthreads();  // the chunk before was read
      start(i);
    }
    copy_wait<(kStages > 2 ? kStages - 2 : 0)>();
    __syncthreads();
    if (kStages > 1) start(i + kStages - 1);
    use(order(i), stages[i % kStages]);
  }
}

template <bool kSaves>
struct StageOf {
  typedef SaveStage type;
};
template <>
struct StageOf<false> {
  typedef WholeStage type;
};

template <bool kSaves>
__device__ inline void walk(const DeltaRule& s, const DeltaChunks& from, T* o, f32* last) {
  typedef typename StageOf<kSaves>::type Stage;
  const Walker walker(s, from);
  if (walker.is_any_odd()) return;  // delta_rule.cu takes it
  const int own = walker.own;
  f32 odd = 0;
  State state = {};
  if (s.state) walker.for_state([&](int j, int i, i64 at) { state[j][i] = s.state[at]; });
  const auto fetch = [&](i64 chunk, Stage& to) { walker.fetch(walker.place(chunk), to, s.v); };
  const auto use = [&](i64 chunk, Stage& a) {
    const ChunkPlace at = walker.place(chunk);
    if constexpr (kSaves) walker.keep(state, at, from.states);
    f32 rest[8][4] = {}, out[8][4] = {};
    {
      f32 lack[8][4] = {};  // V - diag(e^γ) K S
#pragma unroll
      for (int k = 0; k < kKeys / 16; ++k) {
        u32 left[4];
        as_left(left, state, k);
        multiply_left<true>(lack, left, a.k, 0, k * 16);
        if constexpr (!kSaves) multiply_left<true>(out, left, a.q, 0, k * 16);
      }
      for_elements<8>([&](int j, int i, int, int token) { lack[j][i] *= a.facts[kIn][token]; });
      subtract_from(lack, a.v, own, odd);
      multiply_lower<true>(rest, lack, a.x);
    }
    decay(state, expf(a.facts[kGamma][kTokens - 1]));
    if constexpr (kSaves) {
      walker.give(rest, a.v,
                  static_cast<T*>(from.rest) + at.index(s) * kTokens * s.values + walker.column,
                  s.values, kTokens);
    } else {
      for_elements<8>([&](int j, int i, int, int token) { out[j][i] *= a.facts[kOut][token]; });
      multiply_lower<true>(out, rest, a.pairs);
      walker.give(out, a.v, o + walker.values_at(at), walker.value_stride(), at.count);
    }
    for_elements<8>([&](int j, int i, int, int token) { rest[j][i] *= a.facts[kLate][token]; });
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      u32 left[4];
      as_left(left, rest, k);
      multiply_left<false>(state, left, a.k, 0, k * 16);
    }
  };
  for_stages<Stage>(
      walker.chunks, [](i64 i) { return i; }, fetch, use);
  walker.mark(!(odd == 0.f));
  if (!kSaves && last) walker.for_state([&](int j, int i, i64 at) { last[at] = state[j][i]; });
}

#endif

extern "C" __global__ void __launch_bounds__(kThreads)
    forward(const DeltaRule s, const DeltaChunks from, T* o, f32* last) {
#if __CUDA_ARCH__ >= 800
  walk<false>(s, from, o, last);
#endif
}
extern "C" __global__ void __launch_bounds__(kThreads)
    save(const DeltaRule s, const DeltaChunks from) {
#if __CUDA_ARCH__ >= 800
  walk<true>(s, from, nullptr, nullptr);
#endif
}

// The gradients of v, and those of the states behind each chunk.
extern "C" __global__ void __launch_bounds__(kThreads)
    back(const DeltaRule s, const DeltaChunks from, const DeltaChunkGradients g) {
#if __CUDA_ARCH__ >= 800
  const Walker walker(s, from);
  // Other blocks of the key head may mark it meanwhile: all threads must see the same.
  if (__syncthreads_or(is_odd(s, from.odd_heads, walker.sequence, walker.head))) return;
  const int own = walker.own;
  f32 odd = 0;
  State slope = {};
  if (g.dstate_out) walker.for_state([&](int j, int i, i64 at) { slope[j][i] = g.dstate_out[at]; });
  const auto fetch = [&](i64 chunk, WholeStage& to) {
    walker.fetch(walker.place(chunk), to, g.dout);
  };
  const auto use = [&](i64 chunk, WholeStage& a) {
    const ChunkPlace at = walker.place(chunk);
    walker.keep(slope, at, from.slopes);
    f32 dv[8][4] = {};
    {
      f32 through[8][4] = {};  // P^T dO + diag(β e^(γ_C - γ)) K dS
#pragma unroll
      for (int k = 0; k < kKeys / 16; ++k) {
        u32 left[4];
        as_left(left, slope, k);
        multiply_left<true>(through, left, a.k, 0, k * 16);
      }
      decay(slope, expf(a.facts[kGamma][kTokens - 1]));
      for_elements<8>(
          [&](int j, int i, int, int token) { through[j][i] *= a.facts[kLate][token]; });
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        u32 left[1][4];
        load_left<false>(left[0], &a.v[0][0], kColumns + 8, own, k * 16);
        watch(left[0], odd);
        multiply_lower<false>(through, left, a.pairs, k * 16);
        scale_left(left[0], a.facts[kOut] + k * 16);
        multiply_left<false>(slope, left[0], a.q, 0, k * 16);
      }
      multiply_lower<false>(dv, through, a.x);
    }
    walker.give(dv, a.v, static_cast<T*>(g.dv) + walker.values_at(at), walker.value_stride(),
                at.count);
    for_elements<8>([&](int j, int i, int, int token) { dv[j][i] *= -a.facts[kIn][token]; });
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      u32 left[4];
      as_left(left, dv, k);
      multiply_left<false>(slope, left, a.k, 0, k * 16);
    }
  };
  const i64 chunks = walker.chunks;
  for_stages<WholeStage>(
      chunks, [=](i64 i) { return chunks - 1 - i; }, fetch, use);
  walker.mark(!(odd == 0.f));
  if (g.dstate) walker.for_state([&](int j, int i, i64 at) { g.dstate[at] = slope[j][i]; });
#endif
}
