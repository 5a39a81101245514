// SPDX-License-Identifier: Apache-2.0
// Products of bytes for dequant_row-inl.h, with the instruction that the namespace calls dpbusd().

constexpr bool kSigned = false;

template <tenon_dtype kFormat, int kCount>
HWY_INLINE __m256i quads(const __m256i* w, const int8_t* x) {
  const __m256i flip = _mm256_set1_epi8(static_cast<char>(128));
  __m256i sum = _mm256_setzero_si256();
#pragma GCC unroll 4
  for (int i = 0; i < kCount; ++i)
    sum = dpbusd(sum, level_lift(kFormat) == 128 ? _mm256_xor_si256(w[i], flip) : w[i],
                 _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + 32 * i)));
  return sum;
}
