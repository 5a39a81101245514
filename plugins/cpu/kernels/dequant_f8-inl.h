// SPDX-License-Identifier: Apache-2.0
// Blocks of f8e4m3_128 as floats, and products of few rows of x that read them straight from memory.
// Per target, as simd-inl.h.
//
// The bits of a number, moved into an f16, are the number times 2^-8, subnormals included. So an
// element is this f16 times (scale * 2^8), an exact factor, and is rounded once. Blocks with a NaN,
// which would become a finite f16, and blocks whose factor would overflow take a longer way.
#if defined(TENON_CPU_DEQUANT_F8_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TENON_CPU_DEQUANT_F8_INL_H_
#undef TENON_CPU_DEQUANT_F8_INL_H_
#else
#define TENON_CPU_DEQUANT_F8_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cmath>
#include <cstring>

#include "dequant.hpp"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A lane takes every sixteenth element, on targets of fewer lanes too.
using Lanes16 = hn::CappedTag<float, 16>;

inline constexpr int64_t kF8Elements = 128, kF8Bytes = 132;
// Products of so many rows of x, or fewer, decode in registers. More rows share decoded elements.
inline constexpr int64_t kRowsOfF8 = 2;
// Rows of w follow each other, so memory is asked for what is needed so many bytes later: far enough for
// its latency, near enough for the first-level cache. Beyond w, this has no effect.
inline constexpr int64_t kF8Ahead = 4 << 10;

// The numbers at `from`, times 2^-8.
HWY_INLINE hn::Vec<Lanes16> f8_small(const uint8_t* from) {
  const Lanes16 d;
  const hn::Rebind<int16_t, Lanes16> d16;
  const hn::Rebind<int8_t, Lanes16> d8;
  const hn::Rebind<hwy::float16_t, Lanes16> half;
  const auto wide = hn::PromoteTo(d16, hn::LoadU(d8, reinterpret_cast<const int8_t*>(from)));
  // Bit 8 has the sign, which bit 7 has as well.
  const auto bits = hn::And(hn::ShiftLeft<7>(wide), hn::Set(d16, static_cast<int16_t>(0xbfff)));
  return hn::PromoteTo(d, hn::BitCast(half, bits));
}
// The same for any code: NaN for 0x7f and 0xff.
HWY_INLINE hn::Vec<Lanes16> f8_any(const uint8_t* from) {
  const Lanes16 d;
  const auto number = hn::Mul(f8_small(from), hn::Set(d, 0x1p8f));
  // 0x7f and 0xff alone come out as 480.
  return hn::IfThenElse(hn::Eq(hn::Abs(number), hn::Set(d, 480.0f)), hn::NaN(d), number);
}

// A block: its scale, and whether its elements need f8_any().
struct F8Block {
  float scale;
  bool any;
};
HWY_INLINE F8Block f8_block(const uint8_t* block) {
  const hn::CappedTag<uint8_t, 64> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  F8Block b{};
  std::memcpy(&b.scale, block, sizeof b.scale);
  const auto magnitude = hn::Set(d, uint8_t{0x7f});
  auto most = hn::Zero(d);
  for (int64_t i = 0; i < kF8Elements; i += lanes)
    most = hn::Max(most, hn::And(hn::LoadU(d, block + 4 + i), magnitude));
  b.any = !(std::fabs(b.scale) < 0x1p120f) || !hn::AllFalse(d, hn::Eq(most, magnitude));
  return b;
}

// Calls take(i, p, v) for each vector v of a block: its elements from i on. Vectors have p = 0 to 3 in
// turn, as constants of an unrolled loop.
template <class Take>
HWY_INLINE void f8_elements(const uint8_t* block, const Take& take) {
  const Lanes16 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const F8Block b = f8_block(block);
  if (HWY_UNLIKELY(b.any)) {
    const auto scale = hn::Set(d, b.scale);
    for (int64_t i = 0; i < kF8Elements; i += 4 * lanes)
#pragma GCC unroll 4
      for (int p = 0; p < 4; ++p)
        take(i + p * lanes, p, hn::Mul(f8_any(block + 4 + i + p * lanes), scale));
    return;
  }
  const auto scale = hn::Set(d, b.scale * 0x1p8f);
#pragma GCC unroll 8
  for (int64_t i = 0; i < kF8Elements; i += 4 * lanes)
#pragma GCC unroll 4
    for (int p = 0; p < 4; ++p)
      take(i + p * lanes, p, hn::Mul(f8_small(block + 4 + i + p * lanes), scale));
}

// `count` elements as floats.
HWY_INLINE void f8_decode(const uint8_t* from, int64_t count, float* to) {
  const Lanes16 d;
  for (int64_t k = 0; k < count; k += kF8Elements, from += kF8Bytes)
    f8_elements(from,
                [&](int64_t i, int, hn::Vec<Lanes16> v) HWY_ATTR { hn::StoreU(v, d, to + k + i); });
}

// kX rows of x and a row of w: the sums go to their lanes, lanes_step apart. The order of
// the sums is that of float_tile(): of each kBlockChunk elements, four partial sums take every fourth
// vector.
template <int kX>
HWY_INLINE void f8_row(const uint8_t* w, int64_t k, const float* const* x, float* lanes,
                       int64_t lanes_step) {
  const Lanes16 d;
  using V = hn::Vec<Lanes16>;
  V all[kX];
#pragma GCC unroll 2
  for (int m = 0; m < kX; ++m) all[m] = hn::Zero(d);
  for (int64_t first = 0; first < k; first += kBlockChunk) {
    const int64_t end = first + kBlockChunk < k ? first + kBlockChunk : k;
    V sum[kX][4];
#pragma GCC unroll 2
    for (int m = 0; m < kX; ++m)
#pragma GCC unroll 4
      for (int p = 0; p < 4; ++p) sum[m][p] = hn::Zero(d);
    for (int64_t at = first; at < end; at += kF8Elements, w += kF8Bytes) {
      for (int64_t i = 0; i < kF8Bytes; i += 64) hwy::Prefetch(w + kF8Ahead + i);
      f8_elements(w, [&](int64_t i, int p, V v) HWY_ATTR {
#pragma GCC unroll 2
        for (int m = 0; m < kX; ++m)
          sum[m][p] = hn::MulAdd(hn::LoadU(d, x[m] + at + i), v, sum[m][p]);
      });
    }
#pragma GCC unroll 2
    for (int m = 0; m < kX; ++m) {
      const V* const s = sum[m];
      all[m] = hn::Add(all[m], hn::Add(hn::Add(s[0], s[1]), hn::Add(s[2], s[3])));
    }
  }
#pragma GCC unroll 2
  for (int m = 0; m < kX; ++m) hn::StoreU(all[m], d, lanes + m * lanes_step);
}

// Rows [i, i + rows) of x, at most kRowsOfF8, and `cols` rows of w from row j on, one after the other as
// memory delivers them. lanes: [rows][kFloatPanel][16].
HWY_INLINE void f8_rows(const BlockProduct& p, int64_t j, int64_t cols, int64_t i, int64_t rows,
                        float* lanes) {
  const auto bytes = static_cast<int64_t>(tenon_dense_bytes(TENON_DTYPE_F8E4M3_128, p.k));
  const float* x[kRowsOfF8];
  for (int64_t r = 0; r < rows; ++r) x[r] = p.x + (p.order ? p.order[i + r] : i + r) * p.k;
  for (int64_t n = 0; n < cols; ++n)
    if (rows == 1)
      f8_row<1>(p.w + (j + n) * bytes, p.k, x, lanes + n * 16, kFloatPanel * 16);
    else
      f8_row<2>(p.w + (j + n) * bytes, p.k, x, lanes + n * 16, kFloatPanel * 16);
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
