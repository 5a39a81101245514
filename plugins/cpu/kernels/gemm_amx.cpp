// SPDX-License-Identifier: Apache-2.0
// Packing into bf16 parts, and tile products. Written with intrinsics, because Highway does not
// cover AMX.
#include "gemm_amx.hpp"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "gemm_dot.hpp"
#include "intrinsics.hpp"
#include "isa.hpp"

#if TENON_CPU_X86

#include <sys/syscall.h>
#include <unistd.h>

namespace tenon::cpu {
namespace {

bool processor_has_tiles() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  const bool tiles = (d >> 22 & 1) != 0 && (d >> 24 & 1) != 0;  // AMX-BF16, AMX-TILE
  const bool vectors = (b >> 16 & 1) != 0 && (b >> 30 & 1) != 0 && (b >> 31 & 1) != 0;  // F, BW, VL
  if (!tiles || !vectors || __get_cpuid_count(7, 1, &a, &b, &c, &d) == 0) return false;
  return (a >> 5 & 1) != 0;  // AVX512-BF16
}

// Linux enables the tile state on request. It refuses if a signal stack is too small.
bool system_grants_tiles() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

constexpr int parts_of(AmxNumber number) {
  switch (number) {
    case AmxNumber::none:
      return 0;
    case AmxNumber::bf16:
      return 1;
    case AmxNumber::f16:
    case AmxNumber::tf32:
      return 2;
    case AmxNumber::f32:
      return 3;
  }
  return 0;
}

// What products may use: nothing, dot products for bf16, or AMX.
enum class Use : uint8_t { none, dots, not_f32, all };

Use chosen_use() {
  const char* const text = secure_getenv("TENON_CPU_AMX");  // null in a privileged process
  const std::string_view choice = text == nullptr ? "" : text;
  if (choice == "none") return Use::none;
  if (choice == "0" || isa_cap() < Isa::amx || !processor_has_tiles() || !system_grants_tiles())
    return processor_has_dots() ? Use::dots : Use::none;
  return choice == "f32" ? Use::all : Use::not_f32;
}

Use use() {
  static const Use chosen = chosen_use();
  return chosen;
}

}  // namespace

int amx_parts(AmxNumber number) { return parts_of(number); }

AmxNumber amx_number(tenon_dtype dtype, bool tf32) {
  if (use() == Use::none) return AmxNumber::none;
  if (dtype == TENON_DTYPE_BF16) return AmxNumber::bf16;
  // splitting into parts would be no faster than multiply-adds
  if (use() == Use::dots) return AmxNumber::none;
  if (dtype == TENON_DTYPE_F16) return AmxNumber::f16;
  if (dtype == TENON_DTYPE_F32 && tf32) return AmxNumber::tf32;
  return dtype == TENON_DTYPE_F32 && use() == Use::all ? AmxNumber::f32 : AmxNumber::none;
}

int amx_gain(AmxNumber number) { return number == AmxNumber::bf16 && use() != Use::dots ? 6 : 2; }

bool amx_ordinary(uint32_t bits) {
  constexpr uint32_t kRoundsToInfinity = 0x7F7F8000, kTiny = 0x0D800000;  // 2^-100
  return bits == 0 || (bits >= kTiny && bits < kRoundsToInfinity);
}

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512vl,avx512bf16,amx-tile,amx-bf16,f16c")
namespace {

constexpr int64_t kTile = 16;  // rows per tile, and 32-bit columns
constexpr int64_t kTileBytes = 1024;

// ---- packing: a block is kTile elements wide and kAmxSteps steps long

__m512i half(__m512 low, __m512 high) {
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
}
__m512 low_floats(__m512i x) {
  return _mm512_castsi512_ps(
      _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_castsi512_si256(x)), 16));
}
__m512 high_floats(__m512i x) {
  return _mm512_castsi512_ps(
      _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(x, 1)), 16));
}

// Splits 32 numbers into parts, the largest first.
template <int kParts>
HWY_INLINE void split(__m512 low, __m512 high, __m512i* parts) {
  for (int p = 0; p < kParts; ++p) {
    parts[p] = half(low, high);
    if (p + 1 == kParts) break;
    low = _mm512_sub_ps(low, low_floats(parts[p]));
    high = _mm512_sub_ps(high, high_floats(parts[p]));
  }
}

HWY_INLINE __m512i larger(__m512i bits, __m512 x) {
  return _mm512_max_epu32(bits,
                          _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7FFFFFFF)));
}

// The first `n` of 16 elements, then zeros.
HWY_INLINE __m512 floats(const float* x, int64_t n) {
  return n >= kTile ? _mm512_loadu_ps(x)
                    : _mm512_maskz_loadu_ps(
                          static_cast<__mmask16>((1u << std::max<int64_t>(n, 0)) - 1), x);
}
// Loads bf16 and f16 as bits.
HWY_INLINE __m256i halves(const uint16_t* x, int64_t n) {
  return n >= kTile ? _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x))
                    : _mm256_maskz_loadu_epi16(
                          static_cast<__mmask16>((1u << std::max<int64_t>(n, 0)) - 1), x);
}

struct F32Source {
  using T = float;
  template <int kParts>
  static HWY_INLINE void load(const T* x, int64_t nx, const T* y, int64_t ny, __m512i* parts,
                              __m512i& bits) {
    const __m512 low = floats(x, nx), high = floats(y, ny);
    bits = larger(larger(bits, low), high);
    split<kParts>(low, high, parts);
  }
};
struct F16Source {
  using T = uint16_t;
  template <int kParts>
  static HWY_INLINE void load(const T* x, int64_t nx, const T* y, int64_t ny, __m512i* parts,
                              __m512i& bits) {
    const __m512 low = _mm512_cvtph_ps(halves(x, nx)), high = _mm512_cvtph_ps(halves(y, ny));
    bits = larger(larger(bits, low), high);
    split<kParts>(low, high, parts);
  }
};
struct Bf16Source {
  using T = uint16_t;
  template <int kParts>
  static HWY_INLINE void load(const T* x, int64_t nx, const T* y, int64_t ny, __m512i* parts,
                              __m512i&) {
    parts[0] = _mm512_inserti64x4(_mm512_castsi256_si512(halves(x, nx)), halves(y, ny), 1);
  }
};

// Transposes 16 rows of 16 elements.
HWY_INLINE void transpose(__m512i* r) {
  __m512i t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  for (int i = 0; i < 16; i += 4)
    for (int j = 0; j < 2; ++j) {
      r[i + 2 * j] = _mm512_unpacklo_epi64(t[i + j], t[i + j + 2]);
      r[i + 2 * j + 1] = _mm512_unpackhi_epi64(t[i + j], t[i + j + 2]);
    }
  for (int i = 0; i < 4; ++i) {
    const __m512i a = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
    const __m512i b = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xDD);
    const __m512i c = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
    const __m512i d = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xDD);
    t[i] = _mm512_shuffle_i32x4(a, c, 0x88);
    t[i + 8] = _mm512_shuffle_i32x4(a, c, 0xDD);
    t[i + 4] = _mm512_shuffle_i32x4(b, d, 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(b, d, 0xDD);
  }
  std::copy_n(t, 16, r);
}

// Writes vector `row` of each part of a tile. `turned` stores the transpose of the rows.
template <int kParts>
struct TileWriter {
  char* to;  // the block of the tile; parts are 2 * kTileBytes apart
  bool turned;
  __m512i rows[kParts][kTile];

  HWY_INLINE void put(int64_t row, const __m512i* parts) {
    for (int p = 0; p < kParts; ++p) {
      if (turned) {
        rows[p][row] = parts[p];
      } else {
        _mm512_storeu_si512(to + 2 * p * kTileBytes + row * 64, parts[p]);
      }
    }
  }
  HWY_INLINE void finish() {
    if (!turned) return;
    for (int p = 0; p < kParts; ++p) {
      transpose(rows[p]);
      for (int64_t i = 0; i < kTile; ++i)
        _mm512_storeu_si512(to + 2 * p * kTileBytes + i * 64, rows[p][i]);
    }
  }
};

// Steps are contiguous: vector w holds element w at 32 steps.
template <class Source, int kParts>
void pack_along_steps(const typename Source::T* data, int64_t width_stride, int64_t width,
                      int64_t steps, AmxSide side, char* to, __m512i& bits) {
  TileWriter<kParts> tile{to, side == AmxSide::b, {}};
  for (int64_t w = 0; w < kTile; ++w) {
    __m512i parts[kParts] = {};
    if (w < width) {
      const auto* x = data + w * width_stride;
      Source::template load<kParts>(x, steps, x + kTile, steps - kTile, parts, bits);
    }
    tile.put(w, parts);
  }
  tile.finish();
}

// Elements are contiguous: vector p holds 16 elements at steps 2p and 2p + 1, in pairs.
template <class Source, int kParts>
void pack_along_width(const typename Source::T* data, int64_t step_stride, int64_t width,
                      int64_t steps, AmxSide side, char* to, __m512i& bits) {
  alignas(64) static constexpr uint16_t kPairs[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                      21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                      11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  const __m512i pairs = _mm512_load_si512(kPairs);
  TileWriter<kParts> tile{to, side == AmxSide::a, {}};
  for (int64_t p = 0; p < kTile; ++p) {
    __m512i parts[kParts] = {};
    const auto* x = data + 2 * p * step_stride;
    if (2 * p < steps)
      Source::template load<kParts>(x, width, x + step_stride, 2 * p + 1 < steps ? width : 0, parts,
                                    bits);
    for (int i = 0; i < kParts; ++i) parts[i] = _mm512_permutexvar_epi16(pairs, parts[i]);
    tile.put(p, parts);
  }
  tile.finish();
}

template <class Source, int kParts>
void pack_block(const typename Source::T* data, const AmxSource& from, int64_t width, int64_t steps,
                AmxSide side, char* to, __m512i& bits) {
  if (from.step_stride == 1)
    return pack_along_steps<Source, kParts>(data, from.width_stride, width, steps, side, to, bits);
  if (from.width_stride == 1)
    return pack_along_width<Source, kParts>(data, from.step_stride, width, steps, side, to, bits);
  typename Source::T block[kTile][kAmxSteps] = {};
  for (int64_t w = 0; w < width; ++w)
    for (int64_t s = 0; s < steps; ++s)
      block[w][s] = data[w * from.width_stride + s * from.step_stride];
  pack_along_steps<Source, kParts>(block[0], kAmxSteps, width, steps, side, to, bits);
}

// Packs all panels at the same steps before the next steps, so that memory is read in long runs.
template <class Source, int kParts>
void pack(const AmxSource& from, AmxSide side, char* packed, uint32_t* largest) {
  const auto* data = static_cast<const typename Source::T*>(from.data);
  const int64_t blocks = (from.steps + kAmxSteps - 1) / kAmxSteps;
  constexpr int64_t kBlock = 2 * kParts * kTileBytes;
  for (int64_t k = 0; k < blocks; ++k) {
    const int64_t s = k * kAmxSteps, steps = std::min(kAmxSteps, from.steps - s);
    for (int64_t w = 0, panel = 0; w < from.width; w += kAmxPanel, ++panel) {
      char* const to = packed + (panel * blocks + k) * kBlock;
      __m512i bits = _mm512_setzero_si512();
      for (int64_t t = 0; t < 2; ++t) {
        const int64_t first = w + t * kTile;
        const int64_t width = std::clamp<int64_t>(from.width - first, 0, kTile);
        const auto* at =
            width == 0 ? data : data + first * from.width_stride + s * from.step_stride;
        pack_block<Source, kParts>(at, from, width, width == 0 ? 0 : steps, side,
                                   to + t * kTileBytes, bits);
      }
      largest[panel] = std::max(largest[panel], _mm512_reduce_max_epu32(bits));
    }
  }
}

// ---- products: tiles 0 to 3 hold sums, 4 and 5 hold a, 6 and 7 hold b

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// Adds the products of one step's parts to kRows x kCols tiles of sums.
template <int kRows, int kCols>
struct Step {
  const char* a;
  const char* b;
  HWY_INLINE void load_a(int part) const {
    _tile_loadd(4, a + 2 * part * kTileBytes, 64);
    if constexpr (kRows == 2) _tile_loadd(5, a + (2 * part + 1) * kTileBytes, 64);
  }
  HWY_INLINE void load_b(int part) const {
    _tile_loadd(6, b + 2 * part * kTileBytes, 64);
    if constexpr (kCols == 2) _tile_loadd(7, b + (2 * part + 1) * kTileBytes, 64);
  }
  HWY_INLINE void multiply() const {
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (kCols == 2) _tile_dpbf16ps(1, 4, 7);
    if constexpr (kRows == 2) _tile_dpbf16ps(2, 5, 6);
    if constexpr (kRows == 2 && kCols == 2) _tile_dpbf16ps(3, 5, 7);
  }
  // The products of parts i of a and j of b that affect the last bit of the result, in the order
  // with the fewest tile loads.
  template <AmxNumber kNumber>
  HWY_INLINE void run() const {
    constexpr int kParts = parts_of(kNumber);
    load_a(0);
    for (int j = kParts; j-- > 0;) load_b(j), multiply();
    if constexpr (kParts >= 2) load_a(1), multiply();
    if constexpr (kNumber == AmxNumber::f16 || kNumber == AmxNumber::f32) load_b(1), multiply();
    if constexpr (kParts == 3) load_a(2), load_b(0), multiply();
  }
};

template <AmxNumber kNumber, int kRows, int kCols>
HWY_INLINE void tiles(const char* a, const char* b, int64_t blocks, float* c, int64_t ldc,
                      bool add) {
  char* const to = reinterpret_cast<char*>(c);
  const int64_t stride = ldc * 4;
  if (add) {
    _tile_loadd(0, to, stride);
    if constexpr (kCols == 2) _tile_loadd(1, to + 64, stride);
    if constexpr (kRows == 2) _tile_loadd(2, to + kTile * stride, stride);
    if constexpr (kRows == 2 && kCols == 2) _tile_loadd(3, to + kTile * stride + 64, stride);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  constexpr int64_t kStep = 2 * parts_of(kNumber) * kTileBytes;
  for (int64_t k = 0; k < blocks; ++k, a += kStep, b += kStep)
    Step<kRows, kCols>{a, b}.template run<kNumber>();
  _tile_stored(0, to, stride);
  if constexpr (kCols == 2) _tile_stored(1, to + 64, stride);
  if constexpr (kRows == 2) _tile_stored(2, to + kTile * stride, stride);
  if constexpr (kRows == 2 && kCols == 2) _tile_stored(3, to + kTile * stride + 64, stride);
}

// rows, cols <= kAmxPanel. A block that does not fill its tiles goes through a temporary block.
template <AmxNumber kNumber>
HWY_INLINE void panel_product(const char* a, const char* b, int64_t blocks, int64_t rows,
                              int64_t cols, float* c, int64_t ldc, bool add) {
  const bool whole = rows % kTile == 0 && cols % kTile == 0;
  alignas(64) float block[kAmxPanel * kAmxPanel];
  float* const to = whole ? c : block;
  const int64_t ld = whole ? ldc : kAmxPanel;
  const bool onto = whole && add;
  if (rows > kTile) {
    cols > kTile ? tiles<kNumber, 2, 2>(a, b, blocks, to, ld, onto)
                 : tiles<kNumber, 2, 1>(a, b, blocks, to, ld, onto);
  } else {
    cols > kTile ? tiles<kNumber, 1, 2>(a, b, blocks, to, ld, onto)
                 : tiles<kNumber, 1, 1>(a, b, blocks, to, ld, onto);
  }
  if (whole) return;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j)
      c[i * ldc + j] = (add ? c[i * ldc + j] : 0.0f) + block[i * kAmxPanel + j];
}

template <AmxNumber kNumber>
void product(const AmxProduct& p) {
  const int64_t blocks = (p.steps + kAmxSteps - 1) / kAmxSteps;
  const int64_t panel = blocks * 2 * parts_of(kNumber) * kTileBytes;
  const char* a = static_cast<const char*>(p.a);
  for (int64_t i = 0; i < p.m; i += kAmxPanel, a += panel) {
    const char* b = static_cast<const char*>(p.b);
    for (int64_t j = 0; j < p.n; j += kAmxPanel, b += panel)
      panel_product<kNumber>(a, b, blocks, std::min(kAmxPanel, p.m - i),
                             std::min(kAmxPanel, p.n - j), p.c + i * p.ldc + j, p.ldc, p.add);
  }
}

}  // namespace

void amx_pack(const AmxSource& from, AmxNumber number, AmxSide side, void* packed, uint32_t* bits) {
  char* const to = static_cast<char*>(packed);
  switch (number) {
    case AmxNumber::none:
      return;
    case AmxNumber::bf16:
      return pack<Bf16Source, 1>(from, side, to, bits);
    case AmxNumber::f16:
      return pack<F16Source, 2>(from, side, to, bits);
    case AmxNumber::tf32:
      return pack<F32Source, 2>(from, side, to, bits);
    case AmxNumber::f32:
      return pack<F32Source, 3>(from, side, to, bits);
  }
}

void amx_product(const AmxProduct& p) {
  if (use() == Use::dots) return dot_product(p);
  const TileConfig config;
  asm volatile("" ::: "memory");  // tile loads do not tell the compiler which memory they read
  _tile_loadconfig(&config);
  switch (p.number) {
    case AmxNumber::none:
      break;
    case AmxNumber::bf16:
      product<AmxNumber::bf16>(p);
      break;
    case AmxNumber::f16:
      product<AmxNumber::f16>(p);
      break;
    case AmxNumber::tf32:
      product<AmxNumber::tf32>(p);
      break;
    case AmxNumber::f32:
      product<AmxNumber::f32>(p);
      break;
  }
  _tile_release();
}
HWY_POP_ATTRIBUTES

}  // namespace tenon::cpu

#else  // No AMX: amx_number returns none; the other functions must not be called.

namespace tenon::cpu {
AmxNumber amx_number(tenon_dtype, bool) { return AmxNumber::none; }
int amx_parts(AmxNumber) { HWY_ABORT("amx_parts: this processor has no tile unit"); }
int amx_gain(AmxNumber) { HWY_ABORT("amx_gain: this processor has no tile unit"); }
bool amx_ordinary(uint32_t) { HWY_ABORT("amx_ordinary: this processor has no tile unit"); }
void amx_pack(const AmxSource&, AmxNumber, AmxSide, void*, uint32_t*) {
  HWY_ABORT("amx_pack: this processor has no tile unit");
}
void amx_product(const AmxProduct&) { HWY_ABORT("amx_product: this processor has no tile unit"); }
}  // namespace tenon::cpu

#endif
