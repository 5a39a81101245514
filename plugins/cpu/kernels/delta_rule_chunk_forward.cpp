// SPDX-License-Identifier: Apache-2.0
// gated_delta_rule of a head in chunks of tokens, for heads with one decay. With S the state before a
// chunk (see Chunk), token i has e = beta·(v - decay·Sᵀk - Σ keys[i][j]·e_j) over the tokens before
// it, and o = scale·(decay·Sᵀq + Σ queries[i][j]·e_j) up to itself.
#include <algorithm>

#include "delta_rule.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/delta_rule_chunk_forward.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// after foreach_target
#include "delta_rule_chunk-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {
namespace {

// Work areas of floats.
struct Area {
  float* tiles;            // [tiles, padded keys, kColumns]
  float *sums, *e, *wild;  // [2·kChunk, kColumns]: Sᵀk, Sᵀq; [kChunk, kColumns]; [tiles]
  float* decay;
  Chunk chunk;

  Area(float* p, int64_t padded, int64_t count)
      : tiles(take(p, count * padded * kColumns)),
        sums(take(p, 2 * kChunk * kColumns)),
        e(take(p, kChunk * kColumns)),
        wild(take(p, padded_keys(count))),
        decay(take(p, padded)),
        chunk(p, padded) {}
  static float* take(float*& p, int64_t floats) { return std::exchange(p, p + floats); }
  static int64_t floats(int64_t padded, int64_t count) {
    // Products prefetch rows behind their operands.
    return count * padded * kColumns + padded_keys(count) + 3 * kChunk * kColumns + padded +
           Chunk::floats(padded) + kLanes;
  }
};

template <class T>
class Chunks {
 public:
  Chunks(const DeltaHead& h, int64_t first, int64_t count, float* area, void* o)
      : h_(h),
        first_(first),
        count_(count),
        padded_(padded_keys(h.keys)),
        w_(area, padded_, count),
        o_(o) {}

  void run(float* state_out) {
    for (int64_t n = 0; n < count_; ++n) {
      float* const tile = w_.tiles + n * padded_ * kColumns;
      Tile(h_, column(n)).read(h_.state, tile);
      std::fill(tile + h_.keys * kColumns, tile + padded_ * kColumns, 0.f);
      w_.wild[n] = h_.state && !finite_rows(tile, h_.keys);
    }
    for (int64_t t = 0; t < h_.tokens; t += kChunk) {
      const int64_t tokens = std::min(kChunk, h_.tokens - t);
      const ChunkState state =
          tokens < kLeastChunk ? ChunkState::large : read_chunk<T>(h_, t, tokens, w_.chunk);
      for (int64_t n = 0; n < count_; ++n) {
        float* const tile = w_.tiles + n * padded_ * kColumns;
        const Tile columns(h_, column(n));
        if (state == ChunkState::wild) w_.wild[n] = 1;
        if (state == ChunkState::fine && !w_.wild[n]) {
          if (chunk(columns, t, tokens, tile)) continue;
          w_.wild[n] = 1;
        }
        for (int64_t i = 0; i < tokens; ++i) token<T>(h_, columns, t + i, tile, w_.decay, o_);
      }
    }
    for (int64_t n = 0; n < count_; ++n)
      Tile(h_, column(n)).write(w_.tiles + n * padded_ * kColumns, state_out);
  }

 private:
  int64_t column(int64_t n) const { return (first_ + n) * kColumns; }

  // False if a value is not finite; nothing is written then.
  bool chunk(const Tile& columns, int64_t t, int64_t tokens, float* tile) {
    FiniteCheck given;
    for (int64_t i = 0; i < tokens; ++i) {
      const Row value = columns.values<T>(h_.v, t + i);
      given.add(value), put(value, w_.e, i);
    }
    if (!given.finite()) return false;
    for (int64_t i = tokens; i < kChunk; ++i) put(zero_row(), w_.e, i);
    products<2>(2 * kChunk, h_.keys, by_rows(w_.chunk.rows, padded_), tile, kColumns,
                [&](int64_t r, int64_t v, V sum)
                    HWY_ATTR { hn::StoreU(sum, D(), w_.sums + r * kColumns + v); });
    for (int64_t i = 0; i < kChunk; i += 4) four(columns, t, i, std::min<int64_t>(tokens - i, 4));
    next_tile(w_.chunk, padded_, w_.e, tile, tile);
    return true;
  }

  // Tokens i to i + 3 of the chunk at t.
  HWY_INLINE void four(const Tile& columns, int64_t t, int64_t i, int64_t tokens) {
    const Chunk& c = w_.chunk;
    Row rest[4], y[4];
    for (int64_t r = 0; r < 4; ++r) {
      const V decay = constant(c.decay[i + r]);
      rest[r] = subtract(row(w_.sums, i + r), decay, row(w_.e, i + r));
      y[r] = times(row(w_.sums, kChunk + i + r), decay);
    }
    const float *const keys = c.keys + i * kChunk, *const queries = c.queries + i * kChunk;
    for (int64_t j = 0; j < i; ++j) {
      const Row e = row(w_.e, j);
#pragma GCC unroll 4
      for (int64_t r = 0; r < 4; ++r) {
        rest[r] = subtract(e, constant(keys[r * kChunk + j]), rest[r]);
        y[r] = multiply_add(e, constant(queries[r * kChunk + j]), y[r]);
      }
    }
#pragma GCC unroll 4
    for (int64_t r = 0; r < 4; ++r) {
      const Row e = times(rest[r], constant(c.beta[i + r]));
      put(e, w_.e, i + r);
      y[r] = multiply_add(e, constant(queries[r * kChunk + i + r]), y[r]);
#pragma GCC unroll 4
      for (int64_t s = r + 1; s < 4; ++s) {
        rest[s] = subtract(e, constant(keys[s * kChunk + i + r]), rest[s]);
        y[s] = multiply_add(e, constant(queries[s * kChunk + i + r]), y[s]);
      }
    }
    for (int64_t r = 0; r < tokens; ++r)
      columns.write_values<T>(times(y[r], constant(h_.scale)), o_, t + i + r);
  }

  const DeltaHead& h_;
  const int64_t first_, count_, padded_;
  Area w_;
  void* const o_;
};

void ChunkForward(const DeltaHead& head, int64_t first, int64_t count, float* area, void* o,
                  float* state_out) {
  with_f32_or_half(head.dtype,
                   [&]<class T>(T) { Chunks<T>(head, first, count, area, o).run(state_out); });
}
int64_t ChunkForwardArea(int64_t keys, int64_t count) {
  return Area::floats(padded_keys(keys), count);
}

}  // namespace
}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {

HWY_EXPORT(ChunkForward);
HWY_EXPORT(ChunkForwardArea);

void delta_chunks(const DeltaHead& head, int64_t first, int64_t count, float* area, void* o,
                  float* state_out) {
  HWY_DYNAMIC_DISPATCH(ChunkForward)(head, first, count, area, o, state_out);
}
int64_t delta_chunks_area(int64_t keys, int64_t count) {
  return HWY_DYNAMIC_DISPATCH(ChunkForwardArea)(keys, count);
}

}  // namespace tenon::cpu
#endif
