// SPDX-License-Identifier: Apache-2.0
// Rules: softmax and its kin.
#include "import/onnx/helpers.hpp"

namespace tenon::core::onnx {
namespace {

// Before opset 13 all axes from `axis` on count as one. Calls row(x, axis) with such a view.
template <class Row>
void along(Call& c, Row&& row) {
  Builder& b = c.b;
  const Shape s = c.shape(0);
  const bool flattens = c.opset < 13;
  const int axis = c.axis(c.i("axis", flattens ? 1 : -1), s.rank());
  if (!flattens || axis == s.rank() - 1) return c.out(row(c.value(0), axis));
  const Value x = b.reshape(c.value(0), {product(s, 0, axis), product(s, axis, s.rank())});
  c.out(b.reshape(row(x, 1), s));
}

template <bool log>
void softmax(Call& c) {
  along(c, [&](Value x, int axis) {
    return Value(c.b.add(op::softmax{.axis = axis, .log = log, .x = x}));
  });
}

// 1 at the first largest element, 0 elsewhere.
void hardmax(Call& c) {
  Builder& b = c.b;
  along(c, [&](Value x, int axis) {
    const Value best = b.add(op::argmax{.axis = axis, .keepdims = true, .x = x});
    Shape line;
    for (int k = 0; k < b.shape(x).rank(); ++k) line.push(k == axis ? b.shape(x)[k] : 1);
    return b.cast(b.compare("eq", b.iota(line, axis, kI64), best), b.dtype(x));
  });
}

constexpr Rule kRules[] = {
    {"Softmax", 1, softmax<false>},
    {"LogSoftmax", 1, softmax<true>},
    {"Hardmax", 1, hardmax},
};

}  // namespace

std::span<const Rule> softmax_rules() { return kRules; }

}  // namespace tenon::core::onnx
