// SPDX-License-Identifier: Apache-2.0
// Written with intrinsics: the panel layout of AMX fixes the vector length to 512 bits.
#include "gemm_dot.hpp"

#include <algorithm>
#include <cstring>

#include "intrinsics.hpp"

#if TENON_CPU_X86

namespace tenon::cpu {

bool processor_has_dots() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  const bool vectors = (b >> 16 & 1) != 0 && (b >> 30 & 1) != 0 && (b >> 31 & 1) != 0;  // F, BW, VL
  if (!vectors || __get_cpuid_count(7, 1, &a, &b, &c, &d) == 0) return false;
  // AVX512-BF16. Highway has checked that the system saves the registers.
  return (a >> 5 & 1) != 0 && (hwy::SupportedTargets() & HWY_AVX3) != 0;
}

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512vl,avx512bf16")
namespace {

constexpr int64_t kLanes = 16;                   // columns per vector, rows per tile
constexpr int64_t kTileBytes = 1024;             // 16 rows of 32 steps; 16 pairs of 16 columns
constexpr int64_t kBlockBytes = 2 * kTileBytes;  // 32 elements at 32 steps
constexpr int kRows = 8;  // per pass: with two vectors, half of the registers

struct Place {
  const char* a;  // the first row, at the first step
  const char* b;
  int64_t blocks;
  float* c;
  int64_t ldc;
  int64_t rows, cols;  // that exist
  bool add;
};

template <int kVectors>
void tile(const Place& p) {
  __m512 sum[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) sum[r][v] = _mm512_setzero_ps();
  const char *a = p.a, *b = p.b;
  for (int64_t k = 0; k < p.blocks; ++k, a += kBlockBytes, b += kBlockBytes)
#pragma GCC unroll 4
    for (int64_t pair = 0; pair < kTileBytes / 64; ++pair) {
      __m512bh row[kVectors];
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v)
        row[v] = reinterpret_cast<__m512bh>(_mm512_loadu_si512(b + v * kTileBytes + pair * 64));
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        int32_t two;
        std::memcpy(&two, a + r * 64 + pair * 4, sizeof two);
        const __m512bh factor = reinterpret_cast<__m512bh>(_mm512_set1_epi32(two));
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) sum[r][v] = _mm512_dpbf16_ps(sum[r][v], factor, row[v]);
      }
    }
  float* c = p.c;
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r, c += p.ldc) {
    if (r >= p.rows) break;
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      const int64_t n = std::clamp<int64_t>(p.cols - v * kLanes, 0, kLanes);
      const __mmask16 exist = static_cast<__mmask16>((1u << n) - 1);
      float* const at = c + v * kLanes;
      const __m512 result =
          p.add ? _mm512_add_ps(_mm512_maskz_loadu_ps(exist, at), sum[r][v]) : sum[r][v];
      _mm512_mask_storeu_ps(at, exist, result);
    }
  }
}

}  // namespace

void dot_product(const AmxProduct& p) {
  const int64_t blocks = (p.steps + kAmxSteps - 1) / kAmxSteps, panel = blocks * kBlockBytes;
  const char* a = static_cast<const char*>(p.a);
  for (int64_t i = 0; i < p.m; i += kAmxPanel, a += panel) {
    const char* b = static_cast<const char*>(p.b);
    for (int64_t j = 0; j < p.n; j += kAmxPanel, b += panel)
      for (int64_t r = 0; r < std::min(kAmxPanel, p.m - i); r += kRows) {
        const Place place{.a = a + r / kLanes * kTileBytes + r % kLanes * 64,
                          .b = b,
                          .blocks = blocks,
                          .c = p.c + (i + r) * p.ldc + j,
                          .ldc = p.ldc,
                          .rows = p.m - i - r,
                          .cols = p.n - j,
                          .add = p.add};
        place.cols > kLanes ? tile<2>(place) : tile<1>(place);
      }
  }
}
HWY_POP_ATTRIBUTES

}  // namespace tenon::cpu

#else

namespace tenon::cpu {
bool processor_has_dots() { return false; }
void dot_product(const AmxProduct&) {
  HWY_ABORT("dot_product: this processor has no such vectors");
}
}  // namespace tenon::cpu

#endif
