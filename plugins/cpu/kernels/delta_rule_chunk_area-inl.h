// SPDX-License-Identifier: Apache-2.0
// The work area of gated_delta_rule_backward in chunks of tokens. Per target, as simd-inl.h.
#if defined(TENON_CPU_DELTA_RULE_CHUNK_AREA_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TENON_CPU_DELTA_RULE_CHUNK_AREA_INL_H_
#undef TENON_CPU_DELTA_RULE_CHUNK_AREA_INL_H_
#else
#define TENON_CPU_DELTA_RULE_CHUNK_AREA_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <utility>

#include "delta_rule_chunk-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

constexpr int64_t kRows = kChunk * kColumns, kBoth = 2 * kChunk, kSquare = kChunk * kChunk;

// Long runs have more groups and larger ones, so that few states are kept at a time. Those of a small
// group stay in the second-level cache.
struct ChunkGroups {
  int64_t size, count;  // chunks of a group

  // longest: tokens of the longest run for which the work area is made.
  ChunkGroups(int64_t tokens, int64_t longest) {
    const double root = std::sqrt(static_cast<double>(chunks_of(longest)));
    size = std::max<int64_t>(4, static_cast<int64_t>(root / 2));
    count = (chunks_of(tokens) + size - 1) / size;
  }
  static int64_t chunks_of(int64_t tokens) { return (tokens + kChunk - 1) / kChunk; }
};

// Work areas of floats. A state has `tiles` tiles of [padded, kColumns].
struct ChunkArea {
  float *marks, *states, *grad;   // states before each group, and before each chunk; the gradient
  float* rests;                   // r: [chunks of a group, tiles, kChunk, kColumns]
  float *e, *sums;                // [kChunk, kColumns]: e, and Sᵀk or Gᵀk
  float* up;                      // [kBoth, kColumns]: z, then d
  float *up_columns, *e_columns;  // transposed: [kColumns, kBoth], [kColumns, kChunk]
  float* back;                    // [kBoth, padded]: -decay·k, then decay·q
  float *of_up, *of_e;            // [padded, kBoth]: S·z, S·d; [padded, kChunk]: G·e
  float *pairs, *pair_rows;       // [kChunk, kBoth]: <e, z>, <e, d>; transposed
  float* mix;                     // [kBoth, kChunk]: the weights of k, then q, in the gradient of k
  float* mix_columns;             // [kBoth, kChunk]: both parts transposed
  float *turned, *straight;       // [padded, kChunk] and [kChunk, padded]: a gradient of k or q
  float *lines, *late, *steps;    // vectors whose lanes are summed, [kChunk, kLanes]
  float *dbeta, *dsum;            // [kChunk]
  float* chunks;

  ChunkArea(float* p, int64_t padded, int64_t tiles, const ChunkGroups& g) {
    const auto take = [&](int64_t floats) { return std::exchange(p, p + floats); };
    const int64_t state = tiles * padded * kColumns, keys = padded * kChunk;
    chunks = take(g.size * Chunk::floats(padded));
    marks = take(g.count * state), states = take(g.size * state), grad = take(state);
    rests = take(g.size * tiles * kRows), e = take(kRows), sums = take(kRows);
    up = take(2 * kRows), up_columns = take(2 * kRows), e_columns = take(kRows);
    back = take(2 * keys), of_up = take(2 * keys), of_e = take(keys);
    pairs = take(2 * kSquare), pair_rows = take(2 * kSquare);
    mix = take(2 * kSquare), mix_columns = take(2 * kSquare);
    turned = take(keys), straight = take(keys);
    lines = take(kChunk * kLanes), late = take(kChunk * kLanes), steps = take(kChunk * kLanes);
    dbeta = take(kChunk), dsum = take(kChunk);
  }
  static int64_t floats(int64_t padded, int64_t tiles, const ChunkGroups& g) {
    // Products prefetch rows behind their operands.
    return g.size * Chunk::floats(padded) + (g.count + g.size + 1) * tiles * padded * kColumns +
           (g.size * tiles + 7) * kRows + 7 * padded * kChunk + 8 * kSquare + 3 * kChunk * kLanes +
           2 * kChunk + kLanes;
  }
};

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
