// SPDX-License-Identifier: Apache-2.0
// Lookups: with AVX512-VBMI the table is in four registers. Written with intrinsics: the targets of
// Highway that this plugin compiles have no such instruction.
#include "byte_table.hpp"

#include "intrinsics.hpp"
#include "isa.hpp"

namespace tenon::cpu {
namespace {

void look_up_one_by_one(const ByteTable& table, const uint8_t* x, uint8_t* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = table[x[i]];
}

}  // namespace

#if TENON_CPU_X86

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512vl,avx512vbmi")
namespace {

void look_up_vbmi(const ByteTable& table, const uint8_t* x, uint8_t* y, int64_t n) {
  const uint8_t* const t = table.data();
  const __m512i a = _mm512_loadu_si512(t), b = _mm512_loadu_si512(t + 64),
                c = _mm512_loadu_si512(t + 128), d = _mm512_loadu_si512(t + 192);
  const auto found = [&](__m512i at) {
    return _mm512_mask_blend_epi8(_mm512_movepi8_mask(at), _mm512_permutex2var_epi8(a, at, b),
                                  _mm512_permutex2var_epi8(c, at, d));
  };
  int64_t i = 0;
  for (; i + 64 <= n; i += 64) _mm512_storeu_si512(y + i, found(_mm512_loadu_si512(x + i)));
  if (i == n) return;
  const __mmask64 rest = ~uint64_t{0} >> (64 - (n - i));
  _mm512_mask_storeu_epi8(y + i, rest, found(_mm512_maskz_loadu_epi8(rest, x + i)));
}

}  // namespace
HWY_POP_ATTRIBUTES

namespace {

// Highway has checked that the system saves the registers.
bool has_vbmi() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return isa_cap() >= Isa::avx512 && (hwy::SupportedTargets() & HWY_AVX3) != 0 &&
         __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (c >> 1 & 1) != 0;
}

}  // namespace

void look_up(const ByteTable& table, const uint8_t* x, uint8_t* y, int64_t n) {
  static const bool vbmi = has_vbmi();
  vbmi ? look_up_vbmi(table, x, y, n) : look_up_one_by_one(table, x, y, n);
}

#else

void look_up(const ByteTable& table, const uint8_t* x, uint8_t* y, int64_t n) {
  look_up_one_by_one(table, x, y, n);
}

#endif

}  // namespace tenon::cpu
