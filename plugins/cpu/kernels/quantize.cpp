// SPDX-License-Identifier: Apache-2.0
// quantize and dequantize between floats and integers of 4 to 32 bits: one pass, with the scales as
// a table. 4-bit integers go through a tile of bytes. Nodes with f64 beside another float are
// decomposed.
#include "quantize.hpp"

#include <algorithm>

#include "nontemporal.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/quantize.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "quantize-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

// ---- 4-bit integers: two per byte, the first in the low half

// The n codes at `packed` as bytes; `flip` is 8 for i4, whose codes from 8 on are negative, else 0.
void unpack(const uint8_t* packed, uint8_t* bytes, int64_t n, uint8_t flip) {
  const hn::CappedTag<uint8_t, 16> d;
  const auto step = static_cast<int64_t>(hn::Lanes(d));
  const auto sign = hn::Set(d, flip), mask = hn::Set(d, uint8_t{15});
  const auto whole = [&](auto code) HWY_ATTR { return hn::Sub(hn::Xor(code, sign), sign); };
  int64_t i = 0;
  for (; i + 2 * step <= n; i += 2 * step) {
    const auto both = hn::LoadU(d, packed + i / 2);
    const auto first = whole(hn::And(both, mask));
    const hn::Repartition<uint16_t, decltype(d)> d16;
    const auto second =
        whole(hn::And(hn::BitCast(d, hn::ShiftRight<4>(hn::BitCast(d16, both))), mask));
    hn::StoreU(hn::InterleaveLower(d, first, second), d, bytes + i);
    hn::StoreU(hn::InterleaveUpper(d, first, second), d, bytes + i + step);
  }
  for (; i < n; ++i) {
    const int code = packed[i / 2] >> (i % 2 * 4) & 15;
    bytes[i] = static_cast<uint8_t>((code ^ flip) - flip);
  }
}
// The low halves of n bytes; behind an odd number is a zero.
void pack(const uint8_t* bytes, uint8_t* packed, int64_t n) {
  const hn::ScalableTag<int16_t> d;
  const hn::Rebind<uint8_t, decltype(d)> d8;
  const auto pairs = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + 2 * pairs <= n; i += 2 * pairs) {
    const auto both = hn::LoadU(d, reinterpret_cast<const int16_t*>(bytes + i));
    const auto low = hn::And(both, hn::Set(d, int16_t{0x0F}));
    const auto high = hn::And(hn::ShiftRight<4>(both), hn::Set(d, int16_t{0xF0}));
    hn::StoreU(hn::DemoteTo(d8, hn::Or(low, high)), d8, packed + i / 2);
  }
  for (; i < n; i += 2)
    packed[i / 2] =
        static_cast<uint8_t>((bytes[i] & 15) | (i + 1 < n ? (bytes[i + 1] & 15) << 4 : 0));
}

// ---- ranges

// Computes n elements from `begin` on, run by run: run(offset from begin, the run, where its results
// go).
template <class Y, class F>
HWY_INLINE void each_run(const QuantizeLoop& loop, bool nontemporal, Y* y, int64_t begin, int64_t n,
                         F&& run) {
  ScaleRuns runs(loop.grid, begin);
  nontemporal_parts(nontemporal, n, y, [&](int64_t at, int64_t count, Y* to) {
    for (int64_t i = 0; i < count;) {
      const ScaleRuns::Run r = runs.next(count - i);
      run(at + i, r, to + i);
      i += r.count;
    }
  });
}

// Calls f(Q{}) with the type that holds the integers, 4-bit ones too.
template <class F>
void with_levels(tenon_dtype t, F&& f) {
  switch (t) {
    case TENON_DTYPE_I8:
    case TENON_DTYPE_I4:
      return f(int8_t{});
    case TENON_DTYPE_U8:
    case TENON_DTYPE_U4:
      return f(uint8_t{});
    case TENON_DTYPE_I16:
      return f(int16_t{});
    case TENON_DTYPE_U16:
      return f(uint16_t{});
    default:
      return f(int32_t{});
  }
}

void quantize_target(const QuantizeLoop& loop, const void* x, void* q, int64_t begin, int64_t end) {
  with_storage(loop.real, [&]<class T>(T) {
    const auto* scale = static_cast<const Acc<T>*>(loop.scale);
    const auto* zero = static_cast<const Acc<T>*>(loop.zero);
    const T* from = static_cast<const T*>(x);
    const auto part = [&]<class Q>(bool nontemporal, int64_t first, int64_t n, Q* to) {
      each_run(loop, nontemporal, to, first, n, [&](int64_t i, const ScaleRuns::Run& r, Q* y) {
        const auto *s = scale + r.entry, *z = zero + r.entry;
        if (r.many) return quantize_run<true>(loop, from + first + i, y, r.count, s, z);
        int64_t done = 0;
        if constexpr (std::is_same_v<T, float> && sizeof(Q) == 1)
          done = quantize_bytes(
              loop.low, loop.high,
              [at = from + first + i](int64_t k)
                  HWY_ATTR { return hn::LoadU(hn::ScalableTag<float>(), at + k); },
              y, r.count, *s, *z);
        quantize_run<false>(loop, from + first + i + done, y + done, r.count - done, s, z);
      });
    };
    with_levels(loop.integer, [&]<class Q>(Q) {
      if constexpr (!std::is_same_v<Q, int32_t>) {
        if (!sdk::is_nibble(loop.integer))
          return part(loop.nontemporal, begin, end - begin, static_cast<Q*>(q) + begin);
        alignas(64) Q bytes[kTile];
        for (int64_t first = begin; first < end; first += kTile) {
          const int64_t n = std::min(kTile, end - first);
          part(false, first, n, bytes);
          pack(reinterpret_cast<const uint8_t*>(bytes), static_cast<uint8_t*>(q) + first / 2, n);
        }
      }
    });
  });
}

void dequantize_target(const QuantizeLoop& loop, const void* q, void* y, int64_t begin,
                       int64_t end) {
  with_storage(loop.real, [&]<class T>(T) {
    const auto* scale = static_cast<const Acc<T>*>(loop.scale);
    const auto* zero = static_cast<const int32_t*>(loop.zero);
    // from: the integers of the elements from `first` on.
    const auto part = [&]<class Q>(const Q* from, int64_t first, int64_t n) {
      each_run(loop, loop.nontemporal, static_cast<T*>(y) + first, first, n,
               [&](int64_t i, const ScaleRuns::Run& r, T* to) {
                 const auto* s = scale + r.entry;
                 const int32_t* z = zero + r.entry;
                 if (r.many)
                   dequantize_run<true>(from + i, to, r.count, s, z);
                 else
                   dequantize_run<false>(from + i, to, r.count, s, z);
               });
    };
    with_levels(loop.integer, [&]<class Q>(Q) {
      if (!sdk::is_nibble(loop.integer))
        return part(static_cast<const Q*>(q) + begin, begin, end - begin);
      alignas(64) uint8_t bytes[kTile];
      for (int64_t first = begin; first < end; first += kTile) {
        const int64_t n = std::min(kTile, end - first);
        unpack(static_cast<const uint8_t*>(q) + first / 2, bytes, n,
               loop.integer == TENON_DTYPE_I4 ? 8 : 0);
        part(reinterpret_cast<const Q*>(bytes), first, n);
      }
    });
  });
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {

using sdk::Kernel;
using sdk::Refusal;

HWY_EXPORT(quantize_target);
HWY_EXPORT(dequantize_target);
HWY_EXPORT(unpack);

void quantize_range(const QuantizeLoop& loop, const void* x, void* q, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(quantize_target)(loop, x, q, begin, end);
}
void dequantize_range(const QuantizeLoop& loop, const void* q, void* y, int64_t begin,
                      int64_t end) {
  HWY_DYNAMIC_DISPATCH(dequantize_target)(loop, q, y, begin, end);
}

bool find_range(tenon_dtype t, QuantizeLoop* loop) {
  const auto set = [&](int low, int high) { return loop->low = low, loop->high = high, true; };
  switch (t) {
    case TENON_DTYPE_I8:
      return set(-128, 127);
    case TENON_DTYPE_U8:
      return set(0, 255);
    case TENON_DTYPE_I16:
      return set(-32768, 32767);
    case TENON_DTYPE_U16:
      return set(0, 65535);
    case TENON_DTYPE_I4:
      return set(-8, 7);
    case TENON_DTYPE_U4:
      return set(0, 15);
    default:
      return false;
  }
}

namespace {

// The scales of a node, and their tables in scratch memory.
struct Scales {
  ScaleGrid grid;
  int64_t count = 1;  // entries of the operands
  tenon_dtype scale_dtype = TENON_DTYPE_NONE, zero_dtype = TENON_DTYPE_NONE;
  int scale = -1, zero = -1;                                     // positions; zero is -1 if absent
  tenon_dtype wide = TENON_DTYPE_F32, levels = TENON_DTYPE_F32;  // of the tables

  int64_t entries() const { return count * grid.repeat; }
  uint64_t scale_bytes() const {
    return static_cast<uint64_t>((entries() * element_bytes(wide) + 63) / 64 * 64);
  }
  uint64_t scratch() const {
    return scale_bytes() + static_cast<uint64_t>(entries() * element_bytes(levels));
  }
  // The table of an operand: the operand itself, or its numbers at `table`.
  const void* fill(const sdk::Call& c, tenon_dtype given, int position, tenon_dtype to,
                   char* table) const {
    const bool nibbles = sdk::is_nibble(given);
    const tenon_dtype from = !nibbles                  ? given
                             : given == TENON_DTYPE_I4 ? tenon_dtype{TENON_DTYPE_I8}
                                                       : tenon_dtype{TENON_DTYPE_U8};
    const int64_t size = element_bytes(to);
    if (position < 0) {
      std::memset(table, 0, static_cast<size_t>(entries() * size));
      return table;
    }
    const auto* source = static_cast<const char*>(c.inputs[position]);
    if (from == to && grid.repeat == 1) return source;
    parallel_for(count, kTile, [&](int64_t begin, int64_t end) {
      alignas(64) char tile[kTile * 8];
      for (int64_t i = begin; i < end; i += kTile) {
        const int64_t n = std::min(kTile, end - i);
        alignas(64) uint8_t bytes[kTile];
        const void* x = source + i * element_bytes(from);
        if (nibbles) {
          HWY_DYNAMIC_DISPATCH(unpack)
          (static_cast<const uint8_t*>(c.inputs[position]) + i / 2, bytes, n,
           given == TENON_DTYPE_I4 ? 8 : 0);
          x = bytes;
        }
        if (grid.repeat == 1) {
          convert(from, to, x, table + i * size, n);
          continue;
        }
        convert(from, to, x, tile, n);
        for (int64_t k = 0; k < n; ++k)
          for (int64_t r = 0; r < grid.repeat; ++r)
            std::memcpy(table + ((i + k) * grid.repeat + r) * size, tile + k * size,
                        static_cast<size_t>(size));
      }
    });
    return table;
  }
  static void convert(tenon_dtype from, tenon_dtype to, const void* x, void* y, int64_t n) {
    if (from == to)
      std::memcpy(y, x, static_cast<size_t>(n * element_bytes(to)));
    else
      cast_tile(from, to, false, x, y, n);
  }
  // Sets the tables of a loop.
  void tables(const sdk::Call& c, QuantizeLoop* loop) const {
    auto* at = static_cast<char*>(c.scratch);
    loop->grid = grid;
    loop->scale = fill(c, scale_dtype, scale, wide, at);
    loop->zero = fill(c, zero_dtype, zero, levels, at + scale_bytes());
  }
};

// x: the tensor. real: the float tensor's dtype.
template <class Op>
Scales scales_of(const Op& n, const sdk::Type& x, tenon_dtype real) {
  const sdk::Type& s = n.scale.type();
  Scales out;
  out.wide = real == TENON_DTYPE_F64 ? TENON_DTYPE_F64 : TENON_DTYPE_F32;
  if (!is_float(real)) throw Refusal::dtype("x", real);
  if (!is_float(s.dtype) || (s.dtype == TENON_DTYPE_F64) != (real == TENON_DTYPE_F64))
    throw Refusal::dtype("scale", s.dtype);
  out.scale = n.scale.position(), out.scale_dtype = s.dtype;
  if (n.zero_point) out.zero = n.zero_point.position(), out.zero_dtype = n.zero_point.type().dtype;
  out.count = s.elements();
  ScaleGrid& g = out.grid;
  if (n.block == 0 && s.rank <= 1 && out.count == 1) return out;
  const auto axis = static_cast<int64_t>(n.axis < 0 ? n.axis + x.rank : n.axis);
  for (int64_t k = axis + 1; k < x.rank; ++k) g.inner *= x.dims[static_cast<size_t>(k)];
  g.length = x.dims[static_cast<size_t>(axis)];
  if (n.block > 0) {
    g.block = n.block, g.blocks = s.dims[static_cast<size_t>(axis)];
  } else if (g.inner > 1 && g.inner < 64) {
    // Short runs of one entry each become a longer run of entries side by side.
    g.repeat = g.inner, g.length *= g.inner, g.inner = 1;
  }
  return out;
}

using Range = void (*)(const QuantizeLoop&, const void*, void*, int64_t, int64_t);
// x and y: the tensor before and after. Threads split it at whole tiles.
Kernel kernel_of(const QuantizeLoop& loop, const Scales& scales, const sdk::Value& x,
                 const sdk::Type& y, Range range) {
  const int64_t count = y.elements();
  const int64_t bytes = element_bytes(x.type().dtype) + element_bytes(y.dtype);
  const auto run = [=, position = x.position()](const sdk::Call& c) {
    if (count == 0) return;
    QuantizeLoop now = loop;
    now.nontemporal = beyond_cache(count * bytes);
    scales.tables(c, &now);
    parallel_for(count, tile_grain(bytes), [&](int64_t begin, int64_t end) {
      range(now, c.inputs[position], c.outputs[0], begin, end);
      if (now.nontemporal) nontemporal_fence();
    });
  };
  return {.run = run, .scratch = scales.scratch()};
}

// Tiles of floats of the accumulation type. Level: the type of the zero point.
template <class Level, class Op>
TileOp tiles_of(const Op& n, QuantizeLoop loop, Range range) {
  const auto tiles = [&]<class A, class Zero>(A scale, Zero zero) -> TileOp {
    return [=](const void* const* x, void* y, int64_t count) {
      QuantizeLoop now = loop;
      now.scale = &scale, now.zero = &zero;
      range(now, x[0], y, 0, count);
    };
  };
  const auto with = [&]<class A>(A) {
    using Zero = std::conditional_t<std::is_same_v<Level, int32_t>, int32_t, A>;
    return tiles(number_of<A>(n.scale, "scale"),
                 n.zero_point ? number_of<Zero>(n.zero_point, "zero_point") : Zero{});
  };
  return loop.real == TENON_DTYPE_F64 ? with(double{}) : with(float{});
}

// The dtype of a tile.
void want_steps(QuantizeLoop* loop, tenon_dtype real, tenon_dtype scale, int64_t block) {
  if (!is_float(real)) throw Refusal::dtype("x", real);
  if (!is_float(scale) || (scale == TENON_DTYPE_F64) != (real == TENON_DTYPE_F64))
    throw Refusal::dtype("scale", scale);
  if (block != 0) throw Refusal::attribute("block", std::to_string(block));
  loop->real = real == TENON_DTYPE_F64 ? real : tenon_dtype{TENON_DTYPE_F32};
}

}  // namespace

TileOp quantize_tiles(const sdk::op::quantize& n, tenon_dtype out) {
  QuantizeLoop loop{.real = TENON_DTYPE_NONE, .integer = out, .nontemporal = false};
  if (sdk::is_nibble(out) || !find_range(out, &loop)) throw Refusal::dtype("q", out);
  want_steps(&loop, n.x.type().dtype, n.scale.type().dtype, n.block);
  return tiles_of<double>(n, loop, quantize_range);
}

TileOp dequantize_tiles(const sdk::op::dequantize& n, tenon_dtype out) {
  const tenon_dtype q = n.q.type().dtype;
  QuantizeLoop loop{.real = TENON_DTYPE_NONE, .integer = q, .nontemporal = false};
  if (sdk::is_nibble(q) || (!find_range(q, &loop) && q != TENON_DTYPE_I32))
    throw Refusal::dtype("q", q);
  want_steps(&loop, out, n.scale.type().dtype, n.block);
  return tiles_of<int32_t>(n, loop, dequantize_range);
}

Kernel make_quantize(const sdk::op::quantize& n, const sdk::Node& node) {
  const sdk::Type &x = n.x.type(), &q = node.out(0).type();
  QuantizeLoop loop{.real = x.dtype, .integer = q.dtype, .nontemporal = false};
  if (!find_range(q.dtype, &loop)) throw Refusal::dtype("q", q.dtype);
  Scales scales = scales_of(n, x, x.dtype);
  scales.levels = scales.wide;
  return kernel_of(loop, scales, n.x, q, quantize_range);
}

Kernel make_dequantize(const sdk::op::dequantize& n, const sdk::Node& node) {
  const sdk::Type &q = n.q.type(), &y = node.out(0).type();
  QuantizeLoop loop{.real = y.dtype, .integer = q.dtype, .nontemporal = false};
  if (!find_range(q.dtype, &loop) && q.dtype != TENON_DTYPE_I32) throw Refusal::dtype("q", q.dtype);
  Scales scales = scales_of(n, q, y.dtype);
  scales.levels = TENON_DTYPE_I32;
  return kernel_of(loop, scales, n.q, y, dequantize_range);
}

}  // namespace tenon::cpu
#endif
