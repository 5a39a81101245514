// SPDX-License-Identifier: Apache-2.0
// One row of bytes with rows of blocks, by AVX512-VNNI. Decoding reads each weight once, so this
// must not be slower than memory: levels go from the blocks to the products in registers. Where 16
// groups are added up at once, elements of a group meet in one lane: those of w change places before
// codes become levels, so half of the vectors do; those of x do so once for all rows of w.
#include <algorithm>
#include <cstring>

#include "dequant_bytes.hpp"
#include "intrinsics.hpp"
#include "qgemm.hpp"

#if TENON_CPU_X86

namespace tenon::cpu {

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512vl,avx512vnni,f16c")
namespace {

// The sums of 16 groups of products, the scales of w, and what it adds with the opposite sign.
struct Groups {
  __m512i sums;
  __m512 scale, less;
};

HWY_INLINE __m512i load(const void* from) { return _mm512_loadu_si512(from); }
HWY_INLINE __m512i bytes(int v) { return _mm512_set1_epi8(static_cast<char>(v)); }
HWY_INLINE __m512i high_nibbles(__m512i v) {
  return _mm512_and_si512(_mm512_srli_epi16(v, 4), bytes(15));
}
// (a & mask) | b
HWY_INLINE __m512i masked_or(__m512i a, __m512i mask, __m512i b) {
  return _mm512_ternarylogic_epi32(a, mask, b, 0xea);
}
HWY_INLINE __m512i add_products(__m512i sum, __m512i w, const int8_t* x) {
  return _mm512_dpbusd_epi32(sum, w, load(x));
}
HWY_INLINE __m128i load16(const uint8_t* from) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}
HWY_INLINE __m256i load32(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}
HWY_INLINE __m512i halves(__m256i low, __m256i high) {
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

// ---- q4_k and q5_k: two blocks have 16 groups of 32

// Element i of quarter q of vector v becomes element v of quarter q of vector i.
HWY_INLINE void transpose_quarters(__m512i* v) {
  const __m512i a = _mm512_unpacklo_epi32(v[0], v[1]), b = _mm512_unpackhi_epi32(v[0], v[1]),
                c = _mm512_unpacklo_epi32(v[2], v[3]), d = _mm512_unpackhi_epi32(v[2], v[3]);
  v[0] = _mm512_unpacklo_epi64(a, c);
  v[1] = _mm512_unpackhi_epi64(a, c);
  v[2] = _mm512_unpacklo_epi64(b, d);
  v[3] = _mm512_unpackhi_epi64(b, d);
}

// x as products with `Long` blocks read it: 256 levels of the groups whose codes are low nibbles,
// then those of high nibbles.
void arrange_long(const int8_t* level, int64_t k, int8_t* to) {
  for (int64_t at = 0; at < k; at += 2 * kUnpacked, to += 2 * kUnpacked)
    for (int64_t high = 0; high < 2; ++high) {
      __m512i v[4];
      for (int64_t i = 0; i < 4; ++i) {
        const int64_t first = at + 128 * i + 32 * high;
        v[i] = first < k ? halves(load32(level + first), load32(level + first + 64))
                         : _mm512_setzero_si512();
      }
      transpose_quarters(v);
      for (int64_t i = 0; i < 4; ++i) _mm512_storeu_si512(to + 256 * high + 64 * i, v[i]);
    }
}

// The scales, and what is subtracted, of the blocks at a and b.
HWY_INLINE void long_scales(__m128i a, __m128i b, Groups& to) {
  const __m256i both = _mm256_inserti128_si256(_mm256_castsi128_si256(a), b, 1);
  // Bytes 4 to 7 have six bits of scales 0 to 3, bytes 8 to 11 of minima 0 to 3, and the two high
  // bits of the others; bytes 12 to 15 the low bits of the others.
  const __m256i low =
      _mm256_shuffle_epi8(both, _mm256_broadcastsi128_si256(_mm_setr_epi8(
                                    4, 5, 6, 7, 12, 13, 14, 15, 8, 9, 10, 11, 12, 13, 14, 15)));
  const __m256i top =
      _mm256_shuffle_epi8(both, _mm256_broadcastsi128_si256(_mm_setr_epi8(
                                    -1, -1, -1, -1, 4, 5, 6, 7, -1, -1, -1, -1, 8, 9, 10, 11)));
  const __m256i shifts = _mm256_setr_epi32(0, 0, 0, 4, 0, 0, 0, 4);
  const __m256i six =
      _mm256_and_si256(_mm256_srlv_epi32(low, shifts), _mm256_set1_epi64x(0x0f0f0f0f3f3f3f3f));
  const __m256i all =
      _mm256_ternarylogic_epi32(_mm256_srli_epi16(top, 2), _mm256_set1_epi8(0x30), six, 0xea);
  const __m128i of_a = _mm256_castsi256_si128(all), of_b = _mm256_extracti128_si256(all, 1);
  const __m512i scale = _mm512_cvtepu8_epi32(_mm_unpacklo_epi64(of_a, of_b));
  const __m512i less = _mm512_cvtepu8_epi32(_mm_unpackhi_epi64(of_a, of_b));
  const __m512 by = _mm512_castps128_ps512(_mm_cvtph_ps(_mm_unpacklo_epi32(a, b)));
  const __m512i first = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 2, 2, 2, 2, 2, 2);
  to.scale = _mm512_mul_ps(_mm512_cvtepi32_ps(scale), _mm512_permutexvar_ps(first, by));
  to.less = _mm512_mul_ps(_mm512_cvtepi32_ps(less),
                          _mm512_permutexvar_ps(_mm512_add_epi32(first, _mm512_set1_epi32(1)), by));
}

template <bool kFive>
struct Long {
  static constexpr int64_t kElements = 2 * kUnpacked, kBlock = kFive ? 176 : 144;
  static constexpr int64_t kBytes = 2 * kBlock;
  static constexpr bool kLess = true, kShifts = false, kFills = false;

  // left: elements to the end of the row. Behind it, where x is 0, the last block comes again.
  static HWY_INLINE Groups groups(const uint8_t* a, int64_t left, const int8_t* x) {
    const uint8_t* const b = left > kUnpacked ? a + kBlock : a;
    constexpr int64_t kCodes = kFive ? 48 : 16;
    __m512i v[4] = {load(a + kCodes), load(a + kCodes + 64), load(b + kCodes),
                    load(b + kCodes + 64)};
    transpose_quarters(v);
    __m512i low = _mm512_setzero_si512(), high = low;
    // Quarters 0 and 1 of a vector have one chunk of 32 codes, 2 and 3 the next one.
    const __m512i fifth = kFive ? halves(load32(a + 16), load32(b + 16)) : low;
    const __m512i at = _mm512_setr_epi32(0, 0, 8, 8, 4, 4, 12, 12, 0, 0, 8, 8, 4, 4, 12, 12);
    // Bit 2n of a code's chunk n goes to bit 4.
    const __m512i turn = _mm512_setr_epi32(4, 0, 4, 0, 4, 0, 4, 0, 2, -2, 2, -2, 2, -2, 2, -2);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      __m512i w_low = _mm512_and_si512(v[i], bytes(15)), w_high = high_nibbles(v[i]);
      if (kFive) {
        const __m512i bits =
            _mm512_permutexvar_epi32(_mm512_add_epi32(at, _mm512_set1_epi32(i)), fifth);
        w_low = masked_or(_mm512_rolv_epi32(bits, turn), bytes(16), w_low);
        w_high = masked_or(_mm512_rolv_epi32(bits, _mm512_sub_epi32(turn, _mm512_set1_epi32(1))),
                           bytes(16), w_high);
      }
      low = add_products(low, w_low, x + 64 * i);
      high = add_products(high, w_high, x + 256 + 64 * i);
    }
    const __m512i sums = _mm512_add_epi32(_mm512_shuffle_i32x4(low, high, 0x88),
                                          _mm512_shuffle_i32x4(low, high, 0xdd));
    Groups g;
    g.sums = _mm512_permutexvar_epi32(
        _mm512_setr_epi32(0, 8, 4, 12, 1, 9, 5, 13, 2, 10, 6, 14, 3, 11, 7, 15), sums);
    long_scales(load16(a), load16(b), g);
    return g;
  }
};

// ---- q6_k: a block has 16 groups of 16

void arrange_q6(const int8_t* level, int64_t k, int8_t* to) {
  for (int64_t at = 0; at < k; at += kUnpacked)
    for (int64_t high = 0; high < 2; ++high, to += 128) {
      const __m512i a = load(level + at + 64 * high), b = load(level + at + 128 + 64 * high);
      _mm512_storeu_si512(to, _mm512_unpacklo_epi32(a, b));
      _mm512_storeu_si512(to + 64, _mm512_unpackhi_epi32(a, b));
    }
}

struct Q6 {
  static constexpr int64_t kElements = kUnpacked, kBytes = 210;
  static constexpr bool kLess = false, kShifts = true, kFills = false;

  static HWY_INLINE Groups groups(const uint8_t* block, int64_t, const int8_t* x) {
    const __m512i a = load(block), b = load(block + 64);
    // Two bits of each 32 elements: in the halves, those of low nibbles are 0 and 2, those of high
    // nibbles 4 and 6.
    const __m512i top_a = _mm512_broadcast_i64x4(load32(block + 128)),
                  top_b = _mm512_broadcast_i64x4(load32(block + 160));
    const __m512i left = halves(_mm256_set1_epi16(4), _mm256_set1_epi16(2)),
                  right = halves(_mm256_setzero_si256(), _mm256_set1_epi16(2));
    const __m512i code[2] = {_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b)};
    const __m512i top[2] = {_mm512_unpacklo_epi32(top_a, top_b),
                            _mm512_unpackhi_epi32(top_a, top_b)};
    __m512i low = _mm512_setzero_si512(), high = low;
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      low = add_products(low,
                         masked_or(_mm512_sllv_epi16(top[i], left), bytes(0x30),
                                   _mm512_and_si512(code[i], bytes(15))),
                         x + 64 * i);
      high = add_products(
          high, masked_or(_mm512_srlv_epi16(top[i], right), bytes(0x30), high_nibbles(code[i])),
          x + 128 + 64 * i);
    }
    const __m512i sums =
        _mm512_add_epi32(_mm512_unpacklo_epi64(low, high), _mm512_unpackhi_epi64(low, high));
    Groups g;
    g.sums = _mm512_permutexvar_epi32(
        _mm512_setr_epi32(0, 4, 8, 12, 2, 6, 10, 14, 1, 5, 9, 13, 3, 7, 11, 15), sums);
    const __m128i half = _mm_cvtsi32_si128(sdk::BlockBytes{block}.u16(208));
    g.scale = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load16(block + 192))),
                            _mm512_broadcastss_ps(_mm_cvtph_ps(half)));
    g.less = _mm512_setzero_ps();
    return g;
  }
};

// ---- blocks of 32 elements: 16 have 16 groups

HWY_INLINE __m512i quarters(const uint8_t* from, int64_t apart) {
  return halves(
      _mm256_inserti128_si256(_mm256_castsi128_si256(load16(from)), load16(from + apart), 1),
      _mm256_inserti128_si256(_mm256_castsi128_si256(load16(from + 2 * apart)),
                              load16(from + 3 * apart), 1));
}

// Nibbles: 64 levels of the first halves of four blocks, then those of the second halves.
void arrange_nibbles(const int8_t* level, int64_t k, int8_t* to) {
  for (int64_t at = 0; at < arranged_depth(k); at += 128, to += 128) {
    __m512i a = _mm512_setzero_si512(), b = a;
    if (at < k) a = load(level + at), b = load(level + at + 64);
    _mm512_storeu_si512(to, _mm512_shuffle_i32x4(a, b, 0x88));
    _mm512_storeu_si512(to + 64, _mm512_shuffle_i32x4(a, b, 0xdd));
  }
}
void arrange_in_order(const int8_t* level, int64_t k, int8_t* to) {
  std::memcpy(to, level, static_cast<size_t>(k));
  std::memset(to + k, 0, static_cast<size_t>(arranged_depth(k) - k));
}

template <tenon_dtype kFormat>
struct Short {
  static constexpr int64_t kElements = 2 * kUnpacked;
  static constexpr bool kBytesEach = kFormat == TENON_DTYPE_Q8_0,
                        kFive = kFormat == TENON_DTYPE_Q5_0, kE2m1 = kFormat == TENON_DTYPE_MXFP4;
  static constexpr int64_t kBlock = kBytesEach ? 34 : kFive ? 22 : kE2m1 ? 17 : 18;
  static constexpr int64_t kBytes = 16 * kBlock;
  static constexpr bool kLess = false, kShifts = true, kFills = true;

  // The levels of half of each of four blocks from `block` on, without a sign.
  static HWY_INLINE __m512i levels(const uint8_t* block, __m512i codes, int half) {
    if (kE2m1 || kFormat == TENON_DTYPE_IQ4_NL) {
      const auto* const table = kE2m1 ? sdk::kE2m1Doubled : sdk::kIq4Levels;
      const __m512i all = _mm512_broadcast_i32x4(load16(reinterpret_cast<const uint8_t*>(table)));
      return _mm512_shuffle_epi8(_mm512_add_epi8(all, bytes(level_lift(kFormat))), codes);
    }
    if (!kFive) return codes;
    // 32 bits behind the scale of a block are the fifth bits of its codes.
    const auto word = [&](int64_t b) {
      int v;
      std::memcpy(&v, block + b * kBlock + 2, sizeof v);
      return v;
    };
    const __m512i bits = _mm512_permutexvar_epi32(
        _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3),
        _mm512_castsi128_si512(_mm_setr_epi32(word(0), word(1), word(2), word(3))));
    const __m512i mine = _mm512_shuffle_epi8(
        bits, _mm512_add_epi8(_mm512_broadcast_i32x4(_mm_setr_epi32(0, 0, 0x01010101, 0x01010101)),
                              bytes(2 * half)));
    const __mmask64 set =
        _mm512_test_epi8_mask(mine, _mm512_set1_epi64(static_cast<int64_t>(0x8040201008040201)));
    return _mm512_mask_add_epi8(codes, set, codes, bytes(16));
  }
  // Lane 4b + i has a part of the sum of block b of four.
  static HWY_INLINE __m512i products(const uint8_t* block, const int8_t* x) {
    __m512i zero = _mm512_setzero_si512();
    if (kBytesEach) {
      __m512i sum[2];
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i) {
        const uint8_t* const from = block + 2 * i * kBlock + 2;
        const __m512i w = halves(load32(from), load32(from + kBlock));
        sum[i] = add_products(zero, _mm512_xor_si512(w, bytes(128)), x + 64 * i);
      }
      return _mm512_add_epi32(_mm512_shuffle_i32x4(sum[0], sum[1], 0x88),
                              _mm512_shuffle_i32x4(sum[0], sum[1], 0xdd));
    }
    const __m512i codes = quarters(block + kBlock - 16, kBlock);
    const __m512i low = levels(block, _mm512_and_si512(codes, bytes(15)), 0),
                  high = levels(block, high_nibbles(codes), 1);
    return add_products(add_products(zero, low, x), high, x + 64);
  }
  // The scales of four blocks, as halves.
  static HWY_INLINE __m128i four_scales(const uint8_t* block) {
    // Words of the first 64 bytes, or of 64 bytes further behind: none beyond the blocks is read.
    constexpr int kBehind = std::min<int>(32, 2 * kBlock - 32);
    const auto word = [](int b) constexpr {
      const int at = b * static_cast<int>(kBlock) / 2;
      return static_cast<short>(at < 32 ? at : at - kBehind + 32);
    };
    const __m512i at =
        _mm512_castsi128_si512(_mm_setr_epi16(word(0), word(1), word(2), word(3), 0, 0, 0, 0));
    return _mm512_castsi512_si128(
        _mm512_permutex2var_epi16(load(block), at, load(block + 2 * kBehind)));
  }

  static HWY_INLINE __m512 scales(const uint8_t* w) {
    if (kE2m1) {
      alignas(16) uint8_t code[16];
#pragma GCC unroll 16
      for (int b = 0; b < 16; ++b) code[b] = w[b * kBlock];
      // As sdk::mxfp4_half_scale().
      const __m512i e = _mm512_cvtepu8_epi32(load16(code));
      return _mm512_castsi512_ps(_mm512_mask_sllv_epi32(
          _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23),
          _mm512_cmplt_epi32_mask(e, _mm512_set1_epi32(2)), _mm512_set1_epi32(0x200000), e));
    }
    __m128i half[4];
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) half[v] = four_scales(w + 4 * v * kBlock);
    return _mm512_cvtph_ps(
        _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_unpacklo_epi64(half[0], half[1])),
                                _mm_unpacklo_epi64(half[2], half[3]), 1));
  }

  static HWY_INLINE Groups groups(const uint8_t* w, int64_t, const int8_t* x) {
    __m512i s[4];
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) s[v] = products(w + 4 * v * kBlock, x + 128 * v);
    transpose_quarters(s);
    const __m512i sums =
        _mm512_add_epi32(_mm512_add_epi32(s[0], s[1]), _mm512_add_epi32(s[2], s[3]));
    Groups g;
    g.sums = _mm512_permutexvar_epi32(
        _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), sums);
    g.scale = scales(w);
    g.less = _mm512_setzero_ps();
    return g;
  }
};

// ---- rows

template <class Blocks>
void row(const ByteRow& r) {
  alignas(64) uint8_t last[Blocks::kBytes];
  for (int64_t n = 0; n < r.rows; ++n) {
    const uint8_t* w = r.w + n * r.step;
    const int8_t* x = r.x.level;
    float* const to = r.to + n * kDotPitch;
    for (int64_t k = 0, g = 0; k < r.k; k += Blocks::kElements, g += 16) {
#pragma GCC unroll 9
      for (int64_t at = 0; at < Blocks::kBytes; at += 64)
        _mm_prefetch(w + kRowAhead + at, _MM_HINT_T0);
      const uint8_t* from = w;
      if (r.k - k < Blocks::kElements && Blocks::kFills) {
        const auto bytes = static_cast<size_t>((r.k - k) / 32 * (Blocks::kBytes / 16));
        std::memcpy(last, w, bytes);
        std::memset(last + bytes, 0, sizeof last - bytes);
        from = last;
      }
      const Groups v = Blocks::groups(from, r.k - k, x);
      __m512i sums = v.sums;
      if (Blocks::kShifts) sums = _mm512_add_epi32(sums, load(r.x.shift + g));
      __m512 term = _mm512_mul_ps(_mm512_cvtepi32_ps(sums),
                                  _mm512_mul_ps(v.scale, _mm512_loadu_ps(r.x.scale + g)));
      if (Blocks::kLess) term = _mm512_fnmadd_ps(v.less, _mm512_loadu_ps(r.x.sum + g), term);
      _mm512_storeu_ps(to + g, term);
      w += Blocks::kBytes;
      x += Blocks::kElements;
    }
  }
}

}  // namespace
HWY_POP_ATTRIBUTES

RowKernels row_kernels_vnni(tenon_dtype format) {
  if (q_unit() != QUnit::vnni512) return {};
  switch (format) {
    case TENON_DTYPE_Q4_K:
      return {arrange_long, row<Long<false>>};
    case TENON_DTYPE_Q5_K:
      return {arrange_long, row<Long<true>>};
    case TENON_DTYPE_Q4_0:
      return {arrange_nibbles, row<Short<TENON_DTYPE_Q4_0>>};
    case TENON_DTYPE_Q5_0:
      return {arrange_nibbles, row<Short<TENON_DTYPE_Q5_0>>};
    case TENON_DTYPE_IQ4_NL:
      return {arrange_nibbles, row<Short<TENON_DTYPE_IQ4_NL>>};
    case TENON_DTYPE_MXFP4:
      return {arrange_nibbles, row<Short<TENON_DTYPE_MXFP4>>};
    case TENON_DTYPE_Q8_0:
      return {arrange_in_order, row<Short<TENON_DTYPE_Q8_0>>};
    case TENON_DTYPE_Q6_K:
      return {arrange_q6, row<Q6>};
    default:
      return {};
  }
}

}  // namespace tenon::cpu

#else

namespace tenon::cpu {
RowKernels row_kernels_vnni(tenon_dtype) { return {}; }
}  // namespace tenon::cpu

#endif
