// SPDX-License-Identifier: Apache-2.0
// Unpacks blocks of each format to levels, scales and adds (dequant.hpp). Per target, as simd-inl.h.
#if defined(TENON_CPU_DEQUANT_UNPACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TENON_CPU_DEQUANT_UNPACK_INL_H_
#undef TENON_CPU_DEQUANT_UNPACK_INL_H_
#else
#define TENON_CPU_DEQUANT_UNPACK_INL_H_
#endif

#include <hwy/highway.h>

#include <cstring>

#include "dequant.hpp"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Bytes16 = hn::FixedTag<uint8_t, 16>;
using Bytes32 = hn::CappedTag<uint8_t, 32>;

HWY_INLINE uint32_t word(const uint8_t* at) {
  uint32_t bits;
  std::memcpy(&bits, at, 4);
  return bits;
}
HWY_INLINE float half_at(const uint8_t* at) { return sdk::BlockBytes{at}.f16(0); }

// levels - centre. Everything here is made with kFlip 0, or 128 for levels + 128, without a sign.
template <int kFlip, class D, class V>
HWY_INLINE void put(D d, V levels, int centre, int8_t* to) {
  const hn::RebindToSigned<D> di;
  centre += kFlip;
  if (centre != 0) levels = hn::Sub(levels, hn::Set(d, static_cast<uint8_t>(centre)));
  hn::StoreU(hn::BitCast(di, levels), di, to);
}
template <class D, class V>
HWY_INLINE V low_nibbles(D d, V v) {
  return hn::And(v, hn::Set(d, uint8_t{15}));
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
HWY_INLINE hn::Vec<Bytes16> looked_up(const int8_t* table, hn::Vec<Bytes16> codes) {
  return hn::TableLookupBytes(hn::LoadU(Bytes16(), reinterpret_cast<const uint8_t*>(table)), codes);
}

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

template <tenon_dtype kFormat>
struct Format;

// The halves at `at` of each block of 32 elements, for both groups of 16 in it.
HWY_INLINE void block_halves(const uint8_t* at, int64_t bytes, int blocks, float* to) {
  const hn::FixedTag<float, 4> d;
  const hn::FixedTag<hwy::float16_t, 4> d16;
  int b = 0;
  for (; b + 4 <= blocks; b += 4, at += 4 * bytes) {
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

// Formats of 32 elements: the levels of a block, then the scales of up to eight blocks.
#define TENON_BLOCK_32(name, body, of_blocks)                                                  \
  template <>                                                                                  \
  struct Format<TENON_DTYPE_##name> {                                                          \
    template <int kFlip>                                                                       \
    static HWY_INLINE void block(const uint8_t* from, int b, Unpacked& to) {                   \
      int8_t* const level = to.level + 32 * b;                                                 \
      const Bytes16 d;                                                                         \
      body                                                                                     \
    }                                                                                          \
    static HWY_INLINE void scales(const uint8_t* from, int blocks, Unpacked& to) { of_blocks } \
  };

TENON_BLOCK_32(
    Q4_0,
    {
      const auto v = hn::LoadU(d, from + 2);
      put<kFlip>(d, low_nibbles(d, v), 8, level);
      put<kFlip>(d, hn::ShiftRight<4>(v), 8, level + 16);
    },
    { block_halves(from, 18, blocks, to.scale); })
TENON_BLOCK_32(
    Q4_1,
    {
      const auto v = hn::LoadU(d, from + 4);
      put<kFlip>(d, low_nibbles(d, v), 0, level);
      put<kFlip>(d, hn::ShiftRight<4>(v), 0, level + 16);
    },
    {
      block_halves(from, 20, blocks, to.scale);
      block_halves(from + 2, 20, blocks, to.add);
    })
TENON_BLOCK_32(
    Q5_0,
    {
      const auto v = hn::LoadU(d, from + 6);
      const uint32_t high = word(from + 2);
      put<kFlip>(d, hn::Or(low_nibbles(d, v), bits_as(high, 0, 16)), 16, level);
      put<kFlip>(d, hn::Or(hn::ShiftRight<4>(v), bits_as(high, 16, 16)), 16, level + 16);
    },
    { block_halves(from, 22, blocks, to.scale); })
TENON_BLOCK_32(
    Q5_1,
    {
      const auto v = hn::LoadU(d, from + 8);
      const uint32_t high = word(from + 4);
      put<kFlip>(d, hn::Or(low_nibbles(d, v), bits_as(high, 0, 16)), 0, level);
      put<kFlip>(d, hn::Or(hn::ShiftRight<4>(v), bits_as(high, 16, 16)), 0, level + 16);
    },
    {
      block_halves(from, 24, blocks, to.scale);
      block_halves(from + 2, 24, blocks, to.add);
    })
TENON_BLOCK_32(
    Q8_0,
    {
      put<kFlip>(d, hn::LoadU(d, from + 2), 0, level);
      put<kFlip>(d, hn::LoadU(d, from + 18), 0, level + 16);
    },
    { block_halves(from, 34, blocks, to.scale); })
TENON_BLOCK_32(
    Q8_1,
    {
      put<kFlip>(d, hn::LoadU(d, from + 4), 0, level);
      put<kFlip>(d, hn::LoadU(d, from + 20), 0, level + 16);
    },
    { block_halves(from, 36, blocks, to.scale); })
TENON_BLOCK_32(
    IQ4_NL,
    {
      const auto v = hn::LoadU(d, from + 2);
      put<kFlip>(d, looked_up(sdk::kIq4Levels, low_nibbles(d, v)), 0, level);
      put<kFlip>(d, looked_up(sdk::kIq4Levels, hn::ShiftRight<4>(v)), 0, level + 16);
    },
    { block_halves(from, 18, blocks, to.scale); })
TENON_BLOCK_32(
    MXFP4,
    {
      const auto v = hn::LoadU(d, from + 1);
      put<kFlip>(d, looked_up(sdk::kE2m1Doubled, low_nibbles(d, v)), 0, level);
      put<kFlip>(d, looked_up(sdk::kE2m1Doubled, hn::ShiftRight<4>(v)), 0, level + 16);
    },
    {
      for (int b = 0; b < blocks; ++b)
        to.scale[2 * b] = to.scale[2 * b + 1] = sdk::mxfp4_half_scale(from[17 * b]);
    })
#undef TENON_BLOCK_32

template <>
struct Format<TENON_DTYPE_NVFP4> {
  template <int kFlip>
  static HWY_INLINE void block(const uint8_t* from, int b, Unpacked& to) {
    const hn::FixedTag<uint8_t, 8> d;
    const Bytes16 d16;
    for (int g = 0; g < 4; ++g) {
      const auto v = hn::LoadU(d, from + 4 + 8 * g);
      alignas(16) uint8_t codes[16];
      hn::StoreU(low_nibbles(d, v), d, codes);
      hn::StoreU(hn::ShiftRight<4>(v), d, codes + 8);
      put<kFlip>(d16, looked_up(sdk::kE2m1Doubled, hn::Load(d16, codes)), 0,
                 to.level + 64 * b + 16 * g);
      to.scale[4 * b + g] = sdk::ue4m3_value(from[g]) * 0.5f;
    }
  }
};
template <>
struct Format<TENON_DTYPE_Q1_0> {
  template <int kFlip>
  static HWY_INLINE void block(const uint8_t* from, int b, Unpacked& to) {
    for (int g = 0; g < 8; ++g) {
      const uint32_t bits = from[2 + 2 * g] | static_cast<uint32_t>(from[3 + 2 * g]) << 8;
      put<kFlip>(Bytes16(), bits_as(bits, 0, 2), 1, to.level + 128 * b + 16 * g);
      to.scale[8 * b + g] = half_at(from);
    }
  }
};
template <>
struct Format<TENON_DTYPE_Q2_0> {
  template <int kFlip>
  static HWY_INLINE void block(const uint8_t* from, int b, Unpacked& to) {
    for (int i = 0; i < 64; ++i)
      to.level[64 * b + i] = static_cast<int8_t>((from[2 + i / 4] >> 2 * (i % 4) & 3) - 1 - kFlip);
    for (int g = 0; g < 4; ++g) to.scale[4 * b + g] = half_at(from);
  }
};

template <>
struct Format<TENON_DTYPE_Q2_K> {
  template <int kFlip>
  static HWY_INLINE void block(const uint8_t* from, int, Unpacked& to) {
    const Bytes32 d;
    const Bytes16 d16;
    const size_t lanes = hn::Lanes(d);
    const auto three = hn::Set(d, uint8_t{3});
    for (size_t n = 0; n < 2; ++n)
      for (size_t l = 0; l < 32; l += lanes) {
        const auto v = hn::LoadU(d, from + 16 + 32 * n + l);
        int8_t* const level = to.level + 128 * n + l;
        put<kFlip>(d, hn::And(v, three), 0, level);
        put<kFlip>(d, hn::And(hn::ShiftRight<2>(v), three), 0, level + 32);
        put<kFlip>(d, hn::And(hn::ShiftRight<4>(v), three), 0, level + 64);
        put<kFlip>(d, hn::ShiftRight<6>(v), 0, level + 96);
      }
    const auto scales = hn::LoadU(d16, from);
    scales_of<uint8_t>(low_nibbles(d16, scales), 0, half_at(from + 80), to.scale);
    scales_of<uint8_t>(hn::ShiftRight<4>(scales), 0, -half_at(from + 82), to.add);
  }
};

template <>
struct Format<TENON_DTYPE_Q3_K> {
  template <int kFlip>
  static HWY_INLINE void block(const uint8_t* from, int, Unpacked& to) {
    const Bytes32 d;
    const size_t lanes = hn::Lanes(d);
    const auto three = hn::Set(d, uint8_t{3});
    for (size_t n = 0; n < 2; ++n)
      for (size_t l = 0; l < 32; l += lanes) {
        const auto v = hn::LoadU(d, from + 32 + 32 * n + l), high = hn::LoadU(d, from + l);
        int8_t* const level = to.level + 128 * n + l;
        const int bit = 1 << 4 * n;
        put<kFlip>(d, hn::Or(hn::And(v, three), bit_as(d, high, bit, 4)), 4, level);
        put<kFlip>(d, hn::Or(hn::And(hn::ShiftRight<2>(v), three), bit_as(d, high, 2 * bit, 4)), 4,
                   level + 32);
        put<kFlip>(d, hn::Or(hn::And(hn::ShiftRight<4>(v), three), bit_as(d, high, 4 * bit, 4)), 4,
                   level + 64);
        put<kFlip>(d, hn::Or(hn::ShiftRight<6>(v), bit_as(d, high, 8 * bit, 4)), 4, level + 96);
      }
    const uint32_t a = word(from + 96), b = word(from + 100), c = word(from + 104);
    constexpr uint32_t kLow = 0x0f0f0f0f, kTwo = 0x03030303;
    const hn::FixedTag<uint64_t, 2> d64;
    const auto low =
        hn::Set(d64, both((a & kLow) | (c & kTwo) << 4, (b & kLow) | (c >> 2 & kTwo) << 4));
    const auto high = hn::Set(
        d64, both((a >> 4 & kLow) | (c >> 4 & kTwo) << 4, (b >> 4 & kLow) | (c >> 6 & kTwo) << 4));
    scales_of<uint8_t>(hn::BitCast(Bytes16(), hn::InterleaveLower(d64, low, high)), 32,
                       half_at(from + 108), to.scale);
  }
};

// The six-bit scales and minima of q4_k and q5_k.
HWY_INLINE void scales_and_adds(const uint8_t* from, Unpacked& to) {
  const uint32_t a = word(from + 4), b = word(from + 8), c = word(from + 12);
  constexpr uint32_t kSix = 0x3f3f3f3f, kLow = 0x0f0f0f0f, kTwo = 0x03030303;
  scales_of<uint8_t>(twice(both(a & kSix, (c & kLow) | (a >> 6 & kTwo) << 4)), 0, half_at(from),
                     to.scale);
  scales_of<uint8_t>(twice(both(b & kSix, (c >> 4 & kLow) | (b >> 6 & kTwo) << 4)), 0,
                     -half_at(from + 2), to.add);
}

template <>
struct Format<TENON_DTYPE_Q4_K> {
  template <int kFlip>
  static HWY_INLINE void block(const uint8_t* from, int, Unpacked& to) {
    const Bytes32 d;
    const size_t lanes = hn::Lanes(d);
    for (size_t p = 0; p < 4; ++p)
      for (size_t l = 0; l < 32; l += lanes) {
        const auto v = hn::LoadU(d, from + 16 + 32 * p + l);
        put<kFlip>(d, low_nibbles(d, v), 0, to.level + 64 * p + l);
        put<kFlip>(d, hn::ShiftRight<4>(v), 0, to.level + 64 * p + 32 + l);
      }
    scales_and_adds(from, to);
  }
};
template <>
struct Format<TENON_DTYPE_Q5_K> {
  template <int kFlip>
  static HWY_INLINE void block(const uint8_t* from, int, Unpacked& to) {
    const Bytes32 d;
    const size_t lanes = hn::Lanes(d);
    for (size_t p = 0; p < 4; ++p)
      for (size_t l = 0; l < 32; l += lanes) {
        const auto v = hn::LoadU(d, from + 48 + 32 * p + l), high = hn::LoadU(d, from + 16 + l);
        const int bit = 1 << 2 * p;
        put<kFlip>(d, hn::Or(low_nibbles(d, v), bit_as(d, high, bit, 16)), 0,
                   to.level + 64 * p + l);
        put<kFlip>(d, hn::Or(hn::ShiftRight<4>(v), bit_as(d, high, 2 * bit, 16)), 0,
                   to.level + 64 * p + 32 + l);
      }
    scales_and_adds(from, to);
  }
};
template <>
struct Format<TENON_DTYPE_Q6_K> {
  template <int kFlip>
  static HWY_INLINE void block(const uint8_t* from, int, Unpacked& to) {
    const Bytes32 d;
    const size_t lanes = hn::Lanes(d);
    const auto two = hn::Set(d, uint8_t{0x30});
    for (size_t n = 0; n < 2; ++n)
      for (size_t l = 0; l < 32; l += lanes) {
        const auto a = hn::LoadU(d, from + 64 * n + l), b = hn::LoadU(d, from + 64 * n + 32 + l);
        const auto high = hn::LoadU(d, from + 128 + 32 * n + l);
        int8_t* const level = to.level + 128 * n + l;
        put<kFlip>(d, hn::Or(low_nibbles(d, a), hn::And(hn::ShiftLeft<4>(high), two)), 32, level);
        put<kFlip>(d, hn::Or(low_nibbles(d, b), hn::And(hn::ShiftLeft<2>(high), two)), 32,
                   level + 32);
        put<kFlip>(d, hn::Or(hn::ShiftRight<4>(a), hn::And(high, two)), 32, level + 64);
        put<kFlip>(d, hn::Or(hn::ShiftRight<4>(b), hn::And(hn::ShiftRight<2>(high), two)), 32,
                   level + 96);
      }
    scales_of<int8_t>(hn::LoadU(Bytes16(), from + 192), 0, half_at(from + 208), to.scale);
  }
};
template <>
struct Format<TENON_DTYPE_Q8_K> {
  template <int kFlip>
  static HWY_INLINE void block(const uint8_t* from, int, Unpacked& to) {
    const Bytes32 d;
    for (size_t l = 0; l < 256; l += hn::Lanes(d))
      put<kFlip>(d, hn::LoadU(d, from + 4 + l), 0, to.level + l);
    const float scale = sdk::BlockBytes{from}.f32(0);
    for (float& s : to.scale) s = scale;
  }
};
template <>
struct Format<TENON_DTYPE_IQ4_XS> {
  template <int kFlip>
  static HWY_INLINE void block(const uint8_t* from, int, Unpacked& to) {
    const Bytes16 d;
    for (int g = 0; g < 8; ++g) {
      const auto v = hn::LoadU(d, from + 8 + 16 * g);
      put<kFlip>(d, looked_up(sdk::kIq4Levels, low_nibbles(d, v)), 0, to.level + 32 * g);
      put<kFlip>(d, looked_up(sdk::kIq4Levels, hn::ShiftRight<4>(v)), 0, to.level + 32 * g + 16);
    }
    // Four bits of each scale in a nibble, two in a field of 16 bits.
    uint64_t six = 0;
    const uint64_t low = word(from + 4), high = sdk::BlockBytes{from}.u16(2);
#pragma GCC unroll 8
    for (int g = 0; g < 8; ++g) six |= ((low >> 4 * g & 15) | (high >> 2 * g & 3) << 4) << 8 * g;
    scales_of<uint8_t>(twice(six), 32, half_at(from), to.scale);
  }
};
template <>
struct Format<TENON_DTYPE_TQ2_0> {
  template <int kFlip>
  static HWY_INLINE void block(const uint8_t* from, int, Unpacked& to) {
    const Bytes32 d;
    const size_t lanes = hn::Lanes(d);
    const auto three = hn::Set(d, uint8_t{3});
    for (size_t n = 0; n < 2; ++n)
      for (size_t l = 0; l < 32; l += lanes) {
        const auto v = hn::LoadU(d, from + 32 * n + l);
        int8_t* const level = to.level + 128 * n + l;
        put<kFlip>(d, hn::And(v, three), 1, level);
        put<kFlip>(d, hn::And(hn::ShiftRight<2>(v), three), 1, level + 32);
        put<kFlip>(d, hn::And(hn::ShiftRight<4>(v), three), 1, level + 64);
        put<kFlip>(d, hn::ShiftRight<6>(v), 1, level + 96);
      }
    const float scale = half_at(from + 64);
    for (float& s : to.scale) s = scale;
  }
};
template <>
struct Format<TENON_DTYPE_TQ1_0> {
  template <int kFlip>
  static HWY_INLINE void block(const uint8_t* from, int, Unpacked& to) {
    // The top digit of base 3, times 256: from 86 on it is 1, from 171 on 2.
    const auto digits = [&](int at, int count, int each, int8_t* level) {
      for (int i = 0; i < count; ++i) {
        auto byte = from[at + i];
        for (int t = 0; t < each; ++t, byte = static_cast<uint8_t>(byte * 3))
          level[t * count + i] = static_cast<int8_t>((byte >= 86) + (byte >= 171) - 1 - kFlip);
      }
    };
    digits(0, 32, 5, to.level);
    digits(32, 16, 5, to.level + 160);
    digits(48, 4, 4, to.level + 240);
    const float scale = half_at(from + 52);
    for (float& s : to.scale) s = scale;
  }
};

// Unpacks `count` elements, whole blocks.
template <tenon_dtype kFormat, int kFlip>
HWY_INLINE void unpack_as(const uint8_t* from, int64_t count, Unpacked& to) {
  const tenon_block block = tenon_dtype_block(kFormat);
  const int blocks = static_cast<int>(count / block.elements);
  if constexpr (requires { &Format<kFormat>::scales; }) Format<kFormat>::scales(from, blocks, to);
  for (int b = 0; b < blocks; ++b, from += block.bytes)
    Format<kFormat>::template block<kFlip>(from, b, to);
  for (int64_t g = count / 16; g < kUnpacked / 16; ++g) to.scale[g] = to.add[g] = 0;
}

// Calls f with the format as a constant.
template <class F>
HWY_INLINE void with_format(tenon_dtype t, const F& f) {
#define TENON_FORMAT(name) \
  case TENON_DTYPE_##name: \
    return f(std::integral_constant<tenon_dtype, TENON_DTYPE_##name>());
  switch (t) {
    TENON_FORMAT(Q4_0)
    TENON_FORMAT(Q4_1)
    TENON_FORMAT(Q5_0)
    TENON_FORMAT(Q5_1)
    TENON_FORMAT(Q8_0)
    TENON_FORMAT(Q8_1)
    TENON_FORMAT(Q2_K)
    TENON_FORMAT(Q3_K)
    TENON_FORMAT(Q4_K)
    TENON_FORMAT(Q5_K)
    TENON_FORMAT(Q6_K)
    TENON_FORMAT(Q8_K)
    TENON_FORMAT(IQ4_NL)
    TENON_FORMAT(IQ4_XS)
    TENON_FORMAT(TQ1_0)
    TENON_FORMAT(TQ2_0)
    TENON_FORMAT(MXFP4)
    TENON_FORMAT(NVFP4)
    TENON_FORMAT(Q1_0)
    TENON_FORMAT(Q2_0)
  }
#undef TENON_FORMAT
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
