// SPDX-License-Identifier: Apache-2.0
// Chunks of tokens of a gated_delta_rule with one decay for a head: what both directions compute from
// q, k, g and beta. Products with the state are matrix products then. Per target, as simd-inl.h.
#if defined(TENON_CPU_DELTA_RULE_CHUNK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TENON_CPU_DELTA_RULE_CHUNK_INL_H_
#undef TENON_CPU_DELTA_RULE_CHUNK_INL_H_
#else
#define TENON_CPU_DELTA_RULE_CHUNK_INL_H_
#endif

#include <algorithm>
#include <utility>

#include "delta_rule-inl.h"
#include "gemm-inl.h"
#include "transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

constexpr int64_t kChunk = std::max<int64_t>(16, kLanes);  // tokens
constexpr int kChunkVectors = static_cast<int>(kChunk / kLanes);
// Shorter rests take their tokens one by one.
constexpr int64_t kLeastChunk = 4;

// Keys in whole vectors and whole tiles of products.
constexpr int64_t padded_keys(int64_t keys) { return (keys + 15) / 16 * 16; }

// Calls store(row, vector, sum) for a·b: b has kWidth vectors in each row, b_step apart.
// a(r): the operand from row r on. rows is a multiple of kTileRows.
template <int kWidth, class A, class Store>
HWY_INLINE void products(int64_t rows, int64_t steps, A&& a, const float* b, int64_t b_step,
                         Store&& store) {
  for (int64_t r = 0; r < rows; r += kTileRows)
    tile_product<kTileRows, kWidth>(D(), steps, a(r), b, b_step, [&](int i, int v, V sum) HWY_ATTR {
      store(r + i, v * kLanes, sum);
    });
}
// Operands whose rows, or whose columns, are contiguous.
HWY_INLINE auto by_rows(const float* a, int64_t stride) {
  return [=](int64_t r) { return StepsTogether<float>{a + r * stride, stride}; };
}
HWY_INLINE auto by_columns(const float* a, int64_t stride) {
  return [=](int64_t r) { return RowsTogether<float>{a + r, stride}; };
}

// to[c·to_step + r] = from[r·from_step + c] for whole groups of 4 rows and whole vectors of columns.
HWY_INLINE void transpose_rows(const float* from, int64_t from_step, int64_t rows, int64_t columns,
                               float* to, int64_t to_step) {
  for (int64_t r = 0; r < rows; r += 4)
    for (int64_t c = 0; c < columns; c += kLanes) {
      V four[4];
      for (int64_t i = 0; i < 4; ++i) four[i] = hn::LoadU(D(), from + (r + i) * from_step + c);
      store_columns(four, to + c * to_step + r, to_step);
    }
}

// Sums 0·x, which is 0 only if every x is finite.
class FiniteCheck {
 public:
  FiniteCheck() : sum_(hn::Zero(D())) {}
  HWY_INLINE void add(V x) { sum_ = hn::MulAdd(x, hn::Zero(D()), sum_); }
  HWY_INLINE void add(Row r) { add(r.low), add(r.high); }
  HWY_INLINE bool finite() const { return hn::AllTrue(D(), hn::Eq(sum_, hn::Zero(D()))); }

 private:
  V sum_;
};

// The numbers of a chunk. With γ the sums of g from the chunk's first token on, token i, j <= i:
//   decay[i] = e^γi, pair[i][j] = e^(γi - γj), keys[i][j] = pair·<ki, kj>, queries[i][j] = pair·<qi, kj>
// Tokens behind the last one have zeros for q, k and beta, and its γ.
struct Chunk {
  float* rows;            // [2·kChunk, padded keys]: k, then q
  float* columns;         // [padded keys, kChunk]: k transposed
  float* late;            // [kChunk, padded keys]: k·e^(γlast - γ)
  float *keys, *queries;  // [kChunk, kChunk]
  float* pair;            // [kChunk, kChunk]
  float *decay, *beta, *sum;

  float kept() const { return decay[kChunk - 1]; }

  Chunk(float* p, int64_t padded) {
    const auto take = [&](int64_t floats) { return std::exchange(p, p + floats); };
    rows = take(2 * kChunk * padded), columns = take(kChunk * padded);
    late = take(kChunk * padded), keys = take(kChunk * kChunk);
    queries = take(kChunk * kChunk), pair = take(kChunk * kChunk);
    decay = take(kChunk), beta = take(kChunk), sum = take(kChunk);
  }
  static int64_t floats(int64_t padded) {
    return 4 * kChunk * padded + 3 * kChunk * kChunk + 3 * kChunk;
  }
};

enum class ChunkState : uint8_t {
  fine,
  large,  // a decay above 1, or products that overflow: token by token
  wild    // a number that is not finite: token by token from here on
};

// Reads tokens [first, first + count).
template <class T>
ChunkState read_chunk(const DeltaHead& h, int64_t first, int64_t count, const Chunk& c) {
  const D d;
  const int64_t padded = padded_keys(h.keys);
  FiniteCheck given;
  for (int64_t part = 0; part < 2; ++part) {
    const float* const from = part == 0 ? h.k : h.q;
    float* const to = c.rows + part * kChunk * padded;
    for (int64_t i = 0; i < count; ++i) {
      const float* const row = from + (first + i) * h.key_step;
      int64_t k = 0;
      for (; k + kLanes <= h.keys; k += kLanes) {
        const V x = hn::LoadU(d, row + k);
        given.add(x), hn::StoreU(x, d, to + i * padded + k);
      }
      std::fill(to + i * padded + k, to + (i + 1) * padded, 0.f);
      for (; k < h.keys; ++k) given.add(hn::Set(d, row[k])), to[i * padded + k] = row[k];
    }
    std::fill(to + count * padded, to + kChunk * padded, 0.f);
  }
  float sum = 0, largest = 0;
  for (int64_t i = 0; i < kChunk; ++i) {
    const float g = i < count ? h.g[(first + i) * h.g_step] : 0;
    c.beta[i] = i < count ? to_float(static_cast<const T*>(h.beta)[(first + i) * h.beta_step]) : 0;
    sum += g, largest = std::max(largest, g);
    c.sum[i] = sum;
    given.add(hn::Set(d, g)), given.add(hn::Set(d, c.beta[i]));
  }
  if (!given.finite()) return ChunkState::wild;
  if (largest > 0) return ChunkState::large;
  map(
      d, kChunk, [](D tag, V x) HWY_ATTR { return vexp(tag, x); }, c.decay, c.sum);
  for (int64_t i = 0; i < kChunk; ++i)  // beyond the diagonal it may be infinite
    for (int64_t j = 0; j < kChunk; j += kLanes) {
      const V apart = hn::Sub(hn::Set(d, c.sum[i]), hn::LoadU(d, c.sum + j));
      hn::StoreU(vexp(d, apart), d, c.pair + i * kChunk + j);
    }
  transpose_rows(c.rows, padded, kChunk, padded, c.columns, kChunk);
  FiniteCheck made;
  products<kChunkVectors>(2 * kChunk, h.keys, by_rows(c.rows, padded), c.columns, kChunk,
                          [&](int64_t r, int64_t v, V dots) HWY_ATTR {
                            const int64_t i = r % kChunk;
                            const V pair = hn::LoadU(d, c.pair + i * kChunk + v);
                            const V at = hn::Iota(d, static_cast<float>(v));
                            const auto past = hn::Le(at, hn::Set(d, static_cast<float>(i)));
                            const V value = hn::IfThenElseZero(past, hn::Mul(pair, dots));
                            made.add(value);
                            hn::StoreU(value, d,
                                       (r < kChunk ? c.keys : c.queries) + i * kChunk + v);
                          });
  if (!made.finite()) return ChunkState::large;
  for (int64_t j = 0; j < kChunk; ++j) {
    const V factor = hn::Set(d, c.pair[(kChunk - 1) * kChunk + j]);
    for (int64_t k = 0; k < padded; k += kLanes)
      hn::StoreU(hn::Mul(factor, hn::LoadU(d, c.rows + j * padded + k)), d,
                 c.late + j * padded + k);
  }
  return ChunkState::fine;
}

// True if all numbers of a tile are finite.
HWY_INLINE bool finite_rows(const float* tile, int64_t rows) {
  FiniteCheck all;
  for (int64_t k = 0; k < rows; ++k) all.add(row(tile, k));
  return all.finite();
}

// The tile of the state behind a chunk: kept·from + lateᵀ·e. It may take the place of `from`.
HWY_INLINE void next_tile(const Chunk& c, int64_t padded, const float* e, const float* from,
                          float* to) {
  const V kept = constant(c.kept());
  products<2>(padded, kChunk, by_columns(c.late, padded), e, kColumns,
              [&](int64_t r, int64_t v, V sum) HWY_ATTR {
                const int64_t at = r * kColumns + v;
                hn::StoreU(hn::MulAdd(hn::LoadU(D(), from + at), kept, sum), D(), to + at);
              });
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
