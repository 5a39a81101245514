// SPDX-License-Identifier: Apache-2.0
// Rules: random numbers. ONNX defines their distribution only. Here each node has a constant seed:
// the attribute, or a number made of the node's name. So each run gives the same numbers.
#include <cstring>

#include "import/onnx/helpers.hpp"

namespace tenon::core::onnx {
namespace {

Value seed_of(Call& c) {
  uint64_t seed = 0xcbf29ce484222325u;  // FNV-1a
  if (const Attribute* a = c.attr("seed")) {
    uint32_t bits = 0;
    std::memcpy(&bits, &a->f, sizeof bits);
    seed = bits;
  } else {
    for (const char ch : cat(c.scope.where, name_of(c.node)))
      seed = (seed ^ static_cast<uint8_t>(ch)) * 0x100000001b3u;
  }
  return c.constant(known_vector({static_cast<int64_t>(seed), 0}));
}

// The result's dtype: the attribute, else that of the input.
DType dtype_of(const Call& c, bool like) {
  if (like && !c.has_attr("dtype")) return c.dtype(0);
  return c.dtype_attr("dtype", 1);
}
Ints dims_of_result(const Call& c, bool like) {
  if (like) return dims_of(c.shape(0));
  if (!c.has_attr("shape")) c.wrong("attribute shape is required");
  const Ints dims = c.is("shape");
  count_of(dims);
  return dims;
}
// The random ops draw f32 and f64.
DType drawn(DType t) { return t == kF64 ? kF64 : kF32; }

template <bool like>
void normal(Call& c) {
  Builder& b = c.b;
  const DType t = dtype_of(c, like);
  if (!is_float(t)) c.wrong("expected a float, got ", dtype_name(t));
  const Value x = b.add(
      op::random_normal{.shape = dims_of_result(c, like), .dtype = drawn(t), .rng = seed_of(c)});
  c.out(b.cast(b.plus(b.times(x, c.f("scale", 1)), c.f("mean", 0)), t));
}

template <bool like>
void uniform(Call& c) {
  Builder& b = c.b;
  const DType t = dtype_of(c, like);
  if (!is_float(t)) c.wrong("expected a float, got ", dtype_name(t));
  const double low = c.f("low", 0), high = c.f("high", 1);
  const Value x = b.add(
      op::random_uniform{.shape = dims_of_result(c, like), .dtype = drawn(t), .rng = seed_of(c)});
  c.out(b.cast(b.plus(b.times(x, high - low), low), t));
}

// 1 with the probability that the input gives.
void bernoulli(Call& c) {
  Builder& b = c.b;
  const DType t = dtype_of(c, true);
  const Value p = b.widen(c.value(0));
  const Value x = b.add(
      op::random_uniform{.shape = dims_of(c.shape(0)), .dtype = b.dtype(p), .rng = seed_of(c)});
  c.out(b.cast(b.compare("lt", x, p), t));
}

constexpr Rule kRules[] = {
    {"RandomNormal", 1, normal<false>},   {"RandomNormalLike", 1, normal<true>},
    {"RandomUniform", 1, uniform<false>}, {"RandomUniformLike", 1, uniform<true>},
    {"Bernoulli", 15, bernoulli},
};

}  // namespace

std::span<const Rule> random_rules() { return kRules; }

}  // namespace tenon::core::onnx
