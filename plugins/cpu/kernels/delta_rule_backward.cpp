// SPDX-License-Identifier: Apache-2.0
// The gradients of gated_delta_rule for some columns of a head's state. States are kept before each
// chunk of tokens; inside a chunk they are computed again, before each block of tokens and then
// before each token.
#include <algorithm>
#include <utility>

#include "delta_rule.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/delta_rule_backward.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// after foreach_target
#include "delta_rule-inl.h"
#include "lane_sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {
namespace {

constexpr int64_t kBlock = 8, kChunk = 8 * kBlock;  // tokens
static_assert(kChunk / kBlock == kBlock);

// Work areas of floats.
struct Area {
  float *chunks, *blocks, *tokens;  // states before each chunk, block and token
  float *grad, *decay;              // the gradient of the state; e^g
  float* rests;                     // r of the tokens of a block
  float *dq, *dk, *dg;              // a vector for each row, whose lanes are to be summed

  Area(float* p, int64_t keys, int64_t count) {
    const auto take = [&](int64_t floats) { return std::exchange(p, p + floats); };
    const int64_t tile = keys * kColumns, lines = (keys + kLanes) * kLanes;
    chunks = take(count * tile), blocks = take(kBlock * tile), tokens = take(kBlock * tile);
    grad = take(tile), decay = take(keys + kLanes), rests = take(kBlock * kColumns);
    dq = take(lines), dk = take(lines), dg = take(lines);
  }
  static int64_t floats(int64_t keys, int64_t count) {
    return (count + 2 * kBlock + 1) * keys * kColumns + keys + kLanes + kBlock * kColumns +
           3 * (keys + kLanes) * kLanes;
  }
};
int64_t chunks_of(int64_t tokens) { return (tokens + kChunk - 1) / kChunk; }

template <class T>
class Walk {
 public:
  Walk(const DeltaHead& h, int64_t first, float* area, const DeltaGradients& out)
      : h_(h), out_(out), w_(area, h.keys, chunks_of(h.tokens)), columns_(h, first) {
    // Rows behind the last key are summed too.
    for (float* x : {w_.dq, w_.dk, w_.dg}) std::fill_n(x + h.keys * kLanes, kLanes * kLanes, 0.f);
  }

  void run() {
    const int64_t chunks = chunks_of(h_.tokens), tile = h_.keys * kColumns;
    if (chunks) columns_.read(h_.state, w_.chunks);
    for (int64_t c = 0; c + 1 < chunks; ++c) {
      float* const next = w_.chunks + (c + 1) * tile;
      std::copy_n(w_.chunks + c * tile, tile, next);
      for (int64_t t = c * kChunk; t < (c + 1) * kChunk; ++t) step(t, next, next);
    }
    columns_.read(out_.dstate_out, w_.grad);
    for (int64_t c = chunks; c-- > 0;) chunk(c * kChunk, w_.chunks + c * tile);
    columns_.write(w_.grad, out_.dstate);
  }

 private:
  const float* key(int64_t t) const { return h_.k + t * h_.key_step; }
  float beta(int64_t t) const { return to_float(static_cast<const T*>(h_.beta)[t * h_.beta_step]); }

  // The state after token t. Returns r.
  Row step(int64_t t, const float* before, float* after) const {
    const float* const k = key(t);
    read_decay(h_, t, w_.decay);
    const Row rest = missing(before, w_.decay, k, h_.keys, columns_.template values<T>(h_.v, t));
    const Row e = times(rest, constant(beta(t)));
    for (int64_t i = 0; i < h_.keys; ++i)
      put(next_row(row(before, i), w_.decay[i], k[i], e), after, i);
    return rest;
  }

  void chunk(int64_t begin, const float* before) {
    const int64_t tile = h_.keys * kColumns, end = std::min(begin + kChunk, h_.tokens);
    const int64_t blocks = (end - begin + kBlock - 1) / kBlock;
    std::copy_n(before, tile, w_.blocks);
    for (int64_t b = 0; b + 1 < blocks; ++b) {
      float* const next = w_.blocks + (b + 1) * tile;
      std::copy_n(w_.blocks + b * tile, tile, next);
      for (int64_t t = begin + b * kBlock; t < begin + (b + 1) * kBlock; ++t) step(t, next, next);
    }
    for (int64_t b = blocks; b-- > 0;) {
      const int64_t first = begin + b * kBlock, count = std::min(kBlock, end - first);
      std::copy_n(w_.blocks + b * tile, tile, w_.tokens);
      for (int64_t j = 0; j < count; ++j) {
        // The state behind the last token goes where no state is needed any more.
        float* const next = j + 1 < count ? w_.tokens + (j + 1) * tile : w_.blocks + b * tile;
        put(step(first + j, w_.tokens + j * tile, next), w_.rests, j);
      }
      for (int64_t j = count; j-- > 0;) back(first + j, w_.tokens + j * tile, row(w_.rests, j));
    }
  }

  // Token t, with the state before it and its r.
  void back(int64_t t, const float* before, Row rest) {
    const float *const k = key(t), *const q = h_.q + t * h_.key_step;
    const V scale = constant(h_.scale), factor = constant(beta(t));
    const Row dout = columns_.template values<T>(out_.dout, t), scaled = times(dout, scale);
    read_decay(h_, t, w_.decay);
    Row even = zero_row(), odd = zero_row();  // of Gᵀ·k
    for (int64_t i = 0; i < h_.keys; ++i) {
      const Row g = multiply_add(scaled, constant(q[i]), row(w_.grad, i));
      put(g, w_.grad, i);
      Row& sum = i % 2 ? odd : even;
      sum = multiply_add(g, constant(k[i]), sum);
    }
    const Row de = plus(even, odd), dr = times(de, factor), e = times(rest, factor);
    if (out_.dv) columns_.template write_values<T>(dr, out_.dv, t);
    Row decays = zero_row();
    for (int64_t i = 0; i < h_.keys; ++i) {
      const V decay = constant(w_.decay[i]), own = constant(k[i]);
      const Row kept = times(row(before, i), decay), g = row(w_.grad, i);
      const Row after = multiply_add(e, own, kept);
      put_sum(product(after, scaled), w_.dq, i);
      const V written = product(g, e);
      put_sum(hn::NegMulAdd(kept.high, dr.high, hn::NegMulAdd(kept.low, dr.low, written)), w_.dk,
              i);
      const Row rest_of_g = subtract(dr, own, g);
      if (h_.by_key)
        put_sum(product(rest_of_g, kept), w_.dg, i);
      else
        decays = multiply_add(rest_of_g, kept, decays);
      put(times(rest_of_g, decay), w_.grad, i);
    }
    add_lane_sums(w_.dq, h_.keys, out_.dq + t * h_.keys);
    add_lane_sums(w_.dk, h_.keys, out_.dk + t * h_.keys);
    if (h_.by_key)
      add_lane_sums(w_.dg, h_.keys, out_.dg + t * h_.keys);
    else
      out_.dg[t] += sum_of(decays);
    out_.dbeta[t] += sum_of(times(de, rest));
  }

  // Of both vectors of a row.
  static HWY_INLINE V product(Row a, Row b) {
    return hn::MulAdd(a.high, b.high, hn::Mul(a.low, b.low));
  }
  static HWY_INLINE void put_sum(V v, float* lines, int64_t i) {
    hn::StoreU(v, D(), lines + i * kLanes);
  }
  static HWY_INLINE float sum_of(Row r) {
    return hn::GetLane(hn::SumOfLanes(D(), hn::Add(r.low, r.high)));
  }

  const DeltaHead& h_;
  const DeltaGradients& out_;
  const Area w_;
  const Tile columns_;
};

void Backward(const DeltaHead& head, int64_t first, float* area, const DeltaGradients& out) {
  with_f32_or_half(head.dtype, [&]<class T>(T) { Walk<T>(head, first, area, out).run(); });
}

int64_t BackwardArea(int64_t keys, int64_t tokens) { return Area::floats(keys, chunks_of(tokens)); }

}  // namespace
}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {

HWY_EXPORT(Backward);
HWY_EXPORT(BackwardArea);

void delta_backward(const DeltaHead& head, int64_t first, float* area, const DeltaGradients& out) {
  HWY_DYNAMIC_DISPATCH(Backward)(head, first, area, out);
}
int64_t delta_backward_area(int64_t keys, int64_t tokens) {
  return HWY_DYNAMIC_DISPATCH(BackwardArea)(keys, tokens);
}

}  // namespace tenon::cpu
#endif
