// SPDX-License-Identifier: Apache-2.0
// Register tiles of 8-bit dot products. Written with intrinsics: Highway has one target for
// AVX-512 with VNNI and other extensions together, and none for AVX-VNNI.
#include <cstring>

#include "intrinsics.hpp"
#include "qgemm.hpp"

#if TENON_CPU_X86

namespace tenon::cpu {

bool q_processor_has(QUnit unit) {
  if (unit == QUnit::madd) return true;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  // Highway has checked that the system saves the registers.
  if (unit == QUnit::vnni512)
    return (c >> 11 & 1) != 0 && (hwy::SupportedTargets() & HWY_AVX3) != 0;
  if (__get_cpuid_count(7, 1, &a, &b, &c, &d) == 0) return false;
  return (a >> 4 & 1) != 0 && (hwy::SupportedTargets() & HWY_AVX2) != 0;
}

namespace {

// Calls body<rows, vectors>(column) for each panel of columns.
template <int kRows, class Body>
void for_columns(const QTiles& p, int64_t lanes, const Body& body) {
  const auto* const b = static_cast<const uint32_t*>(p.b);
  int64_t j = 0;
  for (int64_t panel = 0; j < p.cols; j += 2 * lanes, ++panel) {
    const uint32_t* const at = b + panel * p.b_panel;
    if (j + lanes < p.cols) {
      body.template run<kRows, 2>(at, p.sums + j);
    } else {
      body.template run<kRows, 1>(at, p.sums + j);
    }
  }
}

}  // namespace

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512vl,avx512vnni")
namespace {

constexpr int64_t kLanes512 = 16;

template <bool kLeftSigned>
struct Tile512 {
  const QTiles& p;
  template <int kRows, int kVectors>
  HWY_NOINLINE void run(const uint32_t* b, int32_t* c) const {
    constexpr int64_t kPanel = 14;
    __m512i sum[kRows][kVectors];
#pragma GCC unroll 14
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[r][v] = _mm512_setzero_si512();
    const char* a = static_cast<const char*>(p.a);
    for (int64_t k = 0; k < p.quads; ++k, a += kPanel * 4) {
      const uint32_t* const at = b + p.offsets[k];
      __m512i column[kVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) column[v] = _mm512_loadu_si512(at + 16 * v);
#pragma GCC unroll 14
      for (int r = 0; r < kRows; ++r) {
        int32_t quad;
        std::memcpy(&quad, a + r * 4, sizeof quad);
        const __m512i row = _mm512_set1_epi32(quad);
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v)
          sum[r][v] = kLeftSigned ? _mm512_dpbusd_epi32(sum[r][v], column[v], row)
                                  : _mm512_dpbusd_epi32(sum[r][v], row, column[v]);
      }
    }
#pragma GCC unroll 14
    for (int r = 0; r < kRows; ++r) {
      if (r >= p.rows) break;
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) _mm512_storeu_si512(c + r * p.ld + 16 * v, sum[r][v]);
    }
  }
};

template <bool kLeftSigned>
void tiles512(const QTiles& p) {
  const Tile512<kLeftSigned> tile{p};
  if (p.rows <= 1 && p.b_panel == 2 * kLanes512) {  // panels side by side: more columns at a time
    constexpr int64_t kColumns = 4 * kLanes512;
    const auto* const b = static_cast<const uint32_t*>(p.b);
    int64_t j = 0;
    for (; j + 3 * kLanes512 < p.cols; j += kColumns) tile.template run<1, 4>(b + j, p.sums + j);
    for (; j < p.cols; j += kLanes512) tile.template run<1, 1>(b + j, p.sums + j);
    return;
  }
  if (p.rows <= 1) return for_columns<1>(p, 16, tile);
  if (p.rows <= 4) return for_columns<4>(p, 16, tile);
  if (p.rows <= 8) return for_columns<8>(p, 16, tile);
  for_columns<14>(p, 16, tile);
}

}  // namespace

void q_tiles_vnni512(const QTiles& p) { p.left_signed ? tiles512<true>(p) : tiles512<false>(p); }
HWY_POP_ATTRIBUTES

HWY_PUSH_ATTRIBUTES("avx2,avxvnni")
namespace {

template <bool kLeftSigned>
struct Tile256 {
  const QTiles& p;
  template <int kRows, int kVectors>
  HWY_NOINLINE void run(const uint32_t* b, int32_t* c) const {
    constexpr int64_t kPanel = 6;
    __m256i sum[kRows][kVectors];
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) sum[r][v] = _mm256_setzero_si256();
    const char* a = static_cast<const char*>(p.a);
    for (int64_t k = 0; k < p.quads; ++k, a += kPanel * 4) {
      const uint32_t* const at = b + p.offsets[k];
      __m256i column[kVectors];
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v)
        column[v] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at + 8 * v));
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) {
        int32_t quad;
        std::memcpy(&quad, a + r * 4, sizeof quad);
        const __m256i row = _mm256_set1_epi32(quad);
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v)
          sum[r][v] = kLeftSigned ? _mm256_dpbusd_avx_epi32(sum[r][v], column[v], row)
                                  : _mm256_dpbusd_avx_epi32(sum[r][v], row, column[v]);
      }
    }
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      if (r >= p.rows) break;
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v)
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(c + r * p.ld + 8 * v), sum[r][v]);
    }
  }
};

template <bool kLeftSigned>
void tiles256(const QTiles& p) {
  const Tile256<kLeftSigned> tile{p};
  p.rows <= 1 ? for_columns<1>(p, 8, tile) : for_columns<6>(p, 8, tile);
}

}  // namespace

void q_tiles_vnni256(const QTiles& p) { p.left_signed ? tiles256<true>(p) : tiles256<false>(p); }
HWY_POP_ATTRIBUTES

}  // namespace tenon::cpu

#else

namespace tenon::cpu {
bool q_processor_has(QUnit unit) { return unit == QUnit::madd; }
void q_tiles_vnni256(const QTiles&) { HWY_ABORT("q_tiles: this processor has no AVX-VNNI"); }
void q_tiles_vnni512(const QTiles&) { HWY_ABORT("q_tiles: this processor has no AVX512-VNNI"); }
}  // namespace tenon::cpu

#endif
