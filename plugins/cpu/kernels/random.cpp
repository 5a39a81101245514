// SPDX-License-Identifier: Apache-2.0
// random_bits, random_uniform, random_normal and dropout: Philox blocks computed in vectors, chunk
// by chunk. Element i depends only on seed, offset and i, so results do not depend on the
// partition.
#include "random.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "../kernels.hpp"
#include "../parallel.hpp"
#include "convert.hpp"
#include "philox.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/random.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <hwy/contrib/math/math-inl.h>

#include "simd-inl.h"

#ifndef TENON_CPU_RANDOM_ONCE
#define TENON_CPU_RANDOM_ONCE
namespace tenon::cpu {

inline constexpr int64_t kChunk = 1024;  // elements per chunk

// The arguments of a draw. x and p belong to dropout.
struct Draw {
  Rng rng{};
  const void* x = nullptr;
  void* y = nullptr;
  double p = 0;
};

// Writes elements [begin, end); begin is a multiple of kChunk.
using DrawRange = void (*)(const Draw& draw, int64_t begin, int64_t end);

}  // namespace tenon::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

using Words = hn::ScalableTag<uint32_t>;

struct Product {
  hn::Vec<Words> low, high;
};

HWY_INLINE Product multiply(Words d, hn::Vec<Words> a, hn::Vec<Words> m) {
  const hn::RepartitionToWide<Words> wide;
  const auto even = hn::MulEven(a, m);
  const auto odd = hn::MulEven(hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(wide, a))), m);
  return {hn::OddEven(hn::BitCast(d, hn::ShiftLeft<32>(odd)), hn::BitCast(d, even)),
          hn::OddEven(hn::BitCast(d, odd), hn::BitCast(d, hn::ShiftRight<32>(even)))};
}

// Computes blocks [first, first + count) of the generator. `words` has room for whole vectors of
// blocks.
void make_blocks(const Rng& rng, uint64_t first, int64_t count, uint32_t* words) {
  const Words d;
  const uint64_t lanes = hn::Lanes(d);
  const auto m0 = hn::Set(d, kPhiloxMultiplier0), m1 = hn::Set(d, kPhiloxMultiplier1);
  for (uint64_t i = 0; i < static_cast<uint64_t>(count); i += lanes) {
    const uint64_t j = first + i;
    uint32_t* to = words + 4 * i;
    if ((j >> 32) !=
        ((j + lanes - 1) >> 32)) {  // the low half of the counter wraps within this vector
      for (uint64_t k = 0; k < lanes; ++k)
        std::memcpy(to + 4 * k, rng.block(j + k).data(), sizeof(PhiloxBlock));
      continue;
    }
    auto c0 = hn::Iota(d, static_cast<uint32_t>(j));
    auto c1 = hn::Set(d, static_cast<uint32_t>(j >> 32));
    auto c2 = hn::Set(d, static_cast<uint32_t>(rng.offset));
    auto c3 = hn::Set(d, static_cast<uint32_t>(rng.offset >> 32));
    auto k0 = hn::Set(d, rng.key()[0]), k1 = hn::Set(d, rng.key()[1]);
    for (int round = 0; round < kPhiloxRounds; ++round) {
      const Product a = multiply(d, c0, m0), b = multiply(d, c2, m1);
      c0 = hn::Xor(hn::Xor(b.high, c1), k0);
      c1 = b.low;
      c2 = hn::Xor(hn::Xor(a.high, c3), k1);
      c3 = a.low;
      k0 = hn::Add(k0, hn::Set(d, kPhiloxWeyl0));
      k1 = hn::Add(k1, hn::Set(d, kPhiloxWeyl1));
    }
    hn::StoreInterleaved4(c0, c1, c2, c3, d, to);
  }
}

// The last vector of blocks may exceed the chunk.
constexpr int64_t kRoom = kChunk + 4 * hn::MaxLanes(Words());

// Calls body(i, n, words) for the chunks of [begin, end). Element i + k uses the words from
// per_element * k on.
template <int per_element, class Body>
HWY_INLINE void for_chunks(const Draw& draw, int64_t begin, int64_t end, Body&& body) {
  HWY_ALIGN uint32_t words[per_element * kRoom];
  for (int64_t i = begin; i < end; i += kChunk) {
    const int64_t n = std::min(kChunk, end - i);
    make_blocks(draw.rng, static_cast<uint64_t>(i * per_element / 4), (n * per_element + 3) / 4,
                words);
    body(i, n, words);
  }
}

void draw_bits(const Draw& draw, int64_t begin, int64_t end) {
  uint32_t* y = static_cast<uint32_t*>(draw.y);
  for_chunks<1>(draw, begin, end, [&](int64_t i, int64_t n, const uint32_t* words) {
    std::memcpy(y + i, words, static_cast<size_t>(n) * sizeof(uint32_t));
  });
}

// ---- uniform: [0, 1) in steps of 2^-24 for float, 2^-53 for double. u has room for whole vectors.

HWY_INLINE void to_uniform(const uint32_t* words, int64_t n, float* u) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const auto scale = hn::Set(d, 0x1p-24f);
  for (int64_t i = 0; i < n; i += static_cast<int64_t>(hn::Lanes(d))) {
    const auto top = hn::ShiftRight<8>(hn::Load(Words(), words + i));
    hn::Store(hn::Mul(hn::ConvertTo(d, hn::BitCast(di, top)), scale), d, u + i);
  }
}
HWY_INLINE void to_uniform(const uint32_t* words, int64_t n, double* u) {
  for (int64_t i = 0; i < n; ++i) u[i] = uniform53(words[2 * i], words[2 * i + 1]);
}

template <class T>
constexpr int kWordsOf = sizeof(T) / sizeof(uint32_t);

template <class T>
void draw_uniform(const Draw& draw, int64_t begin, int64_t end) {
  HWY_ALIGN T u[kRoom];
  for_chunks<kWordsOf<T>>(draw, begin, end,
                          [&](int64_t i, int64_t n, const uint32_t* words) HWY_ATTR {
                            to_uniform(words, n, u);
                            std::memcpy(static_cast<T*>(draw.y) + i, u, n * sizeof(T));
                          });
}

// ---- normal: Box-Muller. Elements 2j and 2j + 1 come from uniforms 2j and 2j + 1.

// Cosine and sine of the fraction u of a full turn. The turn is reduced to an eighth before it
// becomes an angle, so both are accurate near their zeros.
template <class D>
HWY_INLINE void cos_sin_turn(D d, hn::Vec<D> u, hn::Vec<D>& cosine, hn::Vec<D>& sine) {
  using T = hn::TFromD<D>;
  const auto quarter = hn::Round(hn::Mul(u, hn::Set(d, T{4})));
  const auto rest = hn::NegMulAdd(quarter, hn::Set(d, T{0.25}), u);
  const auto angle = hn::Mul(rest, hn::Set(d, 2 * std::numbers::pi_v<T>));
  const auto c = hn::Cos(d, angle), s = hn::Sin(d, angle);
  const auto one = hn::Set(d, T{1}), two = hn::Set(d, T{2}), three = hn::Set(d, T{3});
  const auto swap = hn::Or(hn::Eq(quarter, one), hn::Eq(quarter, three));
  const auto flip_cos = hn::Or(hn::Eq(quarter, one), hn::Eq(quarter, two));
  const auto flip_sin = hn::Or(hn::Eq(quarter, two), hn::Eq(quarter, three));
  const auto a = hn::IfThenElse(swap, s, c), b = hn::IfThenElse(swap, c, s);
  cosine = hn::IfThenElse(flip_cos, hn::Neg(a), a);
  sine = hn::IfThenElse(flip_sin, hn::Neg(b), b);
}

template <class T>
void draw_normal(const Draw& draw, int64_t begin, int64_t end) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  HWY_ALIGN T u[kRoom];
  const auto chunk = [&](int64_t i, int64_t n, const uint32_t* words) HWY_ATTR {
    const int64_t pairs = (n + 1) / 2;
    std::fill(u + 2 * pairs, u + std::min(kRoom, 2 * (pairs + lanes)), T{0});
    to_uniform(words, 2 * pairs, u);
    for (int64_t k = 0; k < pairs; k += lanes) {
      hn::Vec<decltype(d)> u0, u1, cosine, sine;
      hn::LoadInterleaved2(d, u + 2 * k, u0, u1);
      const auto log = hn::Log(d, hn::Sub(hn::Set(d, T{1}), u0));
      const auto radius = hn::Sqrt(hn::Mul(hn::Set(d, T{-2}), log));
      cos_sin_turn(d, u1, cosine, sine);
      hn::StoreInterleaved2(hn::Mul(radius, cosine), hn::Mul(radius, sine), d, u + 2 * k);
    }
    std::memcpy(static_cast<T*>(draw.y) + i, u, n * sizeof(T));
  };
  for_chunks<kWordsOf<T>>(draw, begin, end, chunk);
}

// ---- dropout: one word per element for all dtypes, so that the mask does not depend on the dtype

template <class D>
HWY_INLINE hn::Vec<D> words_as(D d, const uint32_t* words) {
  const hn::Rebind<int32_t, D> di;
  const auto top =
      hn::BitCast(di, hn::ShiftRight<8>(hn::LoadU(hn::RebindToUnsigned<decltype(di)>(), words)));
  if constexpr (sizeof(hn::TFromD<D>) == 8)
    return hn::PromoteTo(d, top);
  else
    return hn::ConvertTo(d, top);
}

template <class T>
void draw_dropout(const Draw& draw, int64_t begin, int64_t end) {
  using A = Acc<T>;
  const hn::ScalableTag<A> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto bar = hn::Set(d, static_cast<A>(static_cast<float>(draw.p)) * A{0x1p24});
  const auto keep = hn::Set(d, static_cast<A>(1 - draw.p));
  const T* x = static_cast<const T*>(draw.x);
  T* y = static_cast<T*>(draw.y);
  for_chunks<1>(draw, begin, end, [&](int64_t i, int64_t n, const uint32_t* words) HWY_ATTR {
    const auto value = [&](hn::Vec<decltype(d)> v, int64_t k) HWY_ATTR {
      return hn::IfThenElseZero(hn::Ge(words_as(d, words + k), bar), hn::Div(v, keep));
    };
    int64_t k = 0;
    for (; k + lanes <= n; k += lanes) store(d, value(load(d, x + i + k), k), y + i + k);
    if (k < n) store_n(d, value(load_n(d, x + i + k, n - k), k), y + i + k, n - k);
  });
}

DrawRange bits_range() { return draw_bits; }

DrawRange uniform_for(tenon_dtype dtype) {
  if (dtype == TENON_DTYPE_F32) return draw_uniform<float>;
  if (dtype == TENON_DTYPE_F64) return draw_uniform<double>;
  return nullptr;
}
DrawRange normal_for(tenon_dtype dtype) {
  if (dtype == TENON_DTYPE_F32) return draw_normal<float>;
  if (dtype == TENON_DTYPE_F64) return draw_normal<double>;
  return nullptr;
}
DrawRange dropout_for(tenon_dtype dtype) {
  return with_type(sdk::kFloatTypes, "x", dtype,
                   []<class T>(T) -> DrawRange { return draw_dropout<T>; });
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {
HWY_EXPORT(bits_range);
HWY_EXPORT(uniform_for);
HWY_EXPORT(normal_for);
HWY_EXPORT(dropout_for);

namespace {

using sdk::Call;
using sdk::Kernel;
using sdk::Node;

void draw_all(const Draw& draw, DrawRange range, int64_t count) {
  parallel_for(count, 8 * kChunk, [&](int64_t begin, int64_t end) { range(draw, begin, end); });
}

Kernel make_draw(const sdk::Type& y, DrawRange range) {
  if (range == nullptr) throw sdk::Refusal::attribute("dtype", sdk::dtype_name(y.dtype));
  return {.run = [range, count = y.elements()](const Call& c) {
    draw_all({.rng = Rng::read(c.inputs[0]), .y = c.outputs[0]}, range, count);
  }};
}

Kernel make_random_bits(const sdk::op::random_bits&, const Node& node) {
  return make_draw(node.out(0).type(), HWY_DYNAMIC_DISPATCH(bits_range)());
}
Kernel make_random_uniform(const sdk::op::random_uniform&, const Node& node) {
  const sdk::Type& y = node.out(0).type();
  return make_draw(y, HWY_DYNAMIC_DISPATCH(uniform_for)(y.dtype));
}
Kernel make_random_normal(const sdk::op::random_normal&, const Node& node) {
  const sdk::Type& y = node.out(0).type();
  return make_draw(y, HWY_DYNAMIC_DISPATCH(normal_for)(y.dtype));
}

Kernel make_dropout(const sdk::op::dropout& n, const Node&) {
  const sdk::Type& x = n.x.type();
  const DrawRange range = HWY_DYNAMIC_DISPATCH(dropout_for)(x.dtype);
  return {.run =
              [range, p = n.p, count = x.elements()](const Call& c) {
                draw_all({Rng::read(c.inputs[1]), c.inputs[0], c.outputs[0], p}, range, count);
              },
          .in_place = {{0, 0}}};
}

constexpr sdk::Row kRows[] = {
    sdk::row<sdk::op::random_bits, make_random_bits>(),
    sdk::row<sdk::op::random_uniform, make_random_uniform>(),
    sdk::row<sdk::op::random_normal, make_random_normal>(),
    sdk::row<sdk::op::dropout, make_dropout>(),
    sdk::row<sdk::op::sample, make_sample>(),
};

}  // namespace

std::span<const sdk::Row> random_rows() { return kRows; }

}  // namespace tenon::cpu
#endif
