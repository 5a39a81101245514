// SPDX-License-Identifier: Apache-2.0
// The gradients of gated_delta_rule for a head in chunks of tokens, for heads with one decay. A first
// pass keeps the state before each group of chunks. From the last group on, a second pass keeps the
// states before its chunks and what each token misses (r); then its chunks are walked back.
//
// With Chunk's numbers, S and G the state before a chunk and the gradient of the one behind it, and d
// the given gradients times the scale:
//   de_j = Σ queries[i][j]·d_i + pair[last][j]·Gᵀk_j - Σ keys[i][j]·z_i over later i,   z = beta·de = dv
#include <algorithm>

#include "delta_rule.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/delta_rule_chunk_backward.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// after foreach_target
#include "delta_rule_chunk_area-inl.h"
#include "lane_sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {
namespace {

template <class T>
class Walk {
 public:
  Walk(const DeltaHead& h, int64_t longest, float* area, const DeltaGradients& out)
      : h_(h),
        out_(out),
        padded_(padded_keys(h.keys)),
        tiles_((h.values + kColumns - 1) / kColumns),
        state_(tiles_ * padded_ * kColumns),
        groups_(h.tokens, longest),
        w_(area, padded_, tiles_, groups_) {}

  // False if a number is not finite or a decay is above 1: nothing is written then.
  bool run() {
    if (!read_state(h_.state, w_.marks) || !read_state(out_.dstate_out, w_.grad)) return false;
    for (int64_t g = 0; g < groups_.count; ++g) {
      float* const state = g + 1 < groups_.count ? mark(g + 1) : w_.states;
      for (int64_t n = 0; n < groups_.size; ++n) {
        const int64_t t = (g * groups_.size + n) * kChunk, tokens = std::min(kChunk, h_.tokens - t);
        if (tokens <= 0) break;
        if (!finite_given(t, tokens)) return false;
        const Chunk c = chunk_at(n);
        if (read_chunk<T>(h_, t, tokens, c) != ChunkState::fine) return false;
        float* const from = n == 0 ? mark(g) : state;
        for (int64_t i = 0; i < tiles_; ++i) {
          misses(c, i, t, tokens, tile(from, i), w_.rests);
          next_tile(c, padded_, w_.e, tile(from, i), tile(state, i));
        }
      }
      for (int64_t i = 0; i < tiles_; ++i)
        if (!finite_rows(tile(state, i), padded_)) return false;
    }
    for (int64_t g = groups_.count; g-- > 0;) group(g);
    for (int64_t i = 0; i < tiles_; ++i)
      Tile(h_, i * kColumns).write(tile(w_.grad, i), out_.dstate);
    return true;
  }

 private:
  Chunk chunk_at(int64_t n) const { return Chunk(w_.chunks + n * Chunk::floats(padded_), padded_); }
  float* mark(int64_t g) const { return w_.marks + g * state_; }
  float* tile(float* state, int64_t i) const { return state + i * padded_ * kColumns; }

  bool read_state(const float* from, float* to) const {
    for (int64_t i = 0; i < tiles_; ++i) {
      Tile(h_, i * kColumns).read(from, tile(to, i));
      std::fill(tile(to, i) + h_.keys * kColumns, tile(to, i + 1), 0.f);
      if (from && !finite_rows(tile(to, i), h_.keys)) return false;
    }
    return true;
  }
  bool finite_given(int64_t first, int64_t tokens) const {
    FiniteCheck all;
    for (int64_t i = 0; i < tiles_; ++i)
      for (int64_t t = first; t < first + tokens; ++t)
        for (const void* x : {h_.v, out_.dout})
          all.add(Tile(h_, i * kColumns).template values<T>(x, t));
    return all.finite();
  }
  // Rows of a tensor like v for a chunk, times a factor; zeros behind the last token.
  void read_rows(const void* from, int64_t i, int64_t t, int64_t tokens, float factor,
                 float* to) const {
    const Tile columns(h_, i * kColumns);
    for (int64_t r = 0; r < kChunk; ++r)
      put(r < tokens ? times(columns.template values<T>(from, t + r), constant(factor))
                     : zero_row(),
          to, r);
  }

  // A chunk forward: r and e of its tokens.
  void misses(const Chunk& c, int64_t i, int64_t t, int64_t tokens, const float* state,
              float* rests) {
    read_rows(h_.v, i, t, tokens, 1, rests);
    products<2>(kChunk, h_.keys, by_rows(c.rows, padded_), state, kColumns,
                [&](int64_t r, int64_t v, V sum)
                    HWY_ATTR { hn::StoreU(sum, D(), w_.sums + r * kColumns + v); });
    for (int64_t first = 0; first < kChunk; first += 4) {
      Row rest[4];
      for (int64_t r = 0; r < 4; ++r)
        rest[r] =
            subtract(row(w_.sums, first + r), constant(c.decay[first + r]), row(rests, first + r));
      const float* const keys = c.keys + first * kChunk;
      for (int64_t j = 0; j < first; ++j) {
        const Row e = row(w_.e, j);
#pragma GCC unroll 4
        for (int64_t r = 0; r < 4; ++r)
          rest[r] = subtract(e, constant(keys[r * kChunk + j]), rest[r]);
      }
#pragma GCC unroll 4
      for (int64_t r = 0; r < 4; ++r) {
        const Row e = times(rest[r], constant(c.beta[first + r]));
        put(rest[r], rests, first + r), put(e, w_.e, first + r);
#pragma GCC unroll 4
        for (int64_t s = r + 1; s < 4; ++s)
          rest[s] = subtract(e, constant(keys[s * kChunk + first + r]), rest[s]);
      }
    }
  }

  void group(int64_t g) {
    const int64_t begin = g * groups_.size * kChunk;
    const int64_t count = std::min(groups_.size, (h_.tokens - begin + kChunk - 1) / kChunk);
    for (int64_t n = 0; n < count; ++n) {
      const int64_t t = begin + n * kChunk, tokens = std::min(kChunk, h_.tokens - t);
      float* const state = state_at(g, n);
      const Chunk c = chunk_at(n);
      read_chunk<T>(h_, t, tokens, c);
      for (int64_t i = 0; i < tiles_; ++i) {
        misses(c, i, t, tokens, tile(state, i), rests(n, i));
        if (n + 1 < count) next_tile(c, padded_, w_.e, tile(state, i), tile(state_at(g, n + 1), i));
      }
    }
    for (int64_t n = count; n-- > 0;) {
      const int64_t t = begin + n * kChunk;
      chunk(chunk_at(n), state_at(g, n), n, t, std::min(kChunk, h_.tokens - t));
    }
  }
  // The state before chunk n of group g, while the group is walked.
  float* state_at(int64_t g, int64_t n) const { return n ? w_.states + n * state_ : mark(g); }
  float* rests(int64_t n, int64_t i) const { return w_.rests + (n * tiles_ + i) * kRows; }

  void chunk(const Chunk& c, float* before, int64_t n, int64_t t, int64_t tokens) {
    const D d;
    for (int64_t r = 0; r < kBoth; ++r) {
      const V decay = constant(r < kChunk ? -c.decay[r] : c.decay[r - kChunk]);
      for (int64_t k = 0; k < padded_; k += kLanes)
        hn::StoreU(hn::Mul(decay, hn::LoadU(d, c.rows + r * padded_ + k)), d,
                   w_.back + r * padded_ + k);
    }
    for (float* lines : {w_.lines, w_.late}) std::fill_n(lines, kChunk * kLanes, 0.f);
    V kept = hn::Zero(d);  // <S, G>
    for (int64_t i = 0; i < tiles_; ++i) {
      const float* const state = tile(before, i);
      float* const grad = tile(w_.grad, i);
      walk_back(c, rests(n, i), i, t, tokens, grad);
      transpose_rows(w_.up, kColumns, kChunk, kColumns, w_.up_columns, kBoth);
      transpose_rows(w_.up + kRows, kColumns, kChunk, kColumns, w_.up_columns + kChunk, kBoth);
      transpose_rows(w_.e, kColumns, kChunk, kColumns, w_.e_columns, kChunk);
      for (int64_t v = 0; v < kBoth; v += 2 * kLanes) {
        add_products<2>(padded_, by_rows(state, kColumns), w_.up_columns + v, kBoth, w_.of_up + v,
                        i);
        add_products<2>(kChunk, by_rows(w_.e, kColumns), w_.up_columns + v, kBoth, w_.pairs + v, i);
      }
      add_products<kChunkVectors>(padded_, by_rows(grad, kColumns), w_.e_columns, kChunk, w_.of_e,
                                  i);
      for (int64_t k = 0; k < padded_; ++k) {
        const Row both = times(row(state, k), row(grad, k));
        kept = hn::Add(kept, hn::Add(both.low, both.high));
      }
      const V factor = constant(c.kept());
      products<2>(padded_, kBoth, by_columns(w_.back, padded_), w_.up, kColumns,
                  [&](int64_t r, int64_t v, V sum) HWY_ATTR {
                    float* const to = grad + r * kColumns + v;
                    hn::StoreU(hn::MulAdd(hn::LoadU(d, to), factor, sum), d, to);
                  });
    }
    give_scalars(c, t, tokens, hn::GetLane(hn::SumOfLanes(d, kept)));
    give_keys(c, t, tokens);
  }

  // to[rows, ..] += a·b over the columns of tile i; the first tile sets it. Rows of b and `to` are
  // `step` apart.
  template <int kWidth, class A>
  HWY_INLINE void add_products(int64_t rows, A&& a, const float* b, int64_t step, float* to,
                               int64_t i) {
    if (i == 0)
      products<kWidth>(rows, kColumns, a, b, step, [&](int64_t r, int64_t v, V sum) HWY_ATTR {
        hn::StoreU(sum, D(), to + r * step + v);
      });
    else
      products<kWidth>(rows, kColumns, a, b, step, [&](int64_t r, int64_t v, V sum) HWY_ATTR {
        float* const at = to + r * step + v;
        hn::StoreU(hn::Add(hn::LoadU(D(), at), sum), D(), at);
      });
  }

  // z and e of a chunk's tokens for a tile, from the last token to the first.
  void walk_back(const Chunk& c, const float* rests, int64_t i, int64_t t, int64_t tokens,
                 const float* grad) {
    const Tile columns(h_, i * kColumns);
    const float* const last = c.pair + (kChunk - 1) * kChunk;
    float *const z = w_.up, *const given = w_.up + kRows;
    read_rows(out_.dout, i, t, tokens, h_.scale, given);
    products<2>(kChunk, h_.keys, by_rows(c.rows, padded_), grad, kColumns,
                [&](int64_t r, int64_t v, V sum) HWY_ATTR {
                  hn::StoreU(hn::Mul(sum, constant(last[r])), D(), w_.sums + r * kColumns + v);
                });
    for (int64_t first = kChunk - 4; first >= 0; first -= 4) {
      Row de[4];
      for (int64_t r = 0; r < 4; ++r) de[r] = row(w_.sums, first + r);
      for (int64_t later = first + 4; later < kChunk; ++later) {
        const Row up = row(given, later), written = row(z, later);
        const float* const queries = c.queries + later * kChunk + first;
        const float* const keys = c.keys + later * kChunk + first;
#pragma GCC unroll 4
        for (int64_t r = 0; r < 4; ++r) {
          de[r] = multiply_add(up, constant(queries[r]), de[r]);
          de[r] = subtract(written, constant(keys[r]), de[r]);
        }
      }
#pragma GCC unroll 4
      for (int64_t r = 3; r >= 0; --r) {
        const int64_t j = first + r;
        const Row up = row(given, j);
#pragma GCC unroll 4
        for (int64_t s = 0; s <= r; ++s)
          de[s] = multiply_add(up, constant(c.queries[j * kChunk + first + s]), de[s]);
        const V beta = constant(c.beta[j]);
        const Row written = times(de[r], beta), rest = row(rests, j), e = times(rest, beta);
        put(written, z, j), put(e, w_.e, j);
        add_line(times(de[r], rest), w_.lines + j * kLanes);
        add_line(times(e, row(w_.sums, j)), w_.late + j * kLanes);
        if (out_.dv && j < tokens) columns.template write_values<T>(written, out_.dv, t + j);
#pragma GCC unroll 4
        for (int64_t s = 0; s < r; ++s)
          de[s] = subtract(written, constant(c.keys[j * kChunk + first + s]), de[s]);
      }
    }
  }
  static HWY_INLINE void add_line(Row r, float* line) {
    hn::StoreU(hn::Add(hn::LoadU(D(), line), hn::Add(r.low, r.high)), D(), line);
  }

  // The gradients of beta and g, and the weights of pairs of tokens in those of k and q.
  void give_scalars(const Chunk& c, int64_t t, int64_t tokens, float kept) {
    const D d;
    transpose_rows(w_.pairs, kBoth, kChunk, kBoth, w_.pair_rows, kChunk);
    std::fill_n(w_.dbeta, kChunk, 0.f), std::fill_n(w_.dsum, kChunk, 0.f);
    add_lane_sums(w_.lines, kChunk, w_.dbeta);
    // γ of the last token takes part in all that the state behind the chunk keeps.
    float late[kChunk] = {};
    add_lane_sums(w_.late, kChunk, late);
    float last = kept * c.kept();
    for (int64_t i = 0; i < kChunk; ++i) last += late[i];
    for (int64_t i = 0; i < kChunk; ++i) {
      V line = hn::Zero(d);
      for (int64_t j = 0; j < kChunk; j += kLanes) {
        const int64_t at = i * kChunk + j;
        const V before = hn::Iota(d, static_cast<float>(j)),
                own = hn::Set(d, static_cast<float>(i));
        const auto earlier = hn::Lt(before, own), until = hn::Le(before, own);
        const V pair = hn::LoadU(d, c.pair + at);
        const V with_z = hn::LoadU(d, w_.pair_rows + at);
        const V with_d = hn::LoadU(d, w_.pair_rows + kSquare + at);
        hn::StoreU(hn::IfThenElseZero(earlier, hn::Neg(hn::Mul(pair, with_z))), d, w_.mix + at);
        hn::StoreU(hn::IfThenElseZero(until, hn::Mul(pair, with_d)), d, w_.mix + kSquare + at);
        const V share = hn::IfThenElseZero(
            earlier, hn::NegMulAdd(hn::LoadU(d, c.keys + at), with_z,
                                   hn::Mul(hn::LoadU(d, c.queries + at), with_d)));
        line = hn::Add(line, share);
        hn::StoreU(hn::Sub(hn::LoadU(d, w_.dsum + j), share), d, w_.dsum + j);
      }
      hn::StoreU(line, d, w_.steps + i * kLanes);
    }
    add_lane_sums(w_.steps, kChunk, w_.dsum);
    // <d, Sᵀq> - <z, Sᵀk>, each times its decay.
    transpose_rows(c.rows + kChunk * padded_, padded_, kChunk, padded_, w_.turned, kChunk);
    for (int64_t j = 0; j < kChunk; j += kLanes) {
      V sum = hn::Zero(d);
      for (int64_t k = 0; k < h_.keys; ++k) {
        const float* const of_up = w_.of_up + k * kBoth + j;
        sum =
            hn::MulAdd(hn::LoadU(d, w_.turned + k * kChunk + j), hn::LoadU(d, of_up + kChunk), sum);
        sum = hn::NegMulAdd(hn::LoadU(d, c.columns + k * kChunk + j), hn::LoadU(d, of_up), sum);
      }
      float* const to = w_.dsum + j;
      hn::StoreU(hn::MulAdd(sum, hn::LoadU(d, c.decay + j), hn::LoadU(d, to)), d, to);
    }
    float sum = last;
    for (int64_t i = kChunk; i-- > 0;) {
      sum += w_.dsum[i] - late[i];
      if (i < tokens) out_.dg[t + i] += sum, out_.dbeta[t + i] += w_.dbeta[i];
    }
  }

  void give_keys(const Chunk& c, int64_t t, int64_t tokens) {
    const D d;
    for (int64_t part = 0; part < 2; ++part)
      transpose_rows(w_.mix + part * kSquare, kChunk, kChunk, kChunk,
                     w_.mix_columns + part * kSquare, kChunk);
    const auto lanes = [](const float* x, int64_t v) HWY_ATTR { return hn::LoadU(D(), x + v); };
    products<kChunkVectors>(padded_, kChunk, by_columns(c.rows, padded_), w_.mix_columns + kSquare,
                            kChunk, [&](int64_t k, int64_t v, V sum) HWY_ATTR {
                              const V through = lanes(w_.of_up + k * kBoth + kChunk, v);
                              hn::StoreU(hn::MulAdd(lanes(c.decay, v), through, sum), d,
                                         w_.turned + k * kChunk + v);
                            });
    add_rows(out_.dq, t, tokens);
    for (int64_t x = 0; x < kSquare; x += kLanes)
      hn::StoreU(hn::Add(lanes(w_.mix, x), lanes(w_.mix_columns, x)), d, w_.mix + x);
    const float* const last = c.pair + (kChunk - 1) * kChunk;
    products<kChunkVectors>(padded_, kBoth, by_columns(c.rows, padded_), w_.mix, kChunk,
                            [&](int64_t k, int64_t v, V sum) HWY_ATTR {
                              sum = hn::MulAdd(lanes(last, v), lanes(w_.of_e + k * kChunk, v), sum);
                              sum = hn::NegMulAdd(lanes(c.decay, v), lanes(w_.of_up + k * kBoth, v),
                                                  sum);
                              hn::StoreU(sum, d, w_.turned + k * kChunk + v);
                            });
    add_rows(out_.dk, t, tokens);
  }
  // Adds the turned gradient to the rows of a chunk's tokens.
  void add_rows(float* to, int64_t t, int64_t tokens) {
    transpose_rows(w_.turned, kChunk, padded_, kChunk, w_.straight, padded_);
    for (int64_t i = 0; i < tokens; ++i)
      for (int64_t k = 0; k < h_.keys; ++k)
        to[(t + i) * h_.keys + k] += w_.straight[i * padded_ + k];
  }

  const DeltaHead& h_;
  const DeltaGradients& out_;
  const int64_t padded_, tiles_, state_;
  const ChunkGroups groups_;
  ChunkArea w_;
};

bool ChunkBackward(const DeltaHead& head, int64_t longest, float* area, const DeltaGradients& out) {
  bool done = false;
  with_f32_or_half(head.dtype, [&]<class T>(T) { done = Walk<T>(head, longest, area, out).run(); });
  return done;
}
int64_t ChunkBackwardArea(int64_t keys, int64_t values, int64_t tokens) {
  return ChunkArea::floats(padded_keys(keys), (values + kColumns - 1) / kColumns,
                           ChunkGroups(tokens, tokens));
}

}  // namespace
}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {

HWY_EXPORT(ChunkBackward);
HWY_EXPORT(ChunkBackwardArea);

bool delta_chunks_backward(const DeltaHead& head, int64_t longest, float* area,
                           const DeltaGradients& out) {
  return HWY_DYNAMIC_DISPATCH(ChunkBackward)(head, longest, area, out);
}
int64_t delta_chunks_backward_area(int64_t keys, int64_t values, int64_t tokens) {
  return HWY_DYNAMIC_DISPATCH(ChunkBackwardArea)(keys, values, tokens);
}

}  // namespace tenon::cpu
#endif
