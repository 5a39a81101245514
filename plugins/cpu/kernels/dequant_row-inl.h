// SPDX-License-Identifier: Apache-2.0
// One row of bytes with rows of blocks, in vectors of 256 bits: 256 elements of a row of w become
// terms in registers. dequant_row.cpp includes this once for each unit, with the unit's attributes,
// in a namespace behind the unit's products (dequant_unit_avx2-inl.h).
//
// Levels have no sign, as level_lift() makes them. Those that it would lift by 128 have one here.

#include "dequant_row_levels-inl.h"
#include "dequant_row_nibbles-inl.h"

// Levels of x as products with `Blocks` read them.
template <class Blocks>
void arrange(const int8_t* level, int64_t k, int8_t* to) {
  constexpr int64_t kPiece = Blocks::kPiece;
  for (int64_t at = 0; at < k; at += kUnpacked)
    for (int64_t i = 0; i < kUnpacked / kPiece; ++i, to += kPiece)
      std::memcpy(to, level + at + kPiece * Blocks::source(i), kPiece);
}

// The last blocks of a row that end within 256 elements are copied, and zeros added.
template <tenon_dtype kFormat, class Blocks>
void row(const ByteRow& r) {
  const tenon_block block = tenon_dtype_block(kFormat);
  const int64_t bytes = kUnpacked / block.elements * block.bytes;
  constexpr int kVectors = scale_group(kFormat) == 16 ? 2 : 1;
  constexpr bool kShifts = level_lift(kFormat) != 0 && !(kSigned && level_lift(kFormat) == 128);
  alignas(32) uint8_t last[34 * 8];  // fits the largest blocks that are not whole rows of 256
  const ByteSlice of_x = r.x;
  for (int64_t n = 0; n < r.rows; ++n) {
    const uint8_t* w = r.w + n * r.step;
    const int8_t* x = of_x.level;
    float* const to = r.to + n * kDotPitch;
    for (int64_t left = r.k, g = 0; left > 0; left -= kUnpacked, w += bytes, x += kUnpacked) {
#pragma GCC unroll 5
      for (int64_t at = 0; at < bytes; at += 64)
        _mm_prefetch(reinterpret_cast<const char*>(w + kRowAhead + at), _MM_HINT_T0);
      const uint8_t* from = w;
      if (block.elements < kUnpacked && left < kUnpacked) {
        const int64_t some = left / block.elements * block.bytes;
        std::memcpy(last, w, static_cast<size_t>(some));
        std::memset(last + some, 0, static_cast<size_t>(bytes - some));
        from = last;
      }
      Groups groups[kVectors];
      Blocks::groups(from, x, groups);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v, g += 8) {
        __m256i sums = groups[v].sums;
        if (kShifts) sums = _mm256_add_epi32(sums, load(of_x.shift + g));
        __m256 term = scaled(sums, _mm256_mul_ps(groups[v].scale, _mm256_loadu_ps(of_x.scale + g)));
        if (has_adds(kFormat)) {
          const __m256 sum = _mm256_loadu_ps(of_x.sum + g);
          term = subtracts(kFormat) ? _mm256_fnmadd_ps(groups[v].add, sum, term)
                                    : _mm256_fmadd_ps(groups[v].add, sum, term);
        }
        _mm256_storeu_ps(to + g, term);
      }
    }
  }
}

template <tenon_dtype kFormat, class Blocks>
constexpr RowKernels kKernels{arrange<Blocks>, row<kFormat, Blocks>};

inline RowKernels kernels(tenon_dtype format) {
  switch (format) {
#define TENON_FORMAT(name, Blocks) \
  case TENON_DTYPE_##name:         \
    return kKernels<TENON_DTYPE_##name, Blocks<TENON_DTYPE_##name>>;
    TENON_FORMAT(Q4_K, Long)
    TENON_FORMAT(Q5_K, Long)
    TENON_FORMAT(Q2_K, InOrder)
    TENON_FORMAT(Q3_K, InOrder)
    TENON_FORMAT(Q6_K, InOrder)
    TENON_FORMAT(Q8_0, InOrder)
    TENON_FORMAT(TQ1_0, InOrder)
    TENON_FORMAT(TQ2_0, InOrder)
    TENON_FORMAT(NVFP4, InOrder)
    TENON_FORMAT(Q4_0, Nibbles)
    TENON_FORMAT(Q4_1, Nibbles)
    TENON_FORMAT(Q5_0, Nibbles)
    TENON_FORMAT(Q5_1, Nibbles)
    TENON_FORMAT(IQ4_NL, Nibbles)
    TENON_FORMAT(IQ4_XS, Nibbles)
    TENON_FORMAT(MXFP4, Nibbles)
#undef TENON_FORMAT
    default:
      return {};
  }
}
