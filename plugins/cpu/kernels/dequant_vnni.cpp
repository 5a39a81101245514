// SPDX-License-Identifier: Apache-2.0
// Sums of 16 products of bytes by AVX512-VNNI. Written with intrinsics: Highway has one target for
// AVX-512 with VNNI and other extensions together.
#include "dequant.hpp"
#include "intrinsics.hpp"
#include "qgemm.hpp"

#if TENON_CPU_X86

namespace tenon::cpu {

bool has_byte_dots() { return q_unit() == QUnit::vnni512; }

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512vl,avx512vnni")

void byte_tile_vnni(const ByteTile& t) {
  __m512i x[4];
#pragma GCC unroll 4
  for (int v = 0; v < 4; ++v) x[v] = _mm512_loadu_si512(t.x + 64 * v);
  const __m512i shift = _mm512_loadu_si512(t.x_shift);
  const __m512 x_scale = _mm512_loadu_ps(t.x_scale), x_sum = _mm512_loadu_ps(t.x_sum);
  // Lane 4a + b of the sums below is group 4b + a.
  const __m512i in_order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const Unpacked* w = t.w;
  float* lanes = t.lanes;
  for (int64_t r = 0; r < t.rows; ++r, w += t.w_step, lanes += t.lane_step) {
    __m512i s[4];
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v)
      s[v] =
          _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_load_si512(w->level + 64 * v), x[v]);
    const __m512i ab =
        _mm512_add_epi32(_mm512_unpacklo_epi32(s[0], s[1]), _mm512_unpackhi_epi32(s[0], s[1]));
    const __m512i cd =
        _mm512_add_epi32(_mm512_unpacklo_epi32(s[2], s[3]), _mm512_unpackhi_epi32(s[2], s[3]));
    const __m512i all =
        _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
    const __m512i sums = _mm512_sub_epi32(_mm512_permutexvar_epi32(in_order, all), shift);
    const __m512 scale = _mm512_mul_ps(_mm512_load_ps(w->scale), x_scale);
    __m512 sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums), scale, _mm512_loadu_ps(lanes));
    if (t.adds) sum = _mm512_fmadd_ps(_mm512_load_ps(w->add), x_sum, sum);
    _mm512_storeu_ps(lanes, sum);
  }
}
HWY_POP_ATTRIBUTES

}  // namespace tenon::cpu

#else

namespace tenon::cpu {
bool has_byte_dots() { return false; }
void byte_tile_vnni(const ByteTile&) { HWY_ABORT("byte_tile_vnni: this processor has no dots"); }
}  // namespace tenon::cpu

#endif
