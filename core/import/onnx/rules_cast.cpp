// SPDX-License-Identifier: Apache-2.0
// Rules: conversions between dtypes, and nodes that only pass values on.
#include "import/onnx/helpers.hpp"

namespace tenon::core::onnx {
namespace {

void cast_to(Call& c, DType to) {
  const DType from = c.dtype(0);
  if (is_complex(to) || is_complex(from)) c.refuse("casts of complex numbers");
  if (can_be_known(from) && can_be_known(to) && c.known(0) && c.known(0)->size() <= kMostKnown)
    return c.out(known_cast(*c.known(0), to));
  Value x = c.value(0);
  // Integers of 4 bits wrap, also from floats.
  if (sdk::is_nibble(to) && is_float(from)) x = c.b.cast(x, kI32);
  c.out(from == to ? x
                   : Value(c.b.add(
                         op::cast{.to = to,
                                  .saturate = (to == TENON_DTYPE_F8E4M3 || to == TENON_DTYPE_F8E5M2)
                                                  ? c.flag("saturate", true)
                                                  : true,
                                  .x = x})));
}

void cast(Call& c) {
  if (!c.has_attr("to")) c.wrong("attribute to is required");
  cast_to(c, c.dtype_attr("to", 0));
}
void cast_like(Call& c) { cast_to(c, c.dtype(1)); }

// The same bits as another dtype. Integers of one width wrap to each other.
void bit_cast(Call& c) {
  if (!c.has_attr("to")) c.wrong("attribute to is required");
  const DType from = c.dtype(0), to = c.dtype_attr("to", 0);
  if (tenon_dtype_bits(from) != tenon_dtype_bits(to))
    c.wrong("attribute to: expected a dtype of ", tenon_dtype_bits(from), " bits, got ",
            dtype_name(to));
  if (from == to) return c.out_item(0, c.item(0));
  if (const Known* x = c.known(0); x && can_be_known(to) && to != kBool)
    return c.out(known_from(to, x->dims, content_of(*x)));
  const bool integers = (is_integer(from) || from == kBool) && is_integer(to);
  if (!integers) c.refuse("the bits of ", dtype_name(from), " as ", dtype_name(to));
  c.out(c.b.cast(c.value(0), to));
}

void identity(Call& c) { c.out_item(0, c.item(0)); }

// Inference: the mask is all true. In training mode with a ratio of 0, likewise.
void dropout(Call& c) {
  if (c.opset >= 12 && c.has(2)) {
    const Known* training = c.known(2);
    const bool nothing =
        c.has(1) && c.known(1) && c.known(1)->size() == 1 && c.known(1)->number(0) == 0;
    if (!nothing && (!training || training->size() != 1 || training->ints[0] != 0))
      c.refuse("training mode draws random numbers, which ONNX does not define");
  }
  c.out_item(0, c.item(0));
  if (c.wants(1))
    c.out(1, c.b.expand(c.constant(known_full(c.opset >= 10 ? kBool : c.dtype(0), {}, 1)),
                        c.shape(0)));
}

constexpr Rule kRules[] = {
    {"Cast", 6, cast},         {"CastLike", 15, cast_like}, {"BitCast", 26, bit_cast},
    {"Identity", 1, identity}, {"Dropout", 7, dropout},
};

}  // namespace

std::span<const Rule> cast_rules() { return kRules; }

}  // namespace tenon::core::onnx
