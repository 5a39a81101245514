// SPDX-License-Identifier: Apache-2.0
// cast between all pairs of dtypes, through the widest type of the source's kind (double, int64_t
// or uint64_t), so that each result is rounded once. Pairs that mixed-precision training uses have
// direct forms. 4-bit integers are unpacked to bytes and packed again; blocks of q8_0 are encoded one by
// one.
#include <algorithm>
#include <cmath>
#include <limits>

#include "elementwise.hpp"
#include "tenon/blocks.hpp"

namespace tenon::cpu {
namespace {

using sdk::Kernel;
using sdk::Refusal;

// ---- eight-bit floats: sign, kExponentBits bits of exponent, fraction; e4m3 has no infinity and
// one NaN (0x7F)
template <int kExponentBits, bool kHasInfinity>
struct F8 {
  static constexpr int kFractionBits = 7 - kExponentBits, kBias = (1 << (kExponentBits - 1)) - 1;
  static constexpr uint8_t kNan = 0x7F;
  static constexpr uint8_t kLargest = kHasInfinity ? 0x7B : 0x7E;

  static double to_double(uint8_t bits) {
    const int magnitude = bits & 0x7F, exponent = magnitude >> kFractionBits;
    const int fraction = magnitude & ((1 << kFractionBits) - 1);
    double value;
    if (kHasInfinity ? exponent == (1 << kExponentBits) - 1 : magnitude == kNan) {
      value = kHasInfinity && fraction == 0 ? std::numeric_limits<double>::infinity()
                                            : std::numeric_limits<double>::quiet_NaN();
    } else if (exponent == 0) {
      value = std::ldexp(fraction, 1 - kBias - kFractionBits);
    } else {
      value = std::ldexp(fraction + (1 << kFractionBits), exponent - kBias - kFractionBits);
    }
    return bits & 0x80 ? -value : value;
  }
  // Out of range: the largest value with saturate, else infinity, or NaN in e4m3.
  static uint8_t from_double(double x, bool saturate) {
    const uint8_t sign = std::signbit(x) ? 0x80 : 0;
    if (std::isnan(x)) return sign | kNan;
    const double a = std::fabs(x);
    int exponent = 0;
    if (a != 0 && !std::isinf(a)) std::frexp(a, &exponent);
    // the exponent of the last bit
    const int unit = std::max(exponent - 1, 1 - kBias) - kFractionBits;
    const double rounded = std::isinf(a) ? a : std::nearbyint(std::ldexp(a, -unit));
    if (rounded == 0) return sign;
    if (std::isinf(a) || std::ldexp(rounded, unit) > to_double(kLargest))
      return sign | (saturate ? kLargest : kHasInfinity ? uint8_t{0x7C} : kNan);
    const auto steps = static_cast<int>(rounded);  // at most 2^(kFractionBits + 1)
    const int biased = unit + kFractionBits + kBias;
    return static_cast<uint8_t>(sign | (((biased - 1) << kFractionBits) + steps));
  }
};
using F8E4M3 = F8<4, false>;
using F8E5M2 = F8<5, true>;

// ---- one element, from the wide type W
template <class T, class W>
T to_integer(W x) {
  if constexpr (std::is_floating_point_v<W>) {
    // The bounds are powers of two, so they are exact in double.
    constexpr double kHigh = std::numeric_limits<T>::digits == 64 ? 0x1p64
                             : std::numeric_limits<T>::digits == 63
                                 ? 0x1p63
                                 : static_cast<double>(std::numeric_limits<T>::max()) + 1;
    constexpr double kLow = static_cast<double>(std::numeric_limits<T>::min());
    if (std::isnan(x)) return 0;
    if (x >= kHigh) return std::numeric_limits<T>::max();
    if (x <= kLow) return std::numeric_limits<T>::min();
    return static_cast<T>(x);
  } else {
    return static_cast<T>(x);
  }
}
// x as a double or float with more bits than any half, so that only the final rounding matters.
template <class W>
float odd_float(W x) {
  if constexpr (std::is_floating_point_v<W>) {
    return round_to_odd(x);
  } else {
    // Above 2^53, the double is rounded to odd: the lost bits become one sticky bit.
    constexpr W kLow = 0x7FF;
    const W high = x >> 53;
    const W sticky = high != 0 && high != static_cast<W>(-1)
                         ? static_cast<W>((x & ~kLow) | ((x & kLow) != 0 ? kLow + 1 : 0))
                         : x;
    return round_to_odd(static_cast<double>(sticky));
  }
}

template <class W>
void store_wide(tenon_dtype to, bool saturate, const W* x, void* out, int64_t n) {
  const auto run = [&]<class T>(T*, auto f) {
    for (int64_t i = 0; i < n; ++i) static_cast<T*>(out)[i] = f(x[i]);
  };
  switch (to) {
    case TENON_DTYPE_F32:
      return run((float*)nullptr, [](W v) { return static_cast<float>(v); });
    case TENON_DTYPE_F64:
      return run((double*)nullptr, [](W v) { return static_cast<double>(v); });
    case TENON_DTYPE_F16:
      return run((F16*)nullptr, [](W v) { return to_f16(odd_float(v)); });
    case TENON_DTYPE_BF16:
      return run((Bf16*)nullptr, [](W v) { return to_bf16(odd_float(v)); });
    case TENON_DTYPE_F8E4M3:
      return run((uint8_t*)nullptr,
                 [=](W v) { return F8E4M3::from_double(odd_float(v), saturate); });
    case TENON_DTYPE_F8E5M2:
      return run((uint8_t*)nullptr,
                 [=](W v) { return F8E5M2::from_double(odd_float(v), saturate); });
    case TENON_DTYPE_BOOL:
      return run((uint8_t*)nullptr, [](W v) { return v != 0; });
    default:
      with_type(sdk::kIntegerTypes, "y", to,
                [&]<class T>(T) { run((T*)nullptr, [](W v) { return to_integer<T>(v); }); });
  }
}

template <class W, class T>
const W* load_wide_as(const void* in, W* wide, int64_t n) {
  const T* x = static_cast<const T*>(in);
  for (int64_t i = 0; i < n; ++i) wide[i] = static_cast<W>(x[i]);
  return wide;
}

void load_double(tenon_dtype from, const void* in, double* wide, int64_t n) {
  const auto run = [&]<class T>(const T* x, auto f) {
    for (int64_t i = 0; i < n; ++i) wide[i] = f(x[i]);
  };
  switch (from) {
    case TENON_DTYPE_F32:
      return run(static_cast<const float*>(in), [](float v) { return v; });
    case TENON_DTYPE_F16:
      return run(static_cast<const F16*>(in), [](F16 v) { return to_float(v); });
    case TENON_DTYPE_BF16:
      return run(static_cast<const Bf16*>(in), [](Bf16 v) { return to_float(v); });
    case TENON_DTYPE_F8E4M3:
      return run(static_cast<const uint8_t*>(in), F8E4M3::to_double);
    case TENON_DTYPE_F8E5M2:
      return run(static_cast<const uint8_t*>(in), F8E5M2::to_double);
    default:
      return run(static_cast<const double*>(in), [](double v) { return v; });
  }
}

bool is_any_float(tenon_dtype t) {
  return is_float(t) || t == TENON_DTYPE_F8E4M3 || t == TENON_DTYPE_F8E5M2;
}

}  // namespace

void cast_tile(tenon_dtype from, tenon_dtype to, bool saturate, const void* in, void* out,
               int64_t n) {
  if (to == TENON_DTYPE_F32 && is_half(from)) return widen(from, in, static_cast<float*>(out), n);
  if (from == TENON_DTYPE_F32 && is_half(to))
    return narrow(to, static_cast<const float*>(in), out, n);
  if (from == TENON_DTYPE_BOOL && to == TENON_DTYPE_F32) {
    for (int64_t i = 0; i < n; ++i)
      static_cast<float*>(out)[i] = static_cast<const uint8_t*>(in)[i];
    return;
  }
  if (is_any_float(from)) {
    double wide[kTile];
    load_double(from, in, wide, n);
    return store_wide(to, saturate, wide, out, n);
  }
  with_type(sdk::kIntegerTypes, "x", from == TENON_DTYPE_BOOL ? TENON_DTYPE_U8 : from,
            [&]<class T>(T) {
              using W = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
              W wide[kTile];
              store_wide(to, saturate, load_wide_as<W, T>(in, wide, n), out, n);
            });
}

bool castable(tenon_dtype t) { return tenon_dtype_bits(t) >= 8 && !sdk::is_complex(t); }

namespace {

// ---- 4-bit integers: two per byte, the first in the low half
using sdk::is_nibble;

// The 8-bit dtype that holds the same numbers.
tenon_dtype whole(tenon_dtype t) {
  if (!is_nibble(t)) return t;
  return t == TENON_DTYPE_I4 ? TENON_DTYPE_I8 : TENON_DTYPE_U8;
}

// Elements [flat, flat + n) of a dense tensor; flat is even.
void unpack(tenon_dtype from, const void* base, int64_t flat, int64_t n, uint8_t* to) {
  const auto* packed = static_cast<const uint8_t*>(base) + flat / 2;
  for (int64_t i = 0; i < n; ++i) {
    const int code = packed[i / 2] >> (i % 2 * 4) & 15;
    to[i] = static_cast<uint8_t>(from == TENON_DTYPE_I4 ? (code ^ 8) - 8 : code);
  }
}
// `saturate`: the bytes came from floats, which saturate again; integers wrap.
void pack(tenon_dtype to, bool saturate, const uint8_t* bytes, int64_t flat, int64_t n,
          void* base) {
  auto* packed = static_cast<uint8_t*>(base) + flat / 2;
  const auto code = [&](int64_t i) {
    if (i >= n) return 0;
    if (!saturate) return bytes[i] & 15;
    if (to == TENON_DTYPE_U4) return std::min<int>(bytes[i], 15);
    return std::clamp<int>(static_cast<int8_t>(bytes[i]), -8, 7) & 15;
  };
  for (int64_t i = 0; i < n; i += 2)
    packed[i / 2] = static_cast<uint8_t>(code(i) | code(i + 1) << 4);
}

// Threads split the tensor at whole bytes.
Kernel nibble_cast(const sdk::op::cast& n, const sdk::Type& out) {
  const sdk::Type& in = n.x.type();
  if (is_nibble(in.dtype) && !in.dense())
    throw Refusal(TENON_REASON_DTYPE, "operand x of 4-bit integers is not dense");
  const Loop loop = make_loop(out.shape(), {&in});
  const auto run = [=, from = in.dtype, to = out.dtype, position = n.x.position(),
                    saturate = n.saturate](const sdk::Call& c) {
    const int64_t pairs = (loop.count + 1) / 2;
    const int64_t to_size = element_bytes(to);
    parallel_for(pairs, tile_grain(8), [&](int64_t begin, int64_t end) {
      TileReader reader(loop, 0, c.inputs[position], from);
      alignas(64) uint8_t unpacked[kTile], bytes[kTile];
      const int64_t last = std::min(2 * end, loop.count);
      for (int64_t i = 2 * begin; i < last; i += kTile) {
        const int64_t count = std::min(kTile, last - i);
        const void* x = unpacked;
        if (is_nibble(from))
          unpack(from, c.inputs[position], i, count, unpacked);
        else
          x = reader.raw(i, count);
        if (is_nibble(to)) {
          cast_tile(whole(from), whole(to), saturate, x, bytes, count);
          pack(to, is_any_float(from), bytes, i, count, c.outputs[0]);
        } else {
          cast_tile(whole(from), to, saturate, x, static_cast<char*>(c.outputs[0]) + i * to_size,
                    count);
        }
      }
    });
  };
  return {.run = run};
}

// ---- blocks of q8_0

Kernel block_cast(const sdk::op::cast& n) {
  const sdk::Type& in = n.x.type();
  if (!is_float(in.dtype)) throw Refusal::dtype("x", in.dtype);
  if (!in.dense()) throw Refusal(TENON_REASON_DTYPE, "operand x of a cast to q8_0 is not dense");
  const tenon_block block = tenon_dtype_block(TENON_DTYPE_Q8_0);
  const int64_t elements = block.elements, bytes = block.bytes;
  Kernel kernel;
  kernel.cost = static_cast<double>(in.elements()) * 2e-9;
  kernel.run = [=, from = in.dtype, blocks = in.elements() / elements](const sdk::Call& c) {
    const auto* x = c.in<char>(0);
    auto* y = c.out<unsigned char>(0);
    parallel_for(blocks, grain_for(20 * elements), [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) {
        alignas(64) float numbers[256];  // the most elements of a block
        cast_tile(from, TENON_DTYPE_F32, true, x + b * elements * element_bytes(from), numbers,
                  elements);
        sdk::encode_q8_0(numbers, y + b * bytes);
      }
    });
  };
  return kernel;
}

}  // namespace

Kernel make_cast(const sdk::op::cast& n, const sdk::Node& node) {
  const tenon_dtype from = n.x.type().dtype, to = n.to;
  const sdk::Type& out = node.out(0).type();
  if (to == TENON_DTYPE_Q8_0) return block_cast(n);
  if (!castable(from) && !is_nibble(from)) throw Refusal::dtype("x", from);
  if (!castable(to) && !is_nibble(to)) throw Refusal::attribute("to", sdk::dtype_name(to));
  if (out.dtype != to) throw Refusal::dtype("y", out.dtype);
  if (is_nibble(from) || is_nibble(to)) return nibble_cast(n, out);
  const int64_t from_size = element_bytes(from), to_size = element_bytes(to);
  const Loop loop = make_loop(out.shape(), {&n.x.type()});
  Kernel kernel;
  kernel.run = [=, position = n.x.position(), saturate = n.saturate](const sdk::Call& c) {
    parallel_for(loop.count, tile_grain(from_size + to_size), [&](int64_t begin, int64_t end) {
      TileReader x(loop, 0, c.inputs[position], from);
      for_tiles(loop, begin, end, [&](int64_t flat, int64_t count) {
        void* y = static_cast<char*>(c.outputs[0]) + flat * to_size;
        if (from == to) {
          std::memcpy(y, x.raw(flat, count), count * to_size);
        } else {
          cast_tile(from, to, saturate, x.raw(flat, count), y, count);
        }
      });
    });
  };
  return kernel;
}

}  // namespace tenon::cpu
