// SPDX-License-Identifier: Apache-2.0
// What the kernels of gated_delta_rule in chunks of 64 tokens share (from sm_80 on): places of chunks,
// rows in shared memory, products of a warp on tensor cores.
//variant: TYPE=bf16 KEYS=64
#pragma once
#include "delta_rule.args.cuh"
#include "rows.cuh"
#include "tile.cuh"

typedef TYPE T;
constexpr int kKeys = KEYS, kTokens = 64;
constexpr int kKeyPitch = kKeys + 8, kPitch = kTokens + 8;

// Facts of a token. γ: the sum of g from the first token of the chunk on; C: the last token.
enum Fact {
  kGamma,
  kKey,    // factor of the key: 1, or one over its length
  kQuery,  // factor of the query, without the scale
  kBeta,
  kOut,   // scale · kQuery · e^γ
  kLate,  // β · kKey · e^(γ_C - γ)
  kIn,    // kKey · e^γ
  kFacts
};

// Chunk `chunk` of a value head of a sequence.
struct ChunkPlace {
  i64 sequence, chunk, chunks;
  int head, count;  // count: tokens

  __device__ ChunkPlace(const DeltaRule& s, i64 sequence, i64 chunk, int head)
      : sequence(sequence), chunk(chunk), chunks((s.tokens + kTokens - 1) / kTokens), head(head) {
    count = (int)min((i64)kTokens, s.tokens - chunk * kTokens);
  }
  __device__ i64 row(const DeltaRule& s) const {  // of [B, T, HV]
    return (sequence * s.tokens + chunk * kTokens) * s.heads * s.each + head;
  }
  __device__ i64 key_row(const DeltaRule& s) const {  // of [B, T, H]
    return (sequence * s.tokens + chunk * kTokens) * s.heads + head / s.each;
  }
  __device__ i64 index(const DeltaRule& s) const {
    return (sequence * chunks + chunk) * s.heads * s.each + head;
  }
};

#if __CUDA_ARCH__ >= 800

// Starts to copy kTokens rows of kWidth elements, `stride` apart; zeros from row `count` on. The block
// has kBy threads.
template <int kBy, int kWidth, int kTo>
__device__ inline void fetch_rows(const void* from, i64 stride, int count, T (*to)[kTo]) {
  constexpr int each = kWidth / 8;
  const T* const p = static_cast<const T*>(from);
  for (int i = threadIdx.x; i < kTokens * each; i += kBy) {
    const int t = i / each, c = i % each * 8;
    copy_async(&to[t][c], p + (t < count ? t * stride + c : 0), t < count);
  }
}
template <int kBy>
__device__ inline void fetch_facts(const f32* from, f32 (&to)[kFacts][kTokens]) {
  for (int i = threadIdx.x * 4; i < kFacts * kTokens; i += kBy * 4)
    copy_async(&to[0][0] + i, from + i, true);
}

// A lane of a warp holds rows lane / 4 (+ 8) and columns lane % 4 * 2 (+ 1) of each 16 x 8 block of a
// result. f(block, its element, row, column).
template <int kBlocks, class F>
__device__ inline void for_elements(F&& f) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int j = 0; j < kBlocks; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) f(j, i, lane / 4 + i / 2 * 8, j * 8 + lane % 4 * 2 + i % 2);
}
// The same for pairs of neighbouring columns: element i and the next one.
template <int kBlocks, class F>
__device__ inline void for_pairs(F&& f) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int j = 0; j < kBlocks; ++j)
#pragma unroll
    for (int i = 0; i < 4; i += 2) f(j, i, lane / 4 + i / 2 * 8, j * 8 + lane % 4 * 2);
}
__device__ inline void put_pair(T* to, f32 low, f32 high) {
  *reinterpret_cast<u32*>(to) = narrow_pair(low, high, T{});
}
// Two blocks of a result as a left operand of 16 terms: a lane holds the same places of both.
template <int kBlocks>
__device__ inline void as_left(u32 (&a)[4], const f32 (&acc)[kBlocks][4], int step) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const f32* const pair = acc[2 * step + i / 2] + i % 2 * 2;
    a[i] = narrow_pair(pair[0], pair[1], T{});
  }
}
// What as_left rounds away, as a second left operand.
template <int kBlocks>
__device__ inline void as_left_rest(u32 (&rest)[4], const u32 (&a)[4], const f32 (&acc)[kBlocks][4],
                                    int step) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const f32* const pair = acc[2 * step + i / 2] + i % 2 * 2;
    rest[i] =
        narrow_pair(pair[0] - widen_half(a[i], 0, T{}), pair[1] - widen_half(a[i], 1, T{}), T{});
  }
}
// Multiplies the columns of a left operand by factors, which begin with its first column. rest: what
// the rounding of the products loses; null where not wanted.
__device__ inline void scale_left(u32 (&a)[4], const f32* factors, u32 (*rest)[4] = nullptr) {
  const f32* const own = factors + threadIdx.x % 4 * 2;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const f32* const pair = own + i / 2 * 8;
    const f32 low = widen_half(a[i], 0, T{}) * pair[0], high = widen_half(a[i], 1, T{}) * pair[1];
    a[i] = narrow_pair(low, high, T{});
    if (rest)
      (*rest)[i] =
          narrow_pair(low - widen_half(a[i], 0, T{}), high - widen_half(a[i], 1, T{}), T{});
  }
}
// acc += a right, where a has the 16 terms from k on; the columns begin with `column`.
template <bool kByK, int kBlocks, int kTo>
__device__ inline void multiply_left(f32 (&acc)[kBlocks][4], const u32 (&a)[4],
                                     const T (*right)[kTo], int column, int k) {
#pragma unroll
  for (int j = 0; j < kBlocks; j += 2) {
    u32 b[4];
    load_right<kByK>(b, &right[0][0], kTo, column + j * 8, k);
    multiply_add(acc[j], a, b[0], b[1], T{});
    multiply_add(acc[j + 1], a, b[2], b[3], T{});
  }
}
// The same, of a right operand [64, 64] that is zero above its diagonal: stored rows are columns of the
// product when kByK, else terms. The parts of a left operand add up to it.
template <bool kByK, int kParts, int kTo>
__device__ inline void multiply_lower(f32 (&acc)[8][4], const u32 (&a)[kParts][4],
                                      const T (*right)[kTo], int k) {
#pragma unroll
  for (int j = 0; j < 8; j += 2) {
    if (kByK ? j * 8 < k : j * 8 > k) continue;
    u32 b[4];
    load_right<kByK>(b, &right[0][0], kTo, j * 8, k);
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      multiply_add(acc[j], a[part], b[0], b[1], T{});
      multiply_add(acc[j + 1], a[part], b[2], b[3], T{});
    }
  }
}
// acc += left right, where left are results: two parts keep their last bits.
template <bool kByK, int kTo>
__device__ inline void multiply_lower(f32 (&acc)[8][4], const f32 (&left)[8][4],
                                      const T (*right)[kTo]) {
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    u32 parts[2][4];
    as_left(parts[0], left, k);
    as_left_rest(parts[1], parts[0], left, k);
    multiply_lower<kByK>(acc, parts, right, k * 16);
  }
}
// 16 rows of a product: acc += left right, over kTerms terms.
template <int kTerms, bool kLeftByK, bool kRightByK, int kBlocks, int kLeft, int kRight>
__device__ inline void multiply(f32 (&acc)[kBlocks][4], const T (*left)[kLeft], int row,
                                const T (*right)[kRight], int column) {
#pragma unroll
  for (int k = 0; k < kTerms; k += 16) {
    u32 a[4];
    load_left<kLeftByK>(a, &left[0][0], kLeft, row, k);
    multiply_left<kRightByK>(acc, a, right, column, k);
  }
}

#endif
