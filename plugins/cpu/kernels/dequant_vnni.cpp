// SPDX-License-Identifier: Apache-2.0
// Products of bytes with blocks by AVX512-VNNI. Written with intrinsics: Highway has one target for
// AVX-512 with VNNI and other extensions together.
#include <algorithm>
#include <cstring>

#include "dequant_bytes.hpp"
#include "intrinsics.hpp"
#include "qgemm.hpp"

#if TENON_CPU_X86

namespace tenon::cpu {

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512vl,avx512vnni")
namespace {

constexpr int kMostRows = 6;  // of a tile: its sums fill the registers

// Rows and columns of 16 x 16 elements change places.
HWY_INLINE void transpose(__m512i* v) {
  __m512i t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    v[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    v[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    v[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    v[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  // v[4a + b] has column b of each quarter, of rows 4a to 4a + 3.
#pragma GCC unroll 4
  for (int b = 0; b < 4; ++b) {
    t[b] = _mm512_shuffle_i32x4(v[b], v[4 + b], 0x44);
    t[4 + b] = _mm512_shuffle_i32x4(v[b], v[4 + b], 0xee);
    t[8 + b] = _mm512_shuffle_i32x4(v[8 + b], v[12 + b], 0x44);
    t[12 + b] = _mm512_shuffle_i32x4(v[8 + b], v[12 + b], 0xee);
  }
#pragma GCC unroll 4
  for (int b = 0; b < 4; ++b) {
    v[b] = _mm512_shuffle_i32x4(t[b], t[8 + b], 0x88);
    v[4 + b] = _mm512_shuffle_i32x4(t[b], t[8 + b], 0xdd);
    v[8 + b] = _mm512_shuffle_i32x4(t[4 + b], t[12 + b], 0x88);
    v[12 + b] = _mm512_shuffle_i32x4(t[4 + b], t[12 + b], 0xdd);
  }
}

// The sums of 64 bytes each of products: lane 4a + b is that of 16 bytes, group 4b + a.
HWY_INLINE __m512i sums_of_16(const int8_t* w, const int8_t* x) {
  __m512i s[4];
#pragma GCC unroll 4
  for (int v = 0; v < 4; ++v)
    s[v] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_load_si512(w + 64 * v),
                               _mm512_loadu_si512(x + 64 * v));
  const __m512i ab =
      _mm512_add_epi32(_mm512_unpacklo_epi32(s[0], s[1]), _mm512_unpackhi_epi32(s[0], s[1]));
  const __m512i cd =
      _mm512_add_epi32(_mm512_unpacklo_epi32(s[2], s[3]), _mm512_unpackhi_epi32(s[2], s[3]));
  return _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
}

// The terms of 16 groups.
template <bool kAdds>
HWY_INLINE __m512 terms_of(__m512i sums, __m512 scale, __m512 add, const ByteSlice& x, int64_t g) {
  sums = _mm512_add_epi32(sums, _mm512_loadu_si512(x.shift + g));
  const __m512 term =
      _mm512_mul_ps(_mm512_cvtepi32_ps(sums), _mm512_mul_ps(scale, _mm512_loadu_ps(x.scale + g)));
  return kAdds ? _mm512_fmadd_ps(add, _mm512_loadu_ps(x.sum + g), term) : term;
}

template <bool kAdds>
void dots_of_16(const ByteDots& d) {
  const __m512i in_order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  for (int64_t part = 0; part < d.parts; ++part) {
    const Unpacked& w = d.w[part];
    const __m512i sums = sums_of_16(w.level, d.x.level + part * kUnpacked);
    const __m512 term =
        terms_of<kAdds>(_mm512_permutexvar_epi32(in_order, sums), _mm512_load_ps(w.scale),
                        _mm512_load_ps(w.add), d.x, 16 * part);
    _mm512_storeu_ps(d.to + 16 * part, term);
  }
}

// Groups of 32: two parts fill a vector.
template <bool kAdds>
void dots_of_32(const ByteDots& d) {
  // Below, lane 4a + b of each half is group 2b + a.
  const __m512i in_order = _mm512_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15);
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  for (int64_t part = 0; part < d.parts; part += 2) {
    // The terms of a part too many are not read.
    const Unpacked &a = d.w[part], &b = part + 1 < d.parts ? d.w[part + 1] : a;
    const int8_t* const x = d.x.level + part * kUnpacked;
    const __m512i of_a = sums_of_16(a.level, x);
    const __m512i of_b = part + 1 < d.parts ? sums_of_16(b.level, x + kUnpacked) : of_a;
    const __m512i sums = _mm512_add_epi32(_mm512_shuffle_i32x4(of_a, of_b, 0x88),
                                          _mm512_shuffle_i32x4(of_a, of_b, 0xdd));
    const auto both = [&](const float* first, const float* second) {
      return _mm512_permutex2var_ps(_mm512_load_ps(first), even, _mm512_load_ps(second));
    };
    const __m512 add = kAdds ? both(a.add, b.add) : _mm512_setzero_ps();
    const __m512 term = terms_of<kAdds>(_mm512_permutexvar_epi32(in_order, sums),
                                        both(a.scale, b.scale), add, d.x, 8 * part);
    _mm512_storeu_ps(d.to + 8 * part, term);
  }
}

void close(const ByteTerms& t) {
  __m512 sum = _mm512_loadu_ps(t.sums);
  for (int64_t g = 0; g < t.groups; g += 16) {
    __m512i v[16];
#pragma GCC unroll 16
    for (int n = 0; n < 16; ++n) v[n] = _mm512_loadu_si512(t.terms + n * kDotPitch + g);
    transpose(v);
    const int64_t some = std::min<int64_t>(t.groups - g, 16);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i)
      if (i < some) sum = _mm512_add_ps(sum, _mm512_castsi512_ps(v[i]));
  }
  _mm512_storeu_ps(t.sums, sum);
}

template <int kGroup, bool kAdds>
void pack(const Unpacked* rows, int64_t first, PackedPanel& to) {
  const auto move = [&](auto from, auto store) {
    __m512i v[16];
#pragma GCC unroll 16
    for (int n = 0; n < 16; ++n) v[n] = _mm512_load_si512(from(rows[n]));
    transpose(v);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) store(i, v[i]);
  };
  for (int q = 0; q < kUnpacked / 4; q += 16)
    move([&](const Unpacked& row) { return row.level + 4 * q; },
         [&](int i, __m512i v) { _mm512_store_si512(to.quad[q + i] + first, v); });
  constexpr int kStep = kGroup / 16;
  move([](const Unpacked& row) { return row.scale; },
       [&](int i, __m512i v) {
         if (i % kStep == 0) _mm512_store_si512(to.scale[i / kStep] + first, v);
       });
  if (kAdds)
    move([](const Unpacked& row) { return row.add; },
         [&](int i, __m512i v) {
           if (i % kStep == 0) _mm512_store_si512(to.add[i / kStep] + first, v);
         });
}

template <int kRows, int kGroup, bool kAdds>
HWY_NOINLINE void tile_rows(const ByteSlice* x, const PackedPanel& w, float* sums) {
  __m512 sum[kRows][2];
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) sum[r][v] = _mm512_loadu_ps(sums + r * kBlockPanel + 16 * v);
  const int8_t* level[kRows];
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) level[r] = x[r].level;
#pragma GCC unroll 1
  for (int g = 0; g < kUnpacked / kGroup; ++g) {
    __m512i dot[kRows][2];
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) dot[r][0] = dot[r][1] = _mm512_set1_epi32(x[r].shift[g]);
    const uint32_t(*quad)[kBlockPanel] = w.quad + g * kGroup / 4;
#pragma GCC unroll 8
    for (int q = 0; q < kGroup / 4; ++q) {
      const __m512i w0 = _mm512_load_si512(quad[q]), w1 = _mm512_load_si512(quad[q] + 16);
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) {
        int32_t bytes;
        std::memcpy(&bytes, level[r] + g * kGroup + 4 * q, sizeof bytes);
        const __m512i four = _mm512_set1_epi32(bytes);
        dot[r][0] = _mm512_dpbusd_epi32(dot[r][0], w0, four);
        dot[r][1] = _mm512_dpbusd_epi32(dot[r][1], w1, four);
      }
    }
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) {
      const __m512 scale = _mm512_load_ps(w.scale[g] + 16 * v);
      const __m512 add = kAdds ? _mm512_load_ps(w.add[g] + 16 * v) : _mm512_setzero_ps();
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) {
        __m512 term = _mm512_mul_ps(_mm512_cvtepi32_ps(dot[r][v]),
                                    _mm512_mul_ps(scale, _mm512_set1_ps(x[r].scale[g])));
        if (kAdds) term = _mm512_fmadd_ps(add, _mm512_set1_ps(x[r].sum[g]), term);
        sum[r][v] = _mm512_add_ps(sum[r][v], term);
      }
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) _mm512_storeu_ps(sums + r * kBlockPanel + 16 * v, sum[r][v]);
}

template <int kGroup, bool kAdds>
void tile(const ByteTile& t) {
  using Rows = void (*)(const ByteSlice*, const PackedPanel&, float*);
  constexpr Rows kRows[] = {
      nullptr,
      tile_rows<1, kGroup, kAdds>,
      tile_rows<2, kGroup, kAdds>,
      tile_rows<3, kGroup, kAdds>,
      tile_rows<4, kGroup, kAdds>,
      tile_rows<5, kGroup, kAdds>,
      tile_rows<6, kGroup, kAdds>,
  };
  for (int64_t r = 0; r < t.rows; r += kMostRows)
    kRows[std::min<int64_t>(kMostRows, t.rows - r)](t.x + r, *t.w, t.sums + r * kBlockPanel);
}

}  // namespace
HWY_POP_ATTRIBUTES

const ByteKernels* byte_kernels_vnni(tenon_dtype format) {
  static constexpr ByteKernels kKernels[2][2] = {
      {{dots_of_16<false>, close, pack<16, false>, tile<16, false>},
       {dots_of_16<true>, close, pack<16, true>, tile<16, true>}},
      {{dots_of_32<false>, close, pack<32, false>, tile<32, false>},
       {dots_of_32<true>, close, pack<32, true>, tile<32, true>}}};
  if (q_unit() != QUnit::vnni512) return nullptr;
  return &kKernels[scale_group(format) == 32][has_adds(format)];
}

}  // namespace tenon::cpu

#else

namespace tenon::cpu {
const ByteKernels* byte_kernels_vnni(tenon_dtype) { return nullptr; }
}  // namespace tenon::cpu

#endif
