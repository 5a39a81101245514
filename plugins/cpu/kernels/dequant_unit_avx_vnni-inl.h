// SPDX-License-Identifier: Apache-2.0
// Products of bytes by AVX-VNNI, for processors without AVX-512: VNNI has an encoding of its own there.

HWY_INLINE __m256i dpbusd(__m256i sum, __m256i w, __m256i x) {
  return _mm256_dpbusd_avx_epi32(sum, w, x);
}
#include "dequant_unit_vnni-inl.h"
