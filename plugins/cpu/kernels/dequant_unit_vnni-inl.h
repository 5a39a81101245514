// SPDX-License-Identifier: Apache-2.0
// Products of bytes by VNNI, as dequant_unit_avx2-inl.h has them, with the instruction that the
// namespace calls dpbusd(). It adds up in 32 bits.

constexpr bool kSigned = false;
constexpr int run_of(int) { return 8; }  // quads of a group

template <int>
HWY_INLINE __m256i run_with(__m256i run, bool first, __m256i w, __m256i x) {
  return dpbusd(first ? _mm256_setzero_si256() : run, w, x);
}
HWY_INLINE __m256i sum_of_run(__m256i run) { return run; }
HWY_INLINE __m256i add_runs(__m256i a, __m256i b) { return _mm256_add_epi32(a, b); }
