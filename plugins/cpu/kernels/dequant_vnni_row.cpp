// SPDX-License-Identifier: Apache-2.0
// One row of bytes with rows of blocks, by AVX512-VNNI. Decoding reads each weight once, so this
// must not be slower than memory: levels go from the blocks to the products in registers. Where 16
// groups are added up at once, elements of a group meet in one lane: those of w change places before
// codes become levels, so half of the vectors do; those of x do so once for all rows of w.
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
  static constexpr int64_t kElements = 2 * kUnpacked, kBytes = kFive ? 176 : 144;
  static constexpr bool kLess = true, kShifts = false;

  // b: the second block; a again at the end of a row, where x is 0.
  static HWY_INLINE Groups groups(const uint8_t* a, const uint8_t* b, const int8_t* x) {
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
  static constexpr bool kLess = false, kShifts = true;

  static HWY_INLINE Groups groups(const uint8_t* block, const uint8_t*, const int8_t* x) {
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

// ---- rows

// Rows of w follow each other, so memory can be asked for what is needed so many bytes later: far
// enough for its latency, near enough for the first-level cache. Beyond w, this has no effect.
constexpr int64_t kAhead = 12 << 10;

template <class Blocks>
void row(const ByteRow& r) {
  constexpr int64_t kBlocks = Blocks::kElements / kUnpacked;
  const int64_t blocks = r.k / kUnpacked;
  for (int64_t n = 0; n < r.rows; ++n) {
    const uint8_t* w = r.w + n * r.step;
    const int8_t* x = r.x.level;
    float* const to = r.to + n * kDotPitch;
    for (int64_t b = 0, g = 0; b < blocks; b += kBlocks, g += 16) {
#pragma GCC unroll 5
      for (int64_t at = 0; at < kBlocks * Blocks::kBytes; at += 64)
        _mm_prefetch(w + kAhead + at, _MM_HINT_T0);
      const Groups v = Blocks::groups(w, b + 1 < blocks ? w + Blocks::kBytes : w, x);
      __m512i sums = v.sums;
      if (Blocks::kShifts) sums = _mm512_add_epi32(sums, load(r.x.shift + g));
      __m512 term = _mm512_mul_ps(_mm512_cvtepi32_ps(sums),
                                  _mm512_mul_ps(v.scale, _mm512_loadu_ps(r.x.scale + g)));
      if (Blocks::kLess) term = _mm512_fnmadd_ps(v.less, _mm512_loadu_ps(r.x.sum + g), term);
      _mm512_storeu_ps(to + g, term);
      w += kBlocks * Blocks::kBytes;
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
