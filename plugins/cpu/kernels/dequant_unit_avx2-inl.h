// SPDX-License-Identifier: Apache-2.0
// Products of bytes by AVX2, in vectors of 256 bits. It multiplies bytes without a sign by bytes with
// one, and adds pairs in 16 bits: levels below 64 fit. Other levels have a sign, and give it to x.
//
// A run adds up products of levels w and bytes x, four in each lane, in at most run_of(pairs)
// additions; pairs: pairs_in_16_bits() of the format.

constexpr bool kSigned = true;  // the levels that a lift of 128 would leave without a sign
constexpr int run_of(int pairs) { return pairs == 0 ? 1 : pairs; }

template <int kPairs>
HWY_INLINE __m256i run_with(__m256i run, bool first, __m256i w, __m256i x) {
  const __m256i pairs = kPairs == 0
                            ? _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w))
                            : _mm256_maddubs_epi16(w, x);
  return first ? pairs : _mm256_add_epi16(run, pairs);
}
HWY_INLINE __m256i sum_of_run(__m256i run) { return _mm256_madd_epi16(run, _mm256_set1_epi16(1)); }
// Two runs that fit one together.
HWY_INLINE __m256i add_runs(__m256i a, __m256i b) { return _mm256_add_epi16(a, b); }
