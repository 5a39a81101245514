// SPDX-License-Identifier: Apache-2.0
// The parts of integer products that every instruction set has: 16-bit multiply-adds, interleaving,
// and what follows the sums. Also chooses the unit.
#include "qgemm.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <type_traits>

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

template <class D>
HWY_INLINE void interleave_part(D d, const uint8_t* const rows[4], uint8_t flip, int64_t j,
                                uint32_t* to) {
  const auto flips = hn::Set(d, flip);
  hn::StoreInterleaved4(
      hn::Xor(hn::LoadU(d, rows[0] + j), flips), hn::Xor(hn::LoadU(d, rows[1] + j), flips),
      hn::Xor(hn::LoadU(d, rows[2] + j), flips), hn::Xor(hn::LoadU(d, rows[3] + j), flips), d,
      reinterpret_cast<uint8_t*>(to + j));
}

void Interleave(const uint8_t* const rows[4], uint8_t flip, int64_t count, uint32_t* to) {
  const hn::ScalableTag<uint8_t> d;
  const hn::CappedTag<uint8_t, 16> short_d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)),
                few = static_cast<int64_t>(hn::Lanes(short_d));
  int64_t j = 0;
  for (; j + lanes <= count; j += lanes) interleave_part(d, rows, flip, j, to);
  for (; j + few <= count; j += few) interleave_part(short_d, rows, flip, j, to);
  if (j < count && count >= few) {  // the last ones, with some that are there already
    interleave_part(short_d, rows, flip, count - few, to);
    return;
  }
  auto* const bytes = reinterpret_cast<uint8_t*>(to);
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

// What a row is computed with, in registers: stores of bytes could change what is read from memory.
template <class D>
struct RowVectors {
  using DF = hn::RebindToFloat<D>;
  hn::Vec<D> add, factor, zero, low;
  hn::Vec<DF> by, least, most;
  bool adds, factors, multipliers;

  explicit RowVectors(const QRow& r)
      : add(hn::Set(D(), r.add)),
        factor(hn::Set(D(), r.factor)),
        zero(hn::Set(D(), r.zero)),
        low(hn::Set(D(), r.low)),
        by(hn::Set(DF(), r.multiplier)),
        least(hn::Set(DF(), static_cast<float>(r.low - r.zero))),
        most(hn::Set(DF(), static_cast<float>(r.high - r.zero))),
        adds(r.adds != nullptr),
        factors(r.factor != 0),
        multipliers(r.multipliers != nullptr) {}
};

// One vector. Sum: float or int32_t; Y: int8_t, uint8_t, or int32_t without a multiplier.
template <class D, class Sum, class Y>
HWY_INLINE void row_part(D d, const RowVectors<D>& v, const Sum* sums, const int32_t* adds,
                         const int32_t* factors, const float* multipliers, Y* to) {
  const hn::RebindToFloat<D> df;
  hn::Vec<D> s;
  if constexpr (std::is_same_v<Sum, float>)
    s = hn::ConvertTo(d, hn::LoadU(df, sums));
  else
    s = hn::LoadU(d, sums);
  s = hn::Add(s, v.add);
  if (v.adds) s = hn::Add(s, hn::LoadU(d, adds));
  if (v.factors) s = hn::Add(s, hn::Mul(v.factor, hn::LoadU(d, factors)));
  if constexpr (std::is_same_v<Y, int32_t>) {
    hn::StoreU(hn::Max(s, v.low), d, to);
  } else {
    const hn::Rebind<Y, D> dy;
    const auto x = hn::Mul(hn::ConvertTo(df, s), v.multipliers ? hn::LoadU(df, multipliers) : v.by);
    const auto number = hn::RebindMask(d, hn::Eq(x, x));
    // The bounds are whole numbers: rounding behind them is the same.
    const auto level = hn::NearestInt(hn::Min(hn::Max(x, v.least), v.most));
    hn::StoreU(hn::DemoteTo(dy, hn::IfThenElseZero(number, hn::Add(level, v.zero))), dy, to);
  }
}

template <class Sum, class Y>
void row_of(const QRow& r) {
  const hn::ScalableTag<int32_t> d;
  constexpr size_t kMost = hn::MaxLanes(d);
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), count = r.count;
  const RowVectors<hn::ScalableTag<int32_t>> v(r);
  const auto* const sums = static_cast<const Sum*>(r.sums);
  auto* const to = static_cast<Y*>(r.to);
  const int32_t *const adds = r.adds, *const factors = r.factors;
  const float* const multipliers = r.multipliers;
  const auto at = [](const auto* list, int64_t j) { return list == nullptr ? list : list + j; };
  int64_t j = 0;
  for (; j + lanes <= count; j += lanes)
    row_part(d, v, sums + j, at(adds, j), at(factors, j), at(multipliers, j), to + j);
  if (j == count) return;
  const auto rest = static_cast<size_t>(count - j);
  const auto copy = [&](const auto* list, auto* tail) {
    if (list != nullptr) std::memcpy(tail, list + j, rest * sizeof *tail);
  };
  Sum sum_tail[kMost] = {};
  int32_t add_tail[kMost] = {}, factor_tail[kMost] = {};
  float multiplier_tail[kMost] = {};
  Y y[kMost];
  copy(sums, sum_tail), copy(adds, add_tail), copy(factors, factor_tail);
  copy(multipliers, multiplier_tail);
  row_part(d, v, sum_tail, add_tail, factor_tail, multiplier_tail, y);
  std::memcpy(to + j, y, rest * sizeof(Y));
}

template <class Sum>
void row_from(const QRow& r) {
  if (!r.scaled)
    row_of<Sum, int32_t>(r);
  else if (r.y == TENON_DTYPE_I8)
    row_of<Sum, int8_t>(r);
  else
    row_of<Sum, uint8_t>(r);
}

void Row(const QRow& r) { r.floats ? row_from<float>(r) : row_from<int32_t>(r); }

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
