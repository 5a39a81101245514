// SPDX-License-Identifier: Apache-2.0
// Elements of blocks as floats, and panels of products of floats with blocks.
#include <algorithm>

#include "dequant.hpp"
#include "dequant_bytes.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/dequant_product.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "dequant_f8-inl.h"
#include "dequant_unpack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

// `count` elements as floats.
template <bool kAdds>
HWY_INLINE void as_floats(const Unpacked& from, int64_t count, float* to) {
  const Lanes16 d;
  const hn::RebindToSigned<Lanes16> di;
  const hn::Rebind<int8_t, Lanes16> d8;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t g = 0; g < count / 16; ++g) {
    const auto scale = hn::Set(d, from.scale[g]);
    const auto add = hn::Set(d, kAdds ? from.add[g] : 0.0f);
    for (int64_t l = 0; l < 16; l += lanes) {
      const auto level =
          hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(d8, from.level + 16 * g + l)));
      hn::StoreU(kAdds ? hn::MulAdd(level, scale, add) : hn::Mul(level, scale), d, to + 16 * g + l);
    }
  }
}

template <tenon_dtype kFormat>
HWY_INLINE void decode_as(const uint8_t* from, int64_t count, float* to) {
  if constexpr (kFormat == TENON_DTYPE_F8E4M3_128) {
    f8_decode(from, count, to);
  } else {
    const int64_t bytes = static_cast<int64_t>(tenon_dense_bytes(kFormat, kUnpacked));
    Unpacked unpacked;
    for (int64_t k = 0; k < count; k += kUnpacked, from += bytes) {
      const int64_t some = std::min(kUnpacked, count - k);
      unpack_as<kFormat, 0>(from, some, unpacked);
      as_floats<has_adds(kFormat)>(unpacked, some, to + k);
    }
  }
}

void Decode(tenon_dtype dtype, const void* blocks, int64_t count, float* to) {
  with_format(dtype, [&](auto format) HWY_ATTR {
    decode_as<format>(static_cast<const uint8_t*>(blocks), count, to);
  });
}

// ---- products of floats

// Sums of kX rows of x and kW rows of w over `count` elements are added to their lanes. Four partial
// sums take every fourth vector.
struct FloatTile {
  const float* x[2];
  const float* w;  // rows w_step apart
  int64_t w_step, count;
  float* lanes[2];  // of each row of x: 16 for each row of w
};
template <int kX, int kW>
HWY_NOINLINE void float_tile(const FloatTile& t) {
  const Lanes16 d;
  using V = hn::Vec<Lanes16>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  V sum[kX][kW][4];
#pragma GCC unroll 2
  for (int m = 0; m < kX; ++m)
#pragma GCC unroll 3
    for (int n = 0; n < kW; ++n)
#pragma GCC unroll 4
      for (int p = 0; p < 4; ++p) sum[m][n][p] = hn::Zero(d);
  const auto step = [&](int64_t k, int p) HWY_ATTR {
    V x[kX];
#pragma GCC unroll 2
    for (int m = 0; m < kX; ++m) x[m] = hn::LoadU(d, t.x[m] + k);
#pragma GCC unroll 3
    for (int n = 0; n < kW; ++n) {
      const V w = hn::LoadU(d, t.w + n * t.w_step + k);
#pragma GCC unroll 2
      for (int m = 0; m < kX; ++m) sum[m][n][p] = hn::MulAdd(x[m], w, sum[m][n][p]);
    }
  };
  int64_t k = 0;
  for (; k + 4 * lanes <= t.count; k += 4 * lanes) {
    step(k, 0);
    step(k + lanes, 1);
    step(k + 2 * lanes, 2);
    step(k + 3 * lanes, 3);
  }
  if (k < t.count) step(k, 0);
  if (k + lanes < t.count) step(k + lanes, 1);
  if (k + 2 * lanes < t.count) step(k + 2 * lanes, 2);
#pragma GCC unroll 2
  for (int m = 0; m < kX; ++m)
#pragma GCC unroll 3
    for (int n = 0; n < kW; ++n) {
      float* const at = t.lanes[m] + 16 * n;
      const V* const s = sum[m][n];
      hn::StoreU(hn::Add(hn::LoadU(d, at), hn::Add(hn::Add(s[0], s[1]), hn::Add(s[2], s[3]))), d,
                 at);
    }
}

template <int kX>
HWY_INLINE void float_tiles(FloatTile t, int64_t cols) {
  int64_t n = 0;
  for (; n + 3 <= cols; n += 3) {
    float_tile<kX, 3>(t);
    t.w += 3 * t.w_step;
    for (float*& lanes : t.lanes) lanes += 48;
  }
  if (cols - n == 2) float_tile<kX, 2>(t);
  if (cols - n == 1) float_tile<kX, 1>(t);
}

// What a panel computes with.
struct Area {
  float* lanes;    // [rows][kFloatPanel][16]
  float* sums;     // [rows][kBlockPanel]
  float* decoded;  // [kFloatPanel][kBlockChunk]
};

// With few rows of x, what is read of w at a time is long and of few rows, so that memory delivers it
// in order. It changes no order of sums.
constexpr int64_t kFewFloatRows = 9;

// Decodes `cols` rows of w by `depth` elements at a time.
template <tenon_dtype kFormat>
HWY_INLINE void float_block(const BlockProduct& p, int64_t j, int64_t cols, int64_t depth,
                            int64_t i, int64_t rows, float* decoded, float* lanes) {
  constexpr int kX = HWY_TARGET <= HWY_AVX3 ? 2 : 1;
  const auto row_bytes = static_cast<int64_t>(tenon_dense_bytes(kFormat, p.k));
  const auto row_of = [&](int64_t r) { return p.x + (p.order ? p.order[i + r] : i + r) * p.k; };
  const auto lanes_of = [&](int64_t r) { return lanes + r * kFloatPanel * 16; };
  for (int64_t first = 0; first < p.k; first += depth) {
    const int64_t some = std::min(depth, p.k - first);
    const auto skipped = static_cast<int64_t>(tenon_dense_bytes(kFormat, first));
    for (int64_t n = 0; n < cols; ++n)
      decode_as<kFormat>(p.w + (j + n) * row_bytes + skipped, some, decoded + n * depth);
    for (int64_t at = 0; at < some; at += kBlockChunk) {
      const int64_t count = std::min(kBlockChunk, some - at), k = first + at;
      int64_t r = 0;
      for (; r + kX <= rows; r += kX)
        float_tiles<kX>({{row_of(r) + k, row_of(r + kX - 1) + k},
                         decoded + at,
                         depth,
                         count,
                         {lanes_of(r), lanes_of(r + kX - 1)}},
                        cols);
      for (; r < rows; ++r)
        float_tiles<1>(
            {{row_of(r) + k, nullptr}, decoded + at, depth, count, {lanes_of(r), nullptr}}, cols);
    }
  }
}
template <tenon_dtype kFormat>
HWY_INLINE void float_panel(const BlockProduct& p, int64_t j, int64_t cols, int64_t i, int64_t rows,
                            const Area& area) {
  if constexpr (kFormat == TENON_DTYPE_F8E4M3_128) {
    if (rows <= kRowsOfF8) return f8_rows(p, j, cols, i, rows, area.lanes);
  }
  const int64_t wide = rows < kFewFloatRows ? 3 : kFloatPanel;
  const int64_t depth = kFloatPanel / wide * kBlockChunk;
  for (int64_t n = 0; n < cols; n += wide)
    float_block<kFormat>(p, j + n, std::min(wide, cols - n), depth, i, rows, area.decoded,
                         area.lanes + n * 16);
}

// The sums of 16 lanes each, of four columns: lane l and l + 8, then l and l + 4, and so on.
HWY_INLINE void sums_of_lanes(const float* from, float* to) {
  const hn::FixedTag<float, 4> d;
  hn::Vec<decltype(d)> v[4];
#pragma GCC unroll 4
  for (int n = 0; n < 4; ++n) {
    const float* const at = from + 16 * n;
    v[n] = hn::Add(hn::Add(hn::LoadU(d, at), hn::LoadU(d, at + 8)),
                   hn::Add(hn::LoadU(d, at + 4), hn::LoadU(d, at + 12)));
  }
  const auto two = [&](int n) HWY_ATTR {
    return hn::Add(hn::ConcatLowerLower(d, v[n + 1], v[n]),
                   hn::ConcatUpperUpper(d, v[n + 1], v[n]));
  };
  const auto a = two(0), b = two(2);
  hn::StoreU(hn::Add(hn::ConcatEven(d, b, a), hn::ConcatOdd(d, b, a)), d, to);
}

void FloatPanel(const BlockProduct& p, int64_t j, int64_t cols, void* memory, BlockSink sink) {
  const int64_t most = std::min(kBlockRows, p.m);
  Area area{};
  area.lanes = static_cast<float*>(memory);
  area.sums = area.lanes + most * kFloatPanel * 16;
  area.decoded = area.sums + most * kBlockPanel;
  for (int64_t i = 0; i < p.m; i += most) {
    const int64_t rows = std::min(most, p.m - i);
    std::fill_n(area.lanes, rows * kFloatPanel * 16, 0.0f);
    with_format(p.dtype,
                [&](auto format) HWY_ATTR { float_panel<format>(p, j, cols, i, rows, area); });
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t n = 0; n < cols; n += 4)
        sums_of_lanes(area.lanes + (r * kFloatPanel + n) * 16, area.sums + r * kBlockPanel + n);
    sink(i, rows, j, cols, area.sums);
  }
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {

HWY_EXPORT(Decode);
HWY_EXPORT(FloatPanel);

void decode_blocks(tenon_dtype dtype, const void* blocks, int64_t count, float* to) {
  HWY_DYNAMIC_DISPATCH(Decode)(dtype, blocks, count, to);
}

int64_t block_columns(const BlockProduct& product) {
  return product.x ? kFloatPanel : byte_columns(product);
}
void block_panel(const BlockProduct& product, int64_t j, int64_t cols, void* area, BlockSink sink) {
  if (!product.x) return byte_panel(product, j, cols, area, sink);
  HWY_DYNAMIC_DISPATCH(FloatPanel)(product, j, cols, area, sink);
}
uint64_t block_area(int64_t m) {
  const int64_t rows = std::min(kBlockRows, m);
  const int64_t floats = rows * (kFloatPanel * 16 + kBlockPanel) + kFloatPanel * kBlockChunk;
  return std::max(static_cast<uint64_t>(floats) * sizeof(float), byte_area());
}

}  // namespace tenon::cpu
#endif
