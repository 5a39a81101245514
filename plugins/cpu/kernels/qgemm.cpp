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

#include "bytes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

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

template <class D, class V>
HWY_INLINE void store_quads(D d, V flips, V a, V b, V c, V e, uint32_t* to) {
  hn::StoreInterleaved4(hn::Xor(a, flips), hn::Xor(b, flips), hn::Xor(c, flips), hn::Xor(e, flips),
                        d, reinterpret_cast<uint8_t*>(to));
}

void Interleave(const uint8_t* const rows[4], uint8_t flip, int64_t count, uint32_t* to) {
  const hn::ScalableTag<uint8_t> d;
  const hn::CappedTag<uint8_t, 16> d16;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)),
                few = static_cast<int64_t>(hn::Lanes(d16));
  const uint8_t *const a = rows[0], *const b = rows[1], *const c = rows[2], *const e = rows[3];
  const auto part = [&](auto tag, int64_t j) HWY_ATTR {
    store_quads(tag, hn::Set(tag, flip), hn::LoadU(tag, a + j), hn::LoadU(tag, b + j),
                hn::LoadU(tag, c + j), hn::LoadU(tag, e + j), to + j);
  };
  int64_t j = 0;
  for (; j + lanes <= count; j += lanes) part(d, j);
  for (; j + few <= count; j += few) part(d16, j);
  if (j == count) return;
  if (count >= few) return part(d16, count - few);  // with some that are there already
#if HWY_TARGET <= HWY_AVX3                          // masked loads touch no memory behind the rows
  const auto first = hn::FirstN(d16, static_cast<size_t>(count));
  store_quads(d16, hn::Set(d16, flip), hn::MaskedLoad(first, d16, a), hn::MaskedLoad(first, d16, b),
              hn::MaskedLoad(first, d16, c), hn::MaskedLoad(first, d16, e), to);
#else
  auto* const bytes = reinterpret_cast<uint8_t*>(to);
  for (; j < count; ++j) {
    bytes[4 * j] = static_cast<uint8_t>(a[j] ^ flip), bytes[4 * j + 1] = b[j] ^ flip;
    bytes[4 * j + 2] = static_cast<uint8_t>(c[j] ^ flip), bytes[4 * j + 3] = e[j] ^ flip;
  }
#endif
}

void CloseRows(int32_t* sums, int64_t rows, int64_t width, int64_t pitch) {
  const hn::ScalableTag<int32_t> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t r = 1; r < rows; ++r) {
    const int32_t* const from = sums + r * pitch;
    int32_t* const to = sums + r * width;
    if (width < lanes) {
      for (int64_t j = 0; j < width; ++j) to[j] = from[j];
      continue;
    }
    const auto last = hn::LoadU(d, from + width - lanes);  // before it is written over
    for (int64_t j = 0; j + lanes <= width; j += lanes)
      hn::StoreU(hn::LoadU(d, from + j), d, to + j);
    hn::StoreU(last, d, to + width - lanes);
  }
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
        zero(hn::Set(D(), r.zero - kRoundingBits)),
        low(hn::Set(D(), r.low)),
        by(hn::Set(DF(), r.multiplier)),
        least(hn::Set(DF(), static_cast<float>(r.low - r.zero))),
        most(hn::Set(DF(), static_cast<float>(r.high - r.zero))),
        adds(r.adds != nullptr),
        factors(r.factor != 0),
        multipliers(r.multipliers != nullptr) {}
};

// The operands of a row.
template <class Sum>
struct RowParts {
  const Sum* sums;
  const int32_t *adds, *factors;
  const float* multipliers;
};

template <class D, class Sum>
HWY_INLINE hn::Vec<D> whole_sums(D d, const RowVectors<D>& v, const RowParts<Sum>& p, int64_t j) {
  hn::Vec<D> s;
  if constexpr (std::is_same_v<Sum, float>)
    s = hn::ConvertTo(d, hn::LoadU(hn::RebindToFloat<D>(), p.sums + j));
  else
    s = hn::LoadU(d, p.sums + j);
  s = hn::Add(s, v.add);
  if (v.adds) s = hn::Add(s, hn::LoadU(d, p.adds + j));
  if (v.factors) s = hn::Add(s, hn::Mul(v.factor, hn::LoadU(d, p.factors + j)));
  return s;
}

// One vector of results before they become bytes. The bounds are whole numbers: rounding behind them is
// the same.
template <class D, class Sum>
HWY_INLINE hn::Vec<D> levels(D d, const RowVectors<D>& v, const RowParts<Sum>& p, int64_t j) {
  const hn::RebindToFloat<D> df;
  const auto by = v.multipliers ? hn::LoadU(df, p.multipliers + j) : v.by;
  const auto x = hn::Mul(hn::ConvertTo(df, whole_sums(d, v, p, j)), by);
  const auto number = hn::RebindMask(d, hn::Eq(x, x));
  const auto shifted = hn::Add(hn::Min(hn::Max(x, v.least), v.most), hn::Set(df, kRoundingFloat));
  return hn::IfThenElseZero(number, hn::Add(hn::BitCast(d, shifted), v.zero));
}

template <class Sum, class Y>
void row_of(const QRow& r) {
  const hn::ScalableTag<int32_t> d;
  constexpr size_t kMost = hn::MaxLanes(d);
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), count = r.count;
  const RowVectors<hn::ScalableTag<int32_t>> v(r);
  const RowParts<Sum> p{static_cast<const Sum*>(r.sums), r.adds, r.factors, r.multipliers};
  auto* const to = static_cast<Y*>(r.to);
  const auto one = [&](const RowParts<Sum>& from, int64_t j, Y* y) HWY_ATTR {
    if constexpr (std::is_same_v<Y, int32_t>) {
      hn::StoreU(hn::Max(whole_sums(d, v, from, j), v.low), d, y);
    } else {
      const hn::Rebind<Y, hn::ScalableTag<int32_t>> dy;
      hn::StoreU(hn::DemoteTo(dy, levels(d, v, from, j)), dy, y);
    }
  };
  int64_t j = 0;
  if constexpr (!std::is_same_v<Y, int32_t>)
    for (; j + 4 * lanes <= count; j += 4 * lanes)
      store_bytes(d, levels(d, v, p, j), levels(d, v, p, j + lanes), levels(d, v, p, j + 2 * lanes),
                  levels(d, v, p, j + 3 * lanes), to + j);
  for (; j + lanes <= count; j += lanes) one(p, j, to + j);
  if (j == count) return;
  const auto rest = static_cast<size_t>(count - j);
  const auto copy = [&](const auto* list, auto* tail) {
    if (list != nullptr) std::memcpy(tail, list + j, rest * sizeof *tail);
  };
  Sum sums[kMost] = {};
  int32_t adds[kMost] = {}, factors[kMost] = {};
  float multipliers[kMost] = {};
  Y y[kMost];
  copy(p.sums, sums), copy(p.adds, adds), copy(p.factors, factors);
  copy(p.multipliers, multipliers);
  one({sums, adds, factors, multipliers}, 0, y);
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
HWY_EXPORT(CloseRows);
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

void q_close_rows(int32_t* sums, int64_t rows, int64_t width, int64_t pitch) {
  HWY_DYNAMIC_DISPATCH(CloseRows)(sums, rows, width, pitch);
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
