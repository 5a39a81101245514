// SPDX-License-Identifier: Apache-2.0
// The parts of integer products that every instruction set has: 16-bit multiply-adds, interleaving,
// and what follows the sums. Also chooses the unit.
#include "qgemm.hpp"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "isa.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/qgemm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// A register file of 32 vectors holds more rows.
constexpr int kMaddRows = HWY_TARGET <= HWY_AVX3 ? 8 : 4;

QPanels MaddPanels() {
  return {kMaddRows, 2 * static_cast<int64_t>(hn::Lanes(hn::ScalableTag<int32_t>()))};
}

// Bytes 0 and 2, and bytes 1 and 3, of each quad, in 16 bits.
template <bool kSigned, class D, class V>
HWY_INLINE void split(D d16, V quads, V& even, V& odd) {
  if constexpr (kSigned) {
    even = hn::ShiftRight<8>(hn::ShiftLeft<8>(quads));
    odd = hn::ShiftRight<8>(quads);
  } else {
    const hn::RebindToUnsigned<D> du;
    const auto bits = hn::BitCast(du, quads);
    even = hn::BitCast(d16, hn::And(bits, hn::Set(du, uint16_t{0xFF})));
    odd = hn::BitCast(d16, hn::ShiftRight<8>(bits));
  }
}

// sum[j] += the four products of quads row[j] and column[j], in two halves.
template <class D, class V, class V16>
HWY_INLINE void multiply(D d, V& sum, V16 row, V16 column) {
#if HWY_ARCH_X86
  V none = hn::Zero(d);  // stays zero: neighbours are added
  sum = hn::ReorderWidenMulAccumulate(d, row, column, sum, none);
#else
  const auto low = [&](V16 x) HWY_ATTR {
    return hn::ShiftRight<16>(hn::ShiftLeft<16>(hn::BitCast(d, x)));
  };
  const auto high = [&](V16 x) HWY_ATTR { return hn::ShiftRight<16>(hn::BitCast(d, x)); };
  sum = hn::Add(sum, hn::Add(hn::Mul(low(row), low(column)), hn::Mul(high(row), high(column))));
#endif
}

template <int kRows, int kVectors, bool kLeftSigned>
HWY_NOINLINE void madd_tile(const QTiles& p, const uint32_t* b, int32_t* c) {
  const hn::ScalableTag<int32_t> d;
  const hn::Repartition<int16_t, decltype(d)> d16;
  using V = hn::Vec<decltype(d)>;
  using V16 = hn::Vec<decltype(d16)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  V sum[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::Zero(d);
  const int32_t* a = static_cast<const int32_t*>(p.a);
  for (int64_t k = 0; k < p.quads; ++k, a += kMaddRows) {
    const auto* const at = reinterpret_cast<const int32_t*>(b + p.offsets[k]);
    V16 even[kVectors], odd[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v)
      split<!kLeftSigned>(d16, hn::BitCast(d16, hn::LoadU(d, at + v * lanes)), even[v], odd[v]);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      V16 row_even, row_odd;
      split<kLeftSigned>(d16, hn::BitCast(d16, hn::Set(d, a[r])), row_even, row_odd);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) {
        multiply(d, sum[r][v], row_even, even[v]);
        multiply(d, sum[r][v], row_odd, odd[v]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    if (r >= p.rows) break;
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sum[r][v], d, c + r * p.ld + v * lanes);
  }
}

template <bool kLeftSigned>
void madd_tiles(const QTiles& p) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<int32_t>()));
  const auto* b = static_cast<const uint32_t*>(p.b);
  for (int64_t j = 0; j < p.cols; j += 2 * lanes, b += p.b_panel) {
    const bool two = j + lanes < p.cols;
    if (p.rows == 1) {
      two ? madd_tile<1, 2, kLeftSigned>(p, b, p.sums + j)
          : madd_tile<1, 1, kLeftSigned>(p, b, p.sums + j);
    } else {
      two ? madd_tile<kMaddRows, 2, kLeftSigned>(p, b, p.sums + j)
          : madd_tile<kMaddRows, 1, kLeftSigned>(p, b, p.sums + j);
    }
  }
}

void MaddTiles(const QTiles& p) { p.left_signed ? madd_tiles<true>(p) : madd_tiles<false>(p); }

void Interleave(const uint8_t* const rows[4], uint8_t flip, int64_t count, uint32_t* to) {
  const hn::ScalableTag<uint8_t> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto flips = hn::Set(d, flip);
  auto* const bytes = reinterpret_cast<uint8_t*>(to);
  int64_t j = 0;
  for (; j + lanes <= count; j += lanes)
    hn::StoreInterleaved4(hn::Xor(hn::LoadU(d, rows[0] + j), flips),
                          hn::Xor(hn::LoadU(d, rows[1] + j), flips),
                          hn::Xor(hn::LoadU(d, rows[2] + j), flips),
                          hn::Xor(hn::LoadU(d, rows[3] + j), flips), d, bytes + 4 * j);
  for (; j < count; ++j)
    for (int r = 0; r < 4; ++r) bytes[4 * j + r] = static_cast<uint8_t>(rows[r][j] ^ flip);
}

void Center(const uint8_t* x, tenon_dtype dtype, int32_t zero, int64_t count, float* to) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto offset = hn::Set(di, zero);
  int64_t j = 0;
  if (dtype == TENON_DTYPE_U8) {
    const hn::Rebind<uint8_t, decltype(d)> d8;
    for (; j + lanes <= count; j += lanes)
      hn::StoreU(hn::ConvertTo(d, hn::Sub(hn::PromoteTo(di, hn::LoadU(d8, x + j)), offset)), d,
                 to + j);
    for (; j < count; ++j) to[j] = static_cast<float>(int32_t{x[j]} - zero);
    return;
  }
  const auto* const s = reinterpret_cast<const int8_t*>(x);
  const hn::Rebind<int8_t, decltype(d)> d8;
  for (; j + lanes <= count; j += lanes)
    hn::StoreU(hn::ConvertTo(d, hn::Sub(hn::PromoteTo(di, hn::LoadU(d8, s + j)), offset)), d,
               to + j);
  for (; j < count; ++j) to[j] = static_cast<float>(int32_t{s[j]} - zero);
}

// One vector of a row; D: of int32.
template <class D>
HWY_INLINE void row_part(D d, const QRow& r, int64_t j) {
  const hn::RebindToFloat<D> df;
  auto s = r.floats ? hn::ConvertTo(d, hn::LoadU(df, static_cast<const float*>(r.sums) + j))
                    : hn::LoadU(d, static_cast<const int32_t*>(r.sums) + j);
  s = hn::Add(s, hn::Set(d, r.add));
  if (r.adds != nullptr) s = hn::Add(s, hn::LoadU(d, r.adds + j));
  if (r.factor != 0) s = hn::Add(s, hn::Mul(hn::Set(d, r.factor), hn::LoadU(d, r.factors + j)));
  if (!r.scaled) {
    hn::StoreU(hn::Max(s, hn::Set(d, r.low)), d, static_cast<int32_t*>(r.to) + j);
    return;
  }
  const auto by =
      r.multipliers != nullptr ? hn::LoadU(df, r.multipliers + j) : hn::Set(df, r.multiplier);
  auto x = hn::Round(hn::Mul(hn::ConvertTo(df, s), by));
  const auto number = hn::RebindMask(d, hn::Eq(x, x));
  x = hn::Max(x, hn::Set(df, static_cast<float>(r.low - r.zero)));
  x = hn::Min(x, hn::Set(df, static_cast<float>(r.high - r.zero)));
  const auto y = hn::IfThenElseZero(number, hn::Add(hn::ConvertTo(d, x), hn::Set(d, r.zero)));
  if (r.y == TENON_DTYPE_I8) {
    const hn::Rebind<int8_t, D> d8;
    hn::StoreU(hn::DemoteTo(d8, y), d8, static_cast<int8_t*>(r.to) + j);
  } else {
    const hn::Rebind<uint8_t, D> d8;
    hn::StoreU(hn::DemoteTo(d8, y), d8, static_cast<uint8_t*>(r.to) + j);
  }
}

void Row(const QRow& r) {
  const hn::ScalableTag<int32_t> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t j = 0;
  for (; j + lanes <= r.count; j += lanes) row_part(d, r, j);
  for (; j < r.count; ++j) row_part(hn::CappedTag<int32_t, 1>(), r, j);
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {

HWY_EXPORT(MaddPanels);
HWY_EXPORT(MaddTiles);
HWY_EXPORT(Interleave);
HWY_EXPORT(Center);
HWY_EXPORT(Row);

bool q_has(QUnit unit) { return q_processor_has(unit); }

QUnit q_unit() {
  static const QUnit unit = [] {
    const char* const text = secure_getenv("TENON_CPU_AMX");  // null in a privileged process
    if (text != nullptr && std::string_view(text) == "none") return QUnit::madd;
    if (isa_cap() >= Isa::avx512 && q_has(QUnit::vnni512)) return QUnit::vnni512;
    return isa_cap() >= Isa::avx2 && q_has(QUnit::vnni256) ? QUnit::vnni256 : QUnit::madd;
  }();
  return unit;
}

QPanels q_panels(QUnit unit) {
  switch (unit) {
    case QUnit::vnni512:
      return {14, 32};
    case QUnit::vnni256:
      return {6, 16};
    case QUnit::madd:
      break;
  }
  return HWY_DYNAMIC_DISPATCH(MaddPanels)();
}

void q_tiles(const QTiles& tiles) {
  switch (tiles.unit) {
    case QUnit::vnni512:
      return q_tiles_vnni512(tiles);
    case QUnit::vnni256:
      return q_tiles_vnni256(tiles);
    case QUnit::madd:
      return HWY_DYNAMIC_DISPATCH(MaddTiles)(tiles);
  }
}

void q_interleave(const uint8_t* const rows[4], uint8_t flip, int64_t count, uint32_t* to) {
  HWY_DYNAMIC_DISPATCH(Interleave)(rows, flip, count, to);
}

void q_center(const uint8_t* x, tenon_dtype dtype, int32_t zero, int64_t count, float* to) {
  HWY_DYNAMIC_DISPATCH(Center)(x, dtype, zero, count, to);
}

void q_row(const QRow& row) { HWY_DYNAMIC_DISPATCH(Row)(row); }

}  // namespace tenon::cpu
#endif
