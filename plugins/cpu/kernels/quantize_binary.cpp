// SPDX-License-Identifier: Apache-2.0
// quantize(a op b) in one pass, where a and b are floats or 8-bit integers: a step of fused bodies.
#include <algorithm>
#include <cstring>

#include "quantize.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/quantize_binary.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "quantize-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

struct FloatTile {
  using Element = float;
  using D = hn::ScalableTag<float>;
  explicit FloatTile(const QuantizedBinary::Operand&) {}
  HWY_INLINE hn::Vec<D> operator()(const float* x) const { return hn::LoadU(D(), x); }
};
struct ByteTile {
  using Element = uint8_t;
  using D = hn::ScalableTag<float>;
  using DI = hn::RebindToSigned<D>;
  using D8 = hn::Rebind<uint8_t, D>;
  hn::Vec<D8> flip;
  hn::Vec<DI> zero;
  hn::Vec<D> scale;
  explicit ByteTile(const QuantizedBinary::Operand& o)
      : flip(hn::Set(D8(), o.flip)), zero(hn::Set(DI(), o.zero)), scale(hn::Set(D(), o.scale)) {}
  HWY_INLINE hn::Vec<D> operator()(const uint8_t* x) const {
    const auto level = hn::PromoteTo(DI(), hn::Xor(hn::LoadU(D8(), x), flip));
    return hn::Mul(hn::ConvertTo(D(), hn::Sub(level, zero)), scale);
  }
};

template <BinaryKind kind, class V>
HWY_INLINE V combined(V a, V b) {
  if constexpr (kind == BinaryKind::add) return hn::Add(a, b);
  if constexpr (kind == BinaryKind::sub) return hn::Sub(a, b);
  return hn::Mul(a, b);
}

template <BinaryKind kind, class A, class B>
void quantized_binary_of(const QuantizedBinary& step, const void* a, const void* b, uint8_t* q,
                         int64_t n) {
  using EA = typename A::Element;
  using EB = typename B::Element;
  const A tile_a(step.a);
  const B tile_b(step.b);
  const auto vector = [&](const EA* u, const EB* v)
                          HWY_ATTR { return combined<kind>(tile_a(u), tile_b(v)); };
  const auto *from_a = static_cast<const EA*>(a), *end_a = from_a + n;
  const auto* from_b = static_cast<const EB*>(b);
  const int64_t done = quantize_bytes(
      step.low, step.high, [&](int64_t i) HWY_ATTR { return vector(from_a + i, from_b + i); }, q, n,
      step.scale, step.zero);
  // The rest by blocks that are copied, since whole vectors would be read behind it.
  const hn::ScalableTag<float> d;
  constexpr size_t kBlock = 4 * hn::MaxLanes(d);
  const QuantizeLoop loop{.real = TENON_DTYPE_F32,
                          .integer = TENON_DTYPE_U8,
                          .low = step.low,
                          .high = step.high,
                          .nontemporal = false};
  for (from_a += done, from_b += done, q += done; from_a < end_a;) {
    const size_t count = std::min(kBlock, static_cast<size_t>(end_a - from_a));
    EA block_a[kBlock] = {};
    EB block_b[kBlock] = {};
    float x[kBlock];
    std::memcpy(block_a, from_a, count * sizeof(EA));
    std::memcpy(block_b, from_b, count * sizeof(EB));
    for (size_t i = 0; i < count; i += hn::Lanes(d))
      hn::StoreU(vector(block_a + i, block_b + i), d, x + i);
    const auto rest = static_cast<int64_t>(count);
    if (step.low < 0)
      quantize_run<false>(loop, x, reinterpret_cast<int8_t*>(q), rest, &step.scale, &step.zero);
    else
      quantize_run<false>(loop, x, q, rest, &step.scale, &step.zero);
    from_a += count, from_b += count, q += count;
  }
}

template <BinaryKind kind>
void quantized_binary_kind(const QuantizedBinary& step, const void* a, const void* b, uint8_t* q,
                           int64_t n) {
  if (step.a.bytes && step.b.bytes)
    quantized_binary_of<kind, ByteTile, ByteTile>(step, a, b, q, n);
  else if (step.a.bytes)
    quantized_binary_of<kind, ByteTile, FloatTile>(step, a, b, q, n);
  else if (step.b.bytes)
    quantized_binary_of<kind, FloatTile, ByteTile>(step, a, b, q, n);
  else
    quantized_binary_of<kind, FloatTile, FloatTile>(step, a, b, q, n);
}

void quantized_binary_target(const QuantizedBinary& step, const void* a, const void* b, uint8_t* q,
                             int64_t n) {
  switch (step.kind) {
    case BinaryKind::add:
      return quantized_binary_kind<BinaryKind::add>(step, a, b, q, n);
    case BinaryKind::sub:
      return quantized_binary_kind<BinaryKind::sub>(step, a, b, q, n);
    default:
      return quantized_binary_kind<BinaryKind::mul>(step, a, b, q, n);
  }
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {

HWY_EXPORT(quantized_binary_target);

std::optional<QuantizedBinary::Operand> dequantized_operand(const sdk::op::dequantize& n,
                                                            tenon_dtype out) {
  const tenon_dtype q = n.q.type().dtype;
  if (out != TENON_DTYPE_F32 || (q != TENON_DTYPE_I8 && q != TENON_DTYPE_U8)) return {};
  QuantizedBinary::Operand o{.bytes = true, .scale = number_of<float>(n.scale, "scale")};
  if (n.zero_point) o.zero = number_of<int32_t>(n.zero_point, "zero_point");
  if (q == TENON_DTYPE_I8) o.flip = 0x80, o.zero += 128;
  return o;
}

std::optional<QuantizedBinary> quantized_binary(const sdk::op::binary& n,
                                                const sdk::op::quantize& q, tenon_dtype out) {
  QuantizedBinary step{.kind = find_binary(n.kind)};
  QuantizeLoop range{.real = TENON_DTYPE_F32, .integer = out, .nontemporal = false};
  constexpr BinaryKind kKinds[] = {BinaryKind::add, BinaryKind::sub, BinaryKind::mul};
  if (std::ranges::find(kKinds, step.kind) == std::end(kKinds) ||
      q.x.type().dtype != TENON_DTYPE_F32 || (out != TENON_DTYPE_I8 && out != TENON_DTYPE_U8) ||
      !find_range(out, &range))
    return {};
  step.low = range.low, step.high = range.high;
  step.scale = number_of<float>(q.scale, "scale");
  if (q.zero_point) step.zero = number_of<float>(q.zero_point, "zero_point");
  return step;
}

TileOp quantized_binary_tiles(const QuantizedBinary& step) {
  return [step](const void* const* x, void* y, int64_t n) {
    HWY_DYNAMIC_DISPATCH(quantized_binary_target)(step, x[0], x[1], static_cast<uint8_t*>(y), n);
  };
}

}  // namespace tenon::cpu
#endif
