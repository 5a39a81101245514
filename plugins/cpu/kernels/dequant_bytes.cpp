// SPDX-License-Identifier: Apache-2.0
// Rows of x as bytes, and panels of products of bytes with blocks: w is unpacked, then kernels
// (dequant_bytes.hpp) multiply.
#include "dequant_bytes.hpp"

#include <algorithm>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/dequant_bytes.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "dequant_unpack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

using Lanes16 = hn::CappedTag<float, 16>;

void ToBytes(const float* x, int64_t k, int64_t row, const ByteRows& to) {
  const Lanes16 d;
  const hn::RebindToSigned<Lanes16> di;
  const hn::Rebind<int16_t, Lanes16> d16;
  const hn::Rebind<int8_t, Lanes16> d8;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int8_t* const level = to.level + row * to.k;
  const int64_t first = row * to.k / to.group;
  for (int64_t at = 0; at < k; at += 32) {
    auto most = hn::Zero(d), sum = hn::Zero(d);
    for (int64_t l = 0; l < 32; l += lanes) {
      const auto v = hn::LoadU(d, x + at + l);
      most = hn::Max(most, hn::Abs(v));
      sum = hn::Add(sum, hn::Mul(v, hn::Zero(d)));  // Max may drop a NaN, this does not
    }
    const float largest = hn::GetLane(hn::MaxOfLanes(d, most));
    const float bad = hn::GetLane(hn::SumOfLanes(d, sum));  // 0, or NaN
    const bool fine = bad == 0 && largest >= 1e-35f;
    const float scale = bad == 0 ? (fine ? largest / 127.0f : 0.0f) : bad;
    const auto inverse = hn::Set(d, fine ? 127.0f / largest : 0.0f);
    int32_t levels[2];  // the sums of both halves
    for (int64_t half = 0; half < 2; ++half) {
      auto total = hn::Zero(di);
      for (int64_t l = 0; l < 16; l += lanes) {
        const int64_t i = at + 16 * half + l;
        auto number = hn::Zero(di);
        if (fine) number = hn::NearestInt(hn::Mul(hn::LoadU(d, x + i), inverse));
        hn::StoreU(hn::DemoteTo(d8, hn::DemoteTo(d16, number)), d8, level + i);
        total = hn::Add(total, number);
      }
      levels[half] = hn::GetLane(hn::SumOfLanes(di, total));
    }
    const auto put = [&](int64_t g, int32_t total) {
      to.scale[g] = scale;
      to.sum[g] = scale * static_cast<float>(total);
      to.shift[g] = -to.lift * total;
    };
    if (to.group == 32) {
      put(first + at / 32, levels[0] + levels[1]);
    } else {
      put(first + at / 16, levels[0]);
      put(first + at / 16 + 1, levels[1]);
    }
  }
  std::fill(level + k, level + to.k, int8_t{0});
  for (int64_t g = k / to.group; g < to.k / to.group; ++g)
    to.scale[first + g] = to.sum[first + g] = 0, to.shift[first + g] = 0;
}

// ---- any processor

// The sums of kGroup products each, of four groups together.
template <int kGroup>
HWY_INLINE void group_sums(const int8_t* x, const int8_t* levels, int32_t* to) {
  const hn::FixedTag<int16_t, 8> d16;
  const hn::FixedTag<int8_t, 8> d8;
  const hn::FixedTag<uint8_t, 8> du8;
  const hn::FixedTag<int32_t, 4> d;
  const hn::FixedTag<int64_t, 2> d64;
  for (int64_t g = 0; g < kUnpacked / kGroup; g += 4) {
    hn::Vec<decltype(d)> sums[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      auto sum = hn::Zero(d), other = hn::Zero(d);
#pragma GCC unroll 4
      for (int64_t l = kGroup * (g + i); l < kGroup * (g + i + 1); l += 8) {
        const auto a = hn::PromoteTo(d16, hn::LoadU(d8, x + l));
        const auto b =
            hn::PromoteTo(d16, hn::LoadU(du8, reinterpret_cast<const uint8_t*>(levels) + l));
        sum = hn::ReorderWidenMulAccumulate(d, a, b, sum, other);
      }
      sums[i] = hn::Add(sum, other);
    }
    // Of each two groups, the sums of lanes 0 and 2, then of 1 and 3.
    const auto two = [&](int i) HWY_ATTR {
      return hn::BitCast(d64, hn::Add(hn::InterleaveLower(d, sums[i], sums[i + 1]),
                                      hn::InterleaveUpper(d, sums[i], sums[i + 1])));
    };
    const auto ab = two(0), cd = two(2);
    hn::StoreU(hn::Add(hn::BitCast(d, hn::InterleaveLower(d64, ab, cd)),
                       hn::BitCast(d, hn::InterleaveUpper(d64, ab, cd))),
               d, to + g);
  }
}

template <int kGroup, bool kAdds>
void Dots(const ByteDots& t) {
  constexpr int64_t kStep = kGroup / 16, kGroups = kUnpacked / kGroup;
  const hn::CappedTag<float, kGroups> d;
  const hn::RebindToSigned<decltype(d)> di;
  for (int64_t part = 0; part < t.parts; ++part) {
    const Unpacked& w = t.w[part];
    int32_t sums[kGroups];
    float scale[kGroups], add[kGroups];
    group_sums<kGroup>(t.x.level + part * kUnpacked, w.level, sums);
    for (int64_t g = 0; g < kGroups; ++g)
      scale[g] = w.scale[g * kStep], add[g] = kAdds ? w.add[g * kStep] : 0;
    for (int64_t g = 0; g < kGroups; g += static_cast<int64_t>(hn::Lanes(d))) {
      const int64_t at = part * kGroups + g;
      const auto sum = hn::Add(hn::LoadU(di, sums + g), hn::LoadU(di, t.x.shift + at));
      auto term = hn::Mul(hn::ConvertTo(d, sum),
                          hn::Mul(hn::LoadU(d, scale + g), hn::LoadU(d, t.x.scale + at)));
      if (kAdds) term = hn::MulAdd(hn::LoadU(d, add + g), hn::LoadU(d, t.x.sum + at), term);
      hn::StoreU(term, d, t.to + at);
    }
  }
}

void Close(const ByteTerms& t) {
  for (int64_t n = 0; n < kDotRows; n += 4) {
    const float* const terms = t.terms + n * kDotPitch;
    float* const to = t.sums + n;
    float sums[4] = {to[0], to[1], to[2], to[3]};
    for (int64_t g = 0; g < t.groups; ++g)
      for (int i = 0; i < 4; ++i) sums[i] += terms[i * kDotPitch + g];
    std::copy_n(sums, 4, to);
  }
}

// ---- panels

// What a panel computes with.
struct ByteArea {
  float sums[kBlockRows][kBlockPanel];
  union {
    struct {
      Unpacked w[kDotRows];
      PackedPanel packed;
    } tiles;
    struct {
      Unpacked w[kDotRows];  // parts of a row, or a part of each row
      float terms[kDotRows * kDotPitch];
    } dots;
  };
};

struct Rows {
  const BlockProduct& p;
  int64_t first;
  int64_t at(int64_t i) const { return p.order ? p.order[first + i] : first + i; }
  // kUnpacked elements, or more, from k on.
  ByteSlice operator()(int64_t i, int64_t k) const {
    const ByteRows& b = p.bytes;
    const int64_t at = this->at(i) * b.k + k;
    return {b.level + at, b.scale + at / b.group, b.sum + at / b.group, b.shift + at / b.group};
  }
};

// Elements [k, k + count) of row j of w.
template <tenon_dtype kFormat>
HWY_INLINE void unpack_row(const BlockProduct& p, int64_t j, int64_t k, int64_t count,
                           Unpacked* to) {
  const auto* const row = p.w + j * static_cast<int64_t>(tenon_dense_bytes(kFormat, p.k));
  unpack_row_as<kFormat, -level_lift(kFormat)>(row, k, count, to);
}
HWY_INLINE void no_scales(Unpacked& w) {
  std::fill(std::begin(w.scale), std::end(w.scale), 0.0f);
  std::fill(std::begin(w.add), std::end(w.add), 0.0f);
}

// Row i of x: long pieces of each row of w, so that memory delivers them in order.
template <tenon_dtype kFormat>
HWY_INLINE void long_dots(const BlockProduct& p, const ByteKernels& kernels, int64_t j,
                          int64_t cols, const Rows& rows, int64_t i, ByteArea& area) {
  constexpr int64_t kParts = 8, kGroup = scale_group(kFormat);
  const auto step = static_cast<int64_t>(tenon_dense_bytes(kFormat, p.k));
  const RowKernels row = p.bytes.arranged ? row_kernels(kFormat) : RowKernels{};
  for (int64_t first = 0; first < p.k; first += kDotDepth) {
    const int64_t end = std::min(p.k, first + kDotDepth);
    if (row.row) {
      ByteSlice x = rows(i, first);
      x.level = p.bytes.arranged + rows.at(i) * arranged_depth(p.bytes.k) + first;
      const uint8_t* const w =
          p.w + j * step + static_cast<int64_t>(tenon_dense_bytes(kFormat, first));
      row.row({x, w, step, cols, end - first, area.dots.terms});
    } else {
      for (int64_t n = 0; n < cols; ++n)
        for (int64_t k = first; k < end; k += kParts * kUnpacked) {
          const int64_t some = std::min(kParts * kUnpacked, end - k);
          unpack_row<kFormat>(p, j + n, k, some, area.dots.w);
          kernels.dots({rows(i, k), area.dots.w, padded_depth(some) / kUnpacked,
                        area.dots.terms + n * kDotPitch + (k - first) / kGroup});
        }
    }
    kernels.close({area.dots.terms, padded_depth(end - first) / kGroup, area.sums[i]});
  }
}

// Many rows of x, on processors without tiles.
template <tenon_dtype kFormat>
HWY_INLINE void short_dots(const BlockProduct& p, const ByteKernels& kernels, int64_t j,
                           int64_t cols, const Rows& rows, int64_t count, ByteArea& area) {
  for (int64_t k = 0; k < p.k; k += kUnpacked) {
    const int64_t some = std::min(kUnpacked, p.k - k);
    for (int64_t n = 0; n < cols; ++n) unpack_row<kFormat>(p, j + n, k, some, area.dots.w + n);
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t n = 0; n < cols; ++n)
        kernels.dots({rows(i, k), area.dots.w + n, 1, area.dots.terms + n * kDotPitch});
      kernels.close({area.dots.terms, kUnpacked / scale_group(kFormat), area.sums[i]});
    }
  }
}

// Pieces of many rows are short. So the next piece of each is fetched early; beyond w, this has no
// effect.
template <tenon_dtype kFormat>
HWY_INLINE void fetch_next(const BlockProduct& p, int64_t j, int64_t k) {
  const uint64_t bytes = tenon_dense_bytes(kFormat, kUnpacked);
  const auto* const at = p.w + j * static_cast<int64_t>(tenon_dense_bytes(kFormat, p.k)) +
                         tenon_dense_bytes(kFormat, k + kUnpacked);
  for (uint64_t i = 0; i < bytes; i += 64) hwy::Prefetch(at + i);
}

template <tenon_dtype kFormat>
HWY_INLINE void tiles(const BlockProduct& p, const ByteKernels& kernels, int64_t j, int64_t cols,
                      const Rows& rows, int64_t count, ByteArea& area) {
  ByteSlice slices[kBlockRows];
  for (int64_t k = 0; k < p.k; k += kUnpacked) {
    const int64_t some = std::min(kUnpacked, p.k - k);
    for (int64_t first = 0; first < kBlockPanel; first += kDotRows) {
      for (int64_t n = 0; n < kDotRows; ++n)
        if (first + n < cols) {
          fetch_next<kFormat>(p, j + first + n, k);
          unpack_row<kFormat>(p, j + first + n, k, some, area.tiles.w + n);
        } else {
          no_scales(area.tiles.w[n]);
        }
      kernels.pack(area.tiles.w, first, area.tiles.packed);
    }
    for (int64_t i = 0; i < count; ++i) slices[i] = rows(i, k);
    kernels.tile({slices, count, &area.tiles.packed, area.sums[0]});
  }
}

void BytePanel(const BlockProduct& p, int64_t j, int64_t cols, void* memory, BlockSink sink) {
  auto& area = *static_cast<ByteArea*>(memory);
  with_format(p.dtype, [&](auto format) HWY_ATTR {
    constexpr tenon_dtype kFormat = format;
    if constexpr (has_integer_levels(kFormat)) {
      constexpr ByteKernels kGeneric{Dots<scale_group(kFormat), has_adds(kFormat)>, Close, nullptr,
                                     nullptr};
      const ByteKernels* const best = byte_kernels(kFormat);
      const ByteKernels& kernels = best ? *best : kGeneric;
      for (int64_t i = 0; i < p.m; i += kBlockRows) {
        const int64_t count = std::min(kBlockRows, p.m - i);
        const Rows rows{p, i};
        std::fill_n(area.sums[0], count * kBlockPanel, 0.0f);
        if (row_by_row(p)) {
          for (int64_t r = 0; r < count; ++r)
            long_dots<kFormat>(p, kernels, j, cols, rows, r, area);
        } else if (kernels.tile) {
          tiles<kFormat>(p, kernels, j, cols, rows, count, area);
        } else {
          short_dots<kFormat>(p, kernels, j, cols, rows, count, area);
        }
        sink(i, count, j, cols, area.sums[0]);
      }
    }
  });
}

uint64_t ByteAreaSize() { return sizeof(ByteArea); }

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {

HWY_EXPORT(ToBytes);
HWY_EXPORT(BytePanel);
HWY_EXPORT(ByteAreaSize);

void to_bytes(const float* x, int64_t k, int64_t row, const ByteRows& to) {
  HWY_DYNAMIC_DISPATCH(ToBytes)(x, k, row, to);
}
void byte_panel(const BlockProduct& p, int64_t j, int64_t cols, void* area, BlockSink sink) {
  HWY_DYNAMIC_DISPATCH(BytePanel)(p, j, cols, area, sink);
}
uint64_t byte_area() { return HWY_DYNAMIC_DISPATCH(ByteAreaSize)(); }

bool arranges_rows(tenon_dtype w) { return row_kernels(w).row; }
void arrange_row(tenon_dtype w, int64_t row, const ByteRows& to) {
  row_kernels(w).arrange(to.level + row * to.k, to.k, to.arranged + row * arranged_depth(to.k));
}

const ByteKernels* byte_kernels(tenon_dtype format) {
  const ByteKernels* const best = byte_kernels_vnni(format);
  return best ? best : byte_kernels_avx2(format);
}
int64_t byte_columns(const BlockProduct& p) {
  const ByteKernels* const kernels = byte_kernels(p.dtype);
  return !row_by_row(p) && kernels && kernels->tile ? kBlockPanel : kDotRows;
}

}  // namespace tenon::cpu
#endif
