// SPDX-License-Identifier: Apache-2.0
// Formats whose codes have four bits, or a fifth elsewhere. To unpack them in order would take as
// many instructions again, so levels of x change places instead: once for all rows of w.

// ---- 16 bytes for each 32 elements: low nibbles are the first 16

template <tenon_dtype kFormat>
struct Nibbles {
  static constexpr bool kLong = kFormat == TENON_DTYPE_IQ4_XS, kE2m1 = kFormat == TENON_DTYPE_MXFP4,
                        kIq4 = kLong || kFormat == TENON_DTYPE_IQ4_NL,
                        kFive = kFormat == TENON_DTYPE_Q5_0 || kFormat == TENON_DTYPE_Q5_1;
  // Bytes in front of the codes, and between those of two groups.
  static constexpr int kCodes = kLong   ? 8
                                : kE2m1 ? 1
                                        : 2 + (has_adds(kFormat) ? 2 : 0) + (kFive ? 4 : 0);
  static constexpr int kBlock = kLong ? 16 : kCodes + 16;

  // A vector has 16 levels of group i and 16 of group i + 4, so that sums_of_halves() are in order.
  static constexpr int64_t kPiece = 16;
  static constexpr int64_t source(int64_t piece) {
    const int64_t vector = piece / 2, group = vector / 2 + piece % 2 * 4;
    return 2 * group + vector % 2;
  }

  // Bits 16·half to 16·half + 15 of words of both groups, as 16.
  static HWY_INLINE __m256i fifth(__m256i words, int half) {
    const __m256i at =
        _mm256_setr_epi32(0, 0, 0x01010101, 0x01010101, 0, 0, 0x01010101, 0x01010101);
    const __m256i bit = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201));
    const __m256i mine = _mm256_shuffle_epi8(words, _mm256_add_epi8(at, bytes(2 * half)));
    return _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(mine, bit), bit), bytes(16));
  }

  static HWY_INLINE void scales(const uint8_t* w, Groups& to) {
    if constexpr (kLong) {
      // Four bits of each scale in a nibble, two in a field of 16 bits.
      const __m256i group = _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14);
      const __m256i low =
          _mm256_srlv_epi32(_mm256_set1_epi32(word(w + 4)), _mm256_add_epi32(group, group));
      const __m256i high = _mm256_srlv_epi32(_mm256_set1_epi32(half_word(w + 2)), group);
      const __m256i six =
          _mm256_or_si256(_mm256_and_si256(low, _mm256_set1_epi32(15)),
                          _mm256_slli_epi32(_mm256_and_si256(high, _mm256_set1_epi32(3)), 4));
      to.scale = scaled(_mm256_sub_epi32(six, _mm256_set1_epi32(32)), half_at(w));
    } else if constexpr (kE2m1) {
      // As sdk::mxfp4_half_scale().
      const auto at = [&](int b) { return static_cast<int>(w[b * kBlock]); };
      const __m256i e = _mm256_setr_epi32(at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7)),
                    one = _mm256_set1_epi32(1);
      to.scale = _mm256_castsi256_ps(_mm256_blendv_epi8(
          _mm256_sllv_epi32(_mm256_set1_epi32(0x200000), e),
          _mm256_slli_epi32(_mm256_sub_epi32(e, one), 23), _mm256_cmpgt_epi32(e, one)));
    } else {
      to.scale = scales_of_eight<kBlock>(w);
      if (has_adds(kFormat)) to.add = scales_of_eight<kBlock>(w + 2);
    }
  }

  static HWY_INLINE void groups(const uint8_t* w, const int8_t* x, Groups* to) {
    constexpr bool kRuns = kTwoRuns<kFormat, 2>;
    __m256i sums[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const uint8_t *const a = w + i * kBlock, *const b = a + 4 * kBlock;
      const __m256i codes = halves(load16(a + kCodes), load16(b + kCodes));
      __m256i v[2] = {low_nibbles(codes), high_nibbles(codes)};
      if (kFive) {
        const __m256i words =
            halves(_mm_set1_epi32(word(a + kCodes - 4)), _mm_set1_epi32(word(b + kCodes - 4)));
#pragma GCC unroll 2
        for (int h = 0; h < 2; ++h) v[h] = _mm256_or_si256(v[h], fifth(words, h));
      }
      if (kE2m1 || kIq4)
#pragma GCC unroll 2
        for (int h = 0; h < 2; ++h)
          v[h] = kIq4 ? looked_up(sdk::kIq4Levels, 0, v[h])
                      : looked_up(sdk::kE2m1Doubled, level_lift(kFormat), v[h]);
      sums[i] = products<kFormat, 2, kRuns>(v, x + 64 * i);
    }
    to->sums = sums_of_halves<kRuns>(sums);
    scales(w, *to);
  }
};

// ---- q4_k and q5_k: low and high nibbles of 32 bytes are two groups of 32 elements

template <tenon_dtype kFormat>
struct Long {
  static constexpr bool kFive = kFormat == TENON_DTYPE_Q5_K;

  // Codes are transposed in words of four bytes, so that those of a group meet in a lane: vector i
  // of four has word i of a half of each 32 bytes, and the other half's.
  static constexpr int64_t kPiece = 4;
  static constexpr int64_t source(int64_t piece) {
    const int64_t high = piece / 32, i = piece / 8 % 4, half = piece / 4 % 2, chunk = piece % 4;
    return 8 * (2 * chunk + high) + 4 * half + i;
  }
  static HWY_INLINE void transpose(__m256i* v) {
    const __m256i a = _mm256_unpacklo_epi32(v[0], v[1]), b = _mm256_unpackhi_epi32(v[0], v[1]),
                  c = _mm256_unpacklo_epi32(v[2], v[3]), d = _mm256_unpackhi_epi32(v[2], v[3]);
    v[0] = _mm256_unpacklo_epi64(a, c);
    v[1] = _mm256_unpackhi_epi64(a, c);
    v[2] = _mm256_unpacklo_epi64(b, d);
    v[3] = _mm256_unpackhi_epi64(b, d);
  }

  // Bytes 4 to 7 have six bits of scales 0 to 3, bytes 8 to 11 of minima 0 to 3, and the two high
  // bits of the others; bytes 12 to 15 the low bits of the others. Numbers of 32 bits leave the
  // units of vectors to the products.
  static HWY_INLINE __m256i six_bits(uint32_t first, uint32_t low) {
    const uint32_t second = (low & 0x0f0f0f0f) | (first >> 2 & 0x30303030);
    const uint64_t all = (first & 0x3f3f3f3f) | static_cast<uint64_t>(second) << 32;
    return _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<int64_t>(all)));
  }
  static HWY_INLINE void scales(const uint8_t* w, Groups& to) {
    const auto low = static_cast<uint32_t>(word(w + 12));
    const __m128 by = _mm_cvtph_ps(load16(w));
    to.scale = scaled(six_bits(static_cast<uint32_t>(word(w + 4)), low), _mm256_broadcastss_ps(by));
    to.add = scaled(six_bits(static_cast<uint32_t>(word(w + 8)), low >> 4),
                    _mm256_broadcastss_ps(_mm_movehdup_ps(by)));
  }

  static HWY_INLINE void groups(const uint8_t* w, const int8_t* x, Groups* to) {
    __m256i v[4], low[4], high[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) v[i] = load(w + (kFive ? 48 : 16) + 32 * i);
    transpose(v);
    const __m256i fifth = kFive ? load(w + 16) : v[0];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      low[i] = low_nibbles(v[i]);
      high[i] = high_nibbles(v[i]);
      if (kFive) {
        // Bits 2c and 2c + 1 are those of chunk c.
        const __m256i bits = _mm256_srlv_epi32(
            _mm256_shuffle_epi8(fifth, _mm256_set1_epi32(0x03020100 + 0x04040404 * i)),
            _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6));
        low[i] = _mm256_or_si256(low[i], moved<0, 4>(bits, 16));
        high[i] = _mm256_or_si256(high[i], moved<1, 4>(bits, 16));
      }
    }
    to->sums =
        interleaved(add_halves(products<kFormat, 4>(low, x), products<kFormat, 4>(high, x + 128)));
    scales(w, *to);
  }
};
