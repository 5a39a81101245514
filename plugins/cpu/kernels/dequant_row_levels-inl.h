// SPDX-License-Identifier: Apache-2.0
// What dequant_row-inl.h computes with, and the formats whose levels are unpacked in order.

HWY_INLINE __m256i load(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}
HWY_INLINE __m128i load16(const void* from) {
  return _mm_loadu_si128(static_cast<const __m128i*>(from));
}
HWY_INLINE __m128i load8(const void* from) {
  return _mm_loadl_epi64(static_cast<const __m128i*>(from));
}
HWY_INLINE __m256i halves(__m128i low, __m128i high) {
  return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
}
HWY_INLINE __m256i bytes(int v) { return _mm256_set1_epi8(static_cast<char>(v)); }
HWY_INLINE int word(const uint8_t* from) {
  int v;
  std::memcpy(&v, from, sizeof v);
  return v;
}
HWY_INLINE short half_word(const uint8_t* from) {
  short v;
  std::memcpy(&v, from, sizeof v);
  return v;
}
// A number of f16, in all lanes.
HWY_INLINE __m256 half_at(const uint8_t* from) {
  return _mm256_broadcastss_ps(_mm_cvtph_ps(_mm_cvtsi32_si128(half_word(from))));
}
// The numbers of f16 at the start of eight blocks.
template <int kBytes>
HWY_INLINE __m256 scales_of_eight(const uint8_t* w) {
  const auto two = [&](int b) {
    return _mm_unpacklo_epi16(load16(w + b * kBytes), load16(w + (b + 1) * kBytes));
  };
  return _mm256_cvtph_ps(
      _mm_unpacklo_epi64(_mm_unpacklo_epi32(two(0), two(2)), _mm_unpacklo_epi32(two(4), two(6))));
}
// Vectors of whole numbers, times a number.
HWY_INLINE __m256 scaled(__m256i v, __m256 by) { return _mm256_mul_ps(_mm256_cvtepi32_ps(v), by); }

HWY_INLINE __m256i low_nibbles(__m256i v) { return _mm256_and_si256(v, bytes(15)); }
HWY_INLINE __m256i high_nibbles(__m256i v) { return low_nibbles(_mm256_srli_epi16(v, 4)); }
// Bit kFrom of each byte moves to bit kTo, and the others with it; those of `mask` stay.
template <int kFrom, int kTo>
HWY_INLINE __m256i moved(__m256i v, int mask) {
  if constexpr (kFrom < kTo) v = _mm256_slli_epi16(v, kTo - kFrom);
  if constexpr (kFrom > kTo) v = _mm256_srli_epi16(v, kFrom - kTo);
  return _mm256_and_si256(v, bytes(mask));
}
// Calls f with constants from 0 on.
template <int kCount, class F>
HWY_INLINE void each(const F& f) {
  [&]<int... i>(std::integer_sequence<int, i...>) { (f(std::integral_constant<int, i>()), ...); }
  (std::make_integer_sequence<int, kCount>());
}
HWY_INLINE __m256i looked_up(const signed char* table, int lift, __m256i codes) {
  const __m256i all = _mm256_broadcastsi128_si256(load16(table));
  return _mm256_shuffle_epi8(_mm256_add_epi8(all, bytes(lift)), codes);
}

// Do two runs of kCount vectors fit one?
template <tenon_dtype kFormat, int kCount>
constexpr bool kTwoRuns = pairs_in_16_bits(kFormat) >= 2 * kCount;

// The products of vectors of levels, four in each lane: as a run, or its sums.
template <tenon_dtype kFormat, int kCount, bool kRun = false>
HWY_INLINE __m256i products(const __m256i* w, const int8_t* x) {
  constexpr int kPairs = pairs_in_16_bits(kFormat), kMost = run_of(kPairs);
  constexpr bool kLifts = level_lift(kFormat) == 128 && !kSigned;
  static_assert(!kRun || kCount <= kMost);
  __m256i sum = _mm256_setzero_si256(), run = sum;
#pragma GCC unroll 4
  for (int i = 0; i < kCount; ++i) {
    const __m256i levels = kLifts ? _mm256_xor_si256(w[i], bytes(128)) : w[i];
    run = run_with<kPairs>(run, i % kMost == 0, levels, load(x + 32 * i));
    if (!kRun && (i % kMost == kMost - 1 || i == kCount - 1))
      sum = i < kMost ? sum_of_run(run) : _mm256_add_epi32(sum, sum_of_run(run));
  }
  return kRun ? run : sum;
}

// Does the format subtract what it adds?
constexpr bool subtracts(tenon_dtype t) {
  return t == TENON_DTYPE_Q2_K || t == TENON_DTYPE_Q4_K || t == TENON_DTYPE_Q5_K;
}
// Eight groups: the sums of their products, and the scales and adds of w. add: what a format that
// subtracts() takes off.
struct Groups {
  __m256i sums;
  __m256 scale, add;
};

// Lane i of each half: the sum of this half of v[i], which are runs or sums.
template <bool kRuns>
HWY_INLINE __m256i sums_of_halves(const __m256i* v) {
  const auto two = [&](int i) {
    const __m256i a = _mm256_unpacklo_epi32(v[i], v[i + 1]),
                  b = _mm256_unpackhi_epi32(v[i], v[i + 1]);
    return kRuns ? sum_of_run(add_runs(a, b)) : _mm256_add_epi32(a, b);
  };
  const __m256i ab = two(0), cd = two(2);
  return _mm256_add_epi32(_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd));
}
// The halves of a, added up, then those of b.
HWY_INLINE __m256i add_halves(__m256i a, __m256i b) {
  return _mm256_add_epi32(_mm256_permute2x128_si256(a, b, 0x20),
                          _mm256_permute2x128_si256(a, b, 0x31));
}
// The low half has lanes 0, 2, 4 and 6, the high half the others.
HWY_INLINE __m256i interleaved(__m256i v) {
  return _mm256_permutevar8x32_epi32(v, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

// ---- blocks of 256 elements, and of 8 bits: vectors of 32 levels, in order

template <tenon_dtype kFormat>
struct InOrder {
  static constexpr int64_t kPiece = kUnpacked;
  static constexpr int64_t source(int64_t) { return 0; }

  static HWY_INLINE void levels(const uint8_t* w, __m256i* to) {
    if constexpr (kFormat == TENON_DTYPE_Q8_0) {
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) to[i] = load(w + 34 * i + 2);
    } else if constexpr (kFormat == TENON_DTYPE_Q6_K) {
      each<2>([&](auto n) {
        const __m256i a = load(w + 64 * n), b = load(w + 64 * n + 32), top = load(w + 128 + 32 * n);
        to[4 * n] = _mm256_or_si256(low_nibbles(a), moved<0, 4>(top, 0x30));
        to[4 * n + 1] = _mm256_or_si256(low_nibbles(b), moved<2, 4>(top, 0x30));
        to[4 * n + 2] = _mm256_or_si256(high_nibbles(a), moved<4, 4>(top, 0x30));
        to[4 * n + 3] = _mm256_or_si256(high_nibbles(b), moved<6, 4>(top, 0x30));
      });
    } else if constexpr (kFormat == TENON_DTYPE_TQ1_0) {
      ternary(w, to);
    } else if constexpr (kFormat == TENON_DTYPE_NVFP4) {
#pragma GCC unroll 4
      for (int b = 0; b < 4; ++b) {
        // The four groups of a block have eight bytes each, and their low nibbles come first.
        const __m256i codes = _mm256_permute4x64_epi64(load(w + 36 * b + 4), 0xd8);
        const __m256i low = looked_up(sdk::kE2m1Doubled, 16, low_nibbles(codes)),
                      high = looked_up(sdk::kE2m1Doubled, 16, high_nibbles(codes));
        to[2 * b] = _mm256_unpacklo_epi64(low, high);
        to[2 * b + 1] = _mm256_unpackhi_epi64(low, high);
      }
    } else {
      constexpr bool kThree = kFormat == TENON_DTYPE_Q3_K;
      constexpr int kCodes = kThree ? 32 : kFormat == TENON_DTYPE_Q2_K ? 16 : 0;
      const __m256i top = kThree ? load(w) : _mm256_setzero_si256();
      each<8>([&](auto i) {
        to[i] = moved<i % 4 * 2, 0>(load(w + kCodes + i / 4 * 32), 3);
        if (kThree) to[i] = _mm256_or_si256(to[i], moved<i, 2>(top, 4));
      });
    }
  }
  // tq1_0: the top digit of base 3, times 256: from 86 on it is 1, from 171 on 2. Bytes are less
  // 128, so that they compare with a sign; the next digit's are three times those, less 128 too.
  static HWY_INLINE __m256i digit(__m256i v) {
    return _mm256_abs_epi8(_mm256_add_epi8(_mm256_cmpgt_epi8(v, bytes(85 - 128)),
                                           _mm256_cmpgt_epi8(v, bytes(170 - 128))));
  }
  static HWY_INLINE __m256i next(__m256i v) { return _mm256_add_epi8(_mm256_add_epi8(v, v), v); }
  static HWY_INLINE void ternary(const uint8_t* w, __m256i* to) {
    __m256i v = _mm256_xor_si256(load(w), bytes(128));
#pragma GCC unroll 5
    for (int t = 0; t < 5; ++t, v = next(v)) to[t] = digit(v);
    // Then 16 bytes with five digits each, then four with four.
    const __m128i some = _mm_xor_si128(load16(w + 32), _mm_set1_epi8(-128));
    v = halves(some, _mm256_castsi256_si128(next(_mm256_castsi128_si256(some))));
#pragma GCC unroll 2
    for (int t = 5; t < 7; ++t, v = next(next(v))) to[t] = digit(v);
    const __m256i last = _mm256_xor_si256(_mm256_set1_epi32(word(w + 48)), bytes(128)),
                  once = next(last), twice = next(once);
    const __m256i four = _mm256_blend_epi32(_mm256_blend_epi32(last, once, 0x22),
                                            _mm256_blend_epi32(twice, next(twice), 0x88), 0xcc);
    to[7] = digit(_mm256_blend_epi32(v, four, 0xf0));
  }

  static HWY_INLINE void scales(const uint8_t* w, Groups* to) {
    if constexpr (kFormat == TENON_DTYPE_Q8_0) {
      to->scale = scales_of_eight<34>(w);
    } else if constexpr (kFormat == TENON_DTYPE_TQ1_0 || kFormat == TENON_DTYPE_TQ2_0) {
      to->scale = half_at(w + (kFormat == TENON_DTYPE_TQ1_0 ? 52 : 64));
    } else if constexpr (kFormat == TENON_DTYPE_Q6_K) {
      const __m256 by = half_at(w + 208);
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i)
        to[i].scale = scaled(_mm256_cvtepi8_epi32(load8(w + 192 + 8 * i)), by);
    } else if constexpr (kFormat == TENON_DTYPE_NVFP4) {
      // As sdk::ue4m3_value(): exponent and mantissa are those of a half that is 2^8 smaller, and
      // levels are doubled.
      const __m128i codes = _mm_setr_epi32(word(w), word(w + 36), word(w + 72), word(w + 108));
      const __m128i none = _mm_cmpeq_epi8(codes, _mm_set1_epi8(0x7f));
      const __m256i half = _mm256_slli_epi16(
          _mm256_cvtepu8_epi16(_mm_andnot_si128(none, _mm_and_si128(codes, _mm_set1_epi8(0x7f)))),
          7);
      const __m256 by = _mm256_set1_ps(0x1p7f);
      to[0].scale = _mm256_mul_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(half)), by);
      to[1].scale = _mm256_mul_ps(_mm256_cvtph_ps(_mm256_extracti128_si256(half, 1)), by);
    } else if constexpr (kFormat == TENON_DTYPE_Q2_K) {
      const __m256 by = half_at(w + 80), less = half_at(w + 82);
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i) {
        const __m256i both = _mm256_cvtepu8_epi32(load8(w + 8 * i));
        to[i].scale = scaled(_mm256_and_si256(both, _mm256_set1_epi32(15)), by);
        to[i].add = scaled(_mm256_srli_epi32(both, 4), less);
      }
    } else {
      static_assert(kFormat == TENON_DTYPE_Q3_K);
      // Eight bytes have the low nibbles of groups 0 to 7, and of 8 to 15; four bytes have two bits
      // of groups g, g + 4, g + 8 and g + 12.
      const __m128i low = load8(w + 96);
      const __m128i nibbles =
          _mm_and_si128(_mm_unpacklo_epi64(low, _mm_srli_epi16(low, 4)), _mm_set1_epi8(15));
      const __m128i two = _mm_slli_epi16(
          _mm_and_si128(_mm_srlv_epi32(_mm_set1_epi32(word(w + 104)), _mm_setr_epi32(0, 2, 4, 6)),
                        _mm_set1_epi8(3)),
          4);
      const __m128i six = _mm_sub_epi8(_mm_or_si128(nibbles, two), _mm_set1_epi8(32));
      const __m256 by = half_at(w + 108);
      to[0].scale = scaled(_mm256_cvtepi8_epi32(six), by);
      to[1].scale = scaled(_mm256_cvtepi8_epi32(_mm_unpackhi_epi64(six, six)), by);
    }
  }

  static HWY_INLINE void groups(const uint8_t* w, const int8_t* x, Groups* to) {
    constexpr bool kRuns = kTwoRuns<kFormat, 1>;
    __m256i v[8];
    levels(w, v);
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) v[i] = products<kFormat, 1, kRuns>(v + i, x + 32 * i);
    const __m256i a = sums_of_halves<kRuns>(v), b = sums_of_halves<kRuns>(v + 4);
    if (scale_group(kFormat) == 16) {
      to[0].sums = interleaved(a);
      to[1].sums = interleaved(b);
    } else {
      to[0].sums = add_halves(a, b);
    }
    scales(w, to);
  }
};
