// SPDX-License-Identifier: Apache-2.0
// Rules for activations, element by element.
#include "import/onnx/helpers.hpp"

namespace tenon::core::onnx {
namespace {

template <Kind kind>
void plain(Call& c) {
  c.out(c.b.unary(std::string_view(kind), c.value(0)));
}

void relu(Call& c) {
  if (c.folds())
    if (auto known = known_binary("max", *c.known(0), known_full(c.dtype(0), {}, 0)))
      return c.out(std::move(*known));
  if (is_float(c.dtype(0))) return plain<"relu">(c);
  c.out(c.b.max(c.value(0), c.b.scalar_int(c.dtype(0), 0)));
}

Value with_parameters(Call& c, std::string_view kind, double alpha, double beta = TENON_UNSET) {
  return c.b.add(
      op::unary{.kind = std::string(kind), .alpha = alpha, .beta = beta, .x = c.value(0)});
}

void leaky_relu(Call& c) { c.out(with_parameters(c, "leaky_relu", c.f("alpha", 0.01f))); }
void elu(Call& c) { c.out(with_parameters(c, "elu", c.f("alpha", 1.0))); }
void selu(Call& c) {
  c.out(with_parameters(c, "selu", c.f("alpha", 1.67326319217681884765625),
                        c.f("gamma", 1.05070102214813232421875)));
}
void hard_sigmoid(Call& c) {
  c.out(with_parameters(c, "hard_sigmoid", c.f("alpha", 0.2f), c.f("beta", 0.5)));
}
void swiglu(Call& c) {
  c.out(c.b.times(with_parameters(c, "silu", c.f("alpha", 1.0)), c.value(1)));
}
void swish(Call& c) { c.out(with_parameters(c, "silu", c.f("alpha", 1.0))); }
void gelu(Call& c) {
  const std::string how = c.s("approximate", "none");
  if (how != "none" && how != "tanh")
    c.wrong("attribute approximate: expected none or tanh, got '", how, "'");
  c.out(c.b.unary(how == "tanh" ? "gelu_tanh" : "gelu", c.value(0)));
}

// alpha·elu(x/alpha)
void celu(Call& c) {
  Builder& b = c.b;
  const double alpha = c.f("alpha", 1.0);
  const Value w = b.over(b.widen(c.value(0)), alpha);
  c.out(b.cast(b.times(b.unary("elu", w), alpha), c.dtype(0)));
}

void thresholded_relu(Call& c) {
  Builder& b = c.b;
  const Value x = c.value(0), zero = b.scalar(b.dtype(x), 0);
  c.out(b.where(b.compare("gt", x, c.f("alpha", 1.0)), x, zero));
}

void shrink(Call& c) {
  Builder& b = c.b;
  const double lambda = c.f("lambd", 0.5), bias = c.f("bias", 0.0);
  const Value given = c.value(0);
  const Value x = is_float(c.dtype(0)) ? b.widen(given) : b.cast(given, kF64);
  const Value zero = b.scalar(b.dtype(x), 0);
  const Value y = b.where(b.compare("lt", x, -lambda), b.plus(x, bias),
                          b.where(b.compare("gt", x, lambda), b.minus(x, bias), zero));
  c.out(b.cast(y, c.dtype(0)));
}

void prelu(Call& c) {
  Builder& b = c.b;
  const Value x = c.value(0);
  c.out(b.where(b.compare("lt", x, b.scalar_int(b.dtype(x), 0)), b.times(x, c.value(1)), x));
}

void clip(Call& c) {
  Builder& b = c.b;
  const DType t = c.dtype(0);
  if (c.opset >= 11 && c.folds()) {
    std::optional<Known> y = *c.known(0);
    if (c.has(1)) y = known_binary("max", *y, *c.known(1));
    if (c.has(2) && y) y = known_binary("min", *y, *c.known(2));
    if (y) return c.out(std::move(*y));
  }
  Value y = c.value(0);
  if (c.opset < 11) {
    if (c.has_attr("min")) y = b.max(y, b.scalar(t, c.f("min", 0)));
    if (c.has_attr("max")) y = b.min(y, b.scalar(t, c.f("max", 0)));
  } else {
    const Value low = c.value_or_none(1), high = c.value_or_none(2);
    for (Value limit : {low, high})
      if (limit && b.shape(limit).elements() != 1) c.wrong("a limit: expected one element");
    if (low) y = b.max(y, b.reshape(low, {}));
    if (high) y = b.min(y, b.reshape(high, {}));
  }
  c.out_item(0, Item{.value = y});
}

constexpr Rule kRules[] = {
    {"Relu", 6, relu},
    {"LeakyRelu", 6, leaky_relu},
    {"PRelu", 7, prelu},
    {"Elu", 6, elu},
    {"Celu", 12, celu},
    {"Selu", 6, selu},
    {"Sigmoid", 6, plain<"sigmoid">},
    {"HardSigmoid", 6, hard_sigmoid},
    {"HardSwish", 14, plain<"hard_swish">},
    {"Tanh", 6, plain<"tanh">},
    {"Softplus", 1, plain<"softplus">},
    {"Softsign", 1, plain<"softsign">},
    {"Mish", 18, plain<"mish">},
    {"Gelu", 20, gelu},
    {"Swish", 24, swish},
    {"SwiGLU", 28, swiglu},
    {"ThresholdedRelu", 10, thresholded_relu},
    {"Shrink", 9, shrink},
    {"Clip", 6, clip},
};

}  // namespace

std::span<const Rule> activation_rules() { return kRules; }

}  // namespace tenon::core::onnx
