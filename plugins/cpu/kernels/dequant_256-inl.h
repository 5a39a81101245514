// SPDX-License-Identifier: Apache-2.0
// Products of bytes with blocks in vectors of 256 bits. dequant_avx2.cpp includes this once for each
// unit, with the unit's attributes, in a namespace behind its products (dequant_unit_avx2-inl.h).

constexpr int kMostRows = 4;  // of a tile: its sums fill the registers

HWY_INLINE __m256i load(const void* from) {
  return _mm256_load_si256(static_cast<const __m256i*>(from));
}
HWY_INLINE __m256i load_unaligned(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}
// Levels as the unit multiplies them.
template <int kPairs>
HWY_INLINE __m256i own(__m256i levels) {
  if (kPairs > 0 || !kSigned) return levels;
  return _mm256_xor_si256(levels, _mm256_set1_epi8(static_cast<char>(128)));
}

// Rows and columns of 8 x 8 elements change places.
HWY_INLINE void transpose(__m256i* v) {
  __m256i t[8];
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_epi32(v[i], v[i + 1]);
    t[i + 1] = _mm256_unpackhi_epi32(v[i], v[i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    v[i] = _mm256_unpacklo_epi64(t[i], t[i + 2]);
    v[i + 1] = _mm256_unpackhi_epi64(t[i], t[i + 2]);
    v[i + 2] = _mm256_unpacklo_epi64(t[i + 1], t[i + 3]);
    v[i + 3] = _mm256_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm256_permute2x128_si256(v[i], v[i + 4], 0x20);
    t[i + 4] = _mm256_permute2x128_si256(v[i], v[i + 4], 0x31);
  }
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) v[i] = t[i];
}

// Eight terms.
template <bool kAdds, bool kShifts>
HWY_INLINE __m256 terms_of(__m256i sums, __m256 scale, __m256 add, const ByteSlice& x, int64_t g) {
  if (kShifts) sums = _mm256_add_epi32(sums, load_unaligned(x.shift + g));
  const __m256 term =
      _mm256_mul_ps(_mm256_cvtepi32_ps(sums), _mm256_mul_ps(scale, _mm256_loadu_ps(x.scale + g)));
  return kAdds ? _mm256_fmadd_ps(add, _mm256_loadu_ps(x.sum + g), term) : term;
}

// The sums of 16 products each of 128 bytes: groups 0, 2, 4, 6, then 1, 3, 5, 7.
template <int kPairs>
HWY_INLINE __m256i sums_of_16(const int8_t* w, const int8_t* x) {
  __m256i s[4];
#pragma GCC unroll 4
  for (int v = 0; v < 4; ++v) {
    const __m256i level = own<kPairs>(load(w + 32 * v));
    s[v] = sum_of_run(run_with<kPairs>(level, true, level, load_unaligned(x + 32 * v)));
  }
  return _mm256_hadd_epi32(_mm256_hadd_epi32(s[0], s[1]), _mm256_hadd_epi32(s[2], s[3]));
}

// Every other number of 16.
HWY_INLINE __m256 even(const float* from) {
  const __m256 v = _mm256_shuffle_ps(_mm256_load_ps(from), _mm256_load_ps(from + 8), 0x88);
  return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(v), 0xd8));
}

template <int kGroup, bool kAdds, int kPairs>
void dots(const ByteDots& d) {
  constexpr bool kShifts = kPairs > 0 || !kSigned;
  for (int64_t part = 0; part < d.parts; ++part) {
    const Unpacked& w = d.w[part];
    const int8_t* const x = d.x.level + part * kUnpacked;
    const __m256i a = sums_of_16<kPairs>(w.level, x),
                  b = sums_of_16<kPairs>(w.level + 128, x + 128);
    if (kGroup == 16) {
      const __m256i in_order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half)
        _mm256_storeu_ps(
            d.to + 16 * part + 8 * half,
            terms_of<kAdds, kShifts>(_mm256_permutevar8x32_epi32(half == 0 ? a : b, in_order),
                                     _mm256_load_ps(w.scale + 8 * half),
                                     _mm256_load_ps(w.add + 8 * half), d.x, 16 * part + 8 * half));
    } else {
      const __m256i sums = _mm256_add_epi32(_mm256_permute2x128_si256(a, b, 0x20),
                                            _mm256_permute2x128_si256(a, b, 0x31));
      const __m256 add = kAdds ? even(w.add) : _mm256_setzero_ps();
      _mm256_storeu_ps(d.to + 8 * part,
                       terms_of<kAdds, kShifts>(sums, even(w.scale), add, d.x, 8 * part));
    }
  }
}

// Sums of eight rows each take turns: the next one need not wait for the last one's addition.
void close(const ByteTerms& t) {
  constexpr int kSums = kDotRows / 8;
  __m256 sum[kSums];
#pragma GCC unroll 2
  for (int n = 0; n < kSums; ++n) sum[n] = _mm256_loadu_ps(t.sums + 8 * n);
  for (int64_t g = 0; g < t.groups; g += 8)
#pragma GCC unroll 2
    for (int n = 0; n < kSums; ++n) {
      __m256i v[8];
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) v[i] = load_unaligned(t.terms + (8 * n + i) * kDotPitch + g);
      transpose(v);
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) sum[n] = _mm256_add_ps(sum[n], _mm256_castsi256_ps(v[i]));
    }
#pragma GCC unroll 2
  for (int n = 0; n < kSums; ++n) _mm256_storeu_ps(t.sums + 8 * n, sum[n]);
}

template <int kGroup, bool kAdds, int kPairs>
void pack(const Unpacked* rows, int64_t first, PackedPanel& to) {
  const auto move = [&](const Unpacked* some, auto from, auto store) {
    __m256i v[8];
#pragma GCC unroll 8
    for (int n = 0; n < 8; ++n) v[n] = load(from(some[n]));
    transpose(v);
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) store(i, v[i]);
  };
  const auto put = [](void* at, __m256i v) { _mm256_store_si256(static_cast<__m256i*>(at), v); };
  constexpr int kStep = kGroup / 16;
  for (int64_t n = 0; n < kDotRows; n += 8) {
    const Unpacked* const some = rows + n;
    const int64_t column = first + n;
    for (int q = 0; q < kUnpacked / 4; q += 8)
      move(
          some, [&](const Unpacked& row) { return row.level + 4 * q; },
          [&](int i, __m256i v) { put(to.quad[q + i] + column, own<kPairs>(v)); });
    for (int g = 0; g < 16; g += 8) {
      move(
          some, [&](const Unpacked& row) { return row.scale + g; },
          [&](int i, __m256i v) {
            if (i % kStep == 0) put(to.scale[(g + i) / kStep] + column, v);
          });
      if (kAdds)
        move(
            some, [&](const Unpacked& row) { return row.add + g; },
            [&](int i, __m256i v) {
              if (i % kStep == 0) put(to.add[(g + i) / kStep] + column, v);
            });
    }
  }
}

// 16 columns.
template <int kRows, int kGroup, bool kAdds, int kPairs>
HWY_NOINLINE void tile_rows(const ByteSlice* x, const PackedPanel& w, int64_t column, float* sums) {
  constexpr int kQuads = kGroup / 4;
  constexpr int kRun = std::min(run_of(kPairs), kQuads);
  constexpr bool kShifts = kPairs > 0 || !kSigned;
#pragma GCC unroll 1
  for (int g = 0; g < kUnpacked / kGroup; ++g) {
    __m256i dot[kRows][2];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r)
      dot[r][0] = dot[r][1] = kShifts ? _mm256_set1_epi32(x[r].shift[g]) : _mm256_setzero_si256();
#pragma GCC unroll 1
    for (int q = 0; q < kQuads; q += kRun) {
      __m256i run[kRows][2];
#pragma GCC unroll 8
      for (int i = 0; i < kRun; ++i) {
        const uint32_t* const quad = w.quad[g * kQuads + q + i] + column;
        const __m256i w0 = load(quad), w1 = load(quad + 8);
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) {
          int32_t bytes;
          std::memcpy(&bytes, x[r].level + g * kGroup + 4 * (q + i), sizeof bytes);
          const __m256i four = _mm256_set1_epi32(bytes);
          run[r][0] = run_with<kPairs>(run[r][0], i == 0, w0, four);
          run[r][1] = run_with<kPairs>(run[r][1], i == 0, w1, four);
        }
      }
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
        for (int v = 0; v < 2; ++v) dot[r][v] = _mm256_add_epi32(dot[r][v], sum_of_run(run[r][v]));
    }
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) {
      const __m256 scale = _mm256_load_ps(w.scale[g] + column + 8 * v);
      const __m256 add = kAdds ? _mm256_load_ps(w.add[g] + column + 8 * v) : _mm256_setzero_ps();
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        __m256 term = _mm256_mul_ps(_mm256_cvtepi32_ps(dot[r][v]),
                                    _mm256_mul_ps(scale, _mm256_set1_ps(x[r].scale[g])));
        if (kAdds) term = _mm256_fmadd_ps(add, _mm256_set1_ps(x[r].sum[g]), term);
        float* const at = sums + r * kBlockPanel + 8 * v;
        _mm256_storeu_ps(at, _mm256_add_ps(_mm256_loadu_ps(at), term));
      }
    }
  }
}

template <int kGroup, bool kAdds, int kPairs>
void tile(const ByteTile& t) {
  using Rows = void (*)(const ByteSlice*, const PackedPanel&, int64_t, float*);
  constexpr Rows kRows[] = {
      nullptr,
      tile_rows<1, kGroup, kAdds, kPairs>,
      tile_rows<2, kGroup, kAdds, kPairs>,
      tile_rows<3, kGroup, kAdds, kPairs>,
      tile_rows<4, kGroup, kAdds, kPairs>,
  };
  for (int64_t r = 0; r < t.rows; r += kMostRows)
    for (int64_t column = 0; column < kBlockPanel; column += 16)
      kRows[std::min<int64_t>(kMostRows, t.rows - r)](t.x + r, *t.w, column,
                                                      t.sums + r * kBlockPanel + column);
}

template <int kGroup, bool kAdds, int kPairs>
constexpr ByteKernels kKernels{dots<kGroup, kAdds, kPairs>, close, pack<kGroup, kAdds, kPairs>,
                               tile<kGroup, kAdds, kPairs>};

// With the pairs of a format, where a unit counts them.
template <int kGroup, bool kAdds>
const ByteKernels* kernels_with(int pairs) {
  if constexpr (!kSigned) return &kKernels<kGroup, kAdds, 8>;
  switch (pairs) {
    case 0:
      return &kKernels<kGroup, kAdds, 0>;
    case 2:
      return &kKernels<kGroup, kAdds, 2>;
    case 4:
      return &kKernels<kGroup, kAdds, 4>;
    default:
      return &kKernels<kGroup, kAdds, 8>;
  }
}

inline const ByteKernels* kernels(tenon_dtype format) {
  const int pairs = pairs_in_16_bits(format);
  if (scale_group(format) == 16)
    return has_adds(format) ? kernels_with<16, true>(pairs) : kernels_with<16, false>(pairs);
  return has_adds(format) ? kernels_with<32, true>(pairs) : kernels_with<32, false>(pairs);
}
