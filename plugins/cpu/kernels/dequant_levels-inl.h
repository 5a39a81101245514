// SPDX-License-Identifier: Apache-2.0
// What formats of blocks share to unpack their levels and scales. Per target, as simd-inl.h.
#if defined(TENON_CPU_DEQUANT_LEVELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TENON_CPU_DEQUANT_LEVELS_INL_H_
#undef TENON_CPU_DEQUANT_LEVELS_INL_H_
#else
#define TENON_CPU_DEQUANT_LEVELS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstring>

#include "dequant.hpp"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// block<kFlip>(from, b, to) unpacks block b of an Unpacked. scales(from, blocks, to), where a format
// has it, reads the scales of all its blocks at once.
template <tenon_dtype kFormat>
struct Format;

using Bytes16 = hn::FixedTag<uint8_t, 16>;
using Bytes32 = hn::CappedTag<uint8_t, 32>;

HWY_INLINE uint32_t word(const uint8_t* at) {
  uint32_t bits;
  std::memcpy(&bits, at, 4);
  return bits;
}
HWY_INLINE float half_at(const uint8_t* at) {
  // Below AVX2, Highway's own conversion knows neither infinities nor NaN.
  if (HWY_TARGET > HWY_AVX2) return sdk::BlockBytes{at}.f16(0);
  const hn::FixedTag<uint16_t, 4> d16;
  const auto half = hn::BitCast(hn::FixedTag<hwy::float16_t, 4>(),
                                hn::Set(d16, static_cast<uint16_t>(sdk::BlockBytes{at}.u16(0))));
  return hn::GetLane(hn::PromoteTo(hn::FixedTag<float, 4>(), half));
}

// levels - centre - kFlip. kFlip is 0, or -level_lift() of the format: levels then have no sign.
template <int kFlip, class D, class V>
HWY_INLINE void put(D d, V levels, int centre, int8_t* to) {
  const hn::RebindToSigned<D> di;
  centre += kFlip;
  if (centre != 0) levels = hn::Sub(levels, hn::Set(d, static_cast<uint8_t>(centre)));
  hn::StoreU(hn::BitCast(di, levels), di, to);
}

// ---- Codes

// The low and the high four bits of each byte.
template <class V>
struct Halves {
  V low, high;
};
template <class D>
HWY_INLINE Halves<hn::Vec<D>> nibbles(D d, const uint8_t* from) {
  const auto v = hn::LoadU(d, from);
  return {hn::And(v, hn::Set(d, uint8_t{15})), hn::ShiftRight<4>(v)};
}
// The elements of both halves are `apart`.
template <int kFlip, class D, class V>
HWY_INLINE void put(D d, const Halves<V>& codes, int centre, int8_t* to, size_t apart) {
  put<kFlip>(d, codes.low, centre, to);
  put<kFlip>(d, codes.high, centre, to + apart);
}

// Vectors of bytes of elements that are 32 apart.
template <class V>
struct Quarters {
  V at[4];
};
// The four pairs of bits of each byte.
template <class D>
HWY_INLINE Quarters<hn::Vec<D>> bit_pairs(D d, const uint8_t* from) {
  const auto v = hn::LoadU(d, from), three = hn::Set(d, uint8_t{3});
  return {{hn::And(v, three), hn::And(hn::ShiftRight<2>(v), three),
           hn::And(hn::ShiftRight<4>(v), three), hn::ShiftRight<6>(v)}};
}
template <int kFlip, class D, class V>
HWY_INLINE void put(D d, const Quarters<V>& codes, int centre, int8_t* to) {
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) put<kFlip>(d, codes.at[j], centre, to + 32 * j);
}

template <int kFlip>
HWY_INLINE void put_bytes(const uint8_t* from, size_t count, int8_t* to) {
  const Bytes32 d;
#pragma GCC unroll 8
  for (size_t l = 0; l < count; l += hn::Lanes(d)) put<kFlip>(d, hn::LoadU(d, from + l), 0, to + l);
}

// Calls f(n, l) for the vectors of `parts` times 32 bytes: l counts the bytes of part n.
template <class F>
HWY_INLINE void each_vector(size_t parts, const F& f) {
  const size_t lanes = hn::Lanes(Bytes32());
#pragma GCC unroll 4
  for (size_t n = 0; n < parts; ++n)
#pragma GCC unroll 2
    for (size_t l = 0; l < 32; l += lanes) f(n, l);
}

// The bits of `mask` as `value`.
template <class D, class V>
HWY_INLINE V bit_as(D d, V v, int mask, int value) {
  const auto bit = hn::Set(d, static_cast<uint8_t>(mask));
  return hn::IfThenElseZero(hn::Eq(hn::And(v, bit), bit), hn::Set(d, static_cast<uint8_t>(value)));
}
// Bits `first` to `first` + 15 of 32, each in a byte, as `value`.
HWY_INLINE hn::Vec<Bytes16> bits_as(uint32_t bits, int first, int value) {
  const Bytes16 d;
  alignas(16) static constexpr uint8_t kByte[16] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1};
  alignas(16) static constexpr uint8_t kBit[16] = {1, 2, 4, 8, 16, 32, 64, 128,
                                                   1, 2, 4, 8, 16, 32, 64, 128};
  const auto all = hn::BitCast(d, hn::Set(hn::FixedTag<uint32_t, 4>(), bits >> first));
  const auto mask = hn::Load(d, kBit);
  const auto mine = hn::And(hn::TableLookupBytes(all, hn::Load(d, kByte)), mask);
  return hn::IfThenElseZero(hn::Eq(mine, mask), hn::Set(d, static_cast<uint8_t>(value)));
}
// The entries of a table of 16.
HWY_INLINE hn::Vec<Bytes16> looked_up(const int8_t* table, hn::Vec<Bytes16> codes) {
  return hn::TableLookupBytes(hn::LoadU(Bytes16(), reinterpret_cast<const uint8_t*>(table)), codes);
}
HWY_INLINE Halves<hn::Vec<Bytes16>> looked_up(const int8_t* table,
                                              const Halves<hn::Vec<Bytes16>>& codes) {
  return {looked_up(table, codes.low), looked_up(table, codes.high)};
}

// ---- Scales

// to[g] = by · (bytes[g] - centre), for 16 groups. T: the bytes have a sign or none.
template <class T>
HWY_INLINE void scales_of(hn::Vec<Bytes16> bytes, int centre, float by, float* to) {
  const hn::CappedTag<float, 16> d;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::Rebind<T, decltype(d)> d8;
  const auto store = [&](auto few, size_t g) HWY_ATTR {
    const auto number = hn::Sub(hn::PromoteTo(di, few), hn::Set(di, centre));
    hn::StoreU(hn::Mul(hn::ConvertTo(d, number), hn::Set(d, by)), d, to + g);
  };
  if constexpr (hn::MaxLanes(d) == 16) {
    store(hn::BitCast(d8, bytes), 0);
  } else {
    alignas(16) T all[16];
    hn::Store(hn::BitCast(hn::FixedTag<T, 16>(), bytes), hn::FixedTag<T, 16>(), all);
    for (size_t g = 0; g < 16; g += hn::Lanes(d)) store(hn::LoadU(d8, all + g), g);
  }
}
// Each of eight bytes twice.
HWY_INLINE hn::Vec<Bytes16> twice(uint64_t eight) {
  const Bytes16 d;
  const auto v = hn::BitCast(d, hn::Set(hn::FixedTag<uint64_t, 2>(), eight));
  return hn::InterleaveLower(d, v, v);
}
HWY_INLINE uint64_t both(uint32_t low, uint32_t high) {
  return low | static_cast<uint64_t>(high) << 32;
}
HWY_INLINE void one_scale(float scale, Unpacked& to) {
  for (float& s : to.scale) s = scale;
}

// The halves at `at` of each block of 32 elements, for both groups of 16 in it.
HWY_INLINE void block_halves(const uint8_t* at, int64_t bytes, int blocks, float* to) {
  const hn::FixedTag<float, 4> d;
  const hn::FixedTag<hwy::float16_t, 4> d16;
  int b = 0;
  for (; HWY_TARGET <= HWY_AVX2 && b + 4 <= blocks; b += 4, at += 4 * bytes) {
    uint64_t bits = 0;
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i)
      bits |= static_cast<uint64_t>(sdk::BlockBytes{at + i * bytes}.u16(0)) << 16 * i;
    const auto half = hn::BitCast(d16, hn::Set(hn::FixedTag<uint64_t, 1>(), bits));
    const auto v = hn::PromoteTo(d, half);
    hn::StoreU(hn::InterleaveLower(d, v, v), d, to + 2 * b);
    hn::StoreU(hn::InterleaveUpper(d, v, v), d, to + 2 * b + 4);
  }
  for (; b < blocks; ++b, at += bytes) to[2 * b] = to[2 * b + 1] = half_at(at);
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
