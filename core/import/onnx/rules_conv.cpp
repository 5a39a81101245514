// SPDX-License-Identifier: Apache-2.0
// Rules for convolutions of floats and of integers.
#include "import/onnx/helpers.hpp"
#include "import/onnx/window.hpp"

namespace tenon::core::onnx {
namespace {

// The window of a node whose weights [.., .., kernel..] are input `w`.
Window conv_window(const Call& c, size_t x, size_t w) {
  const Shape s = c.shape(x), k = c.shape(w);
  if (s.rank() < 3 || k.rank() != s.rank())
    c.wrong("expected [N, C, spatial..] and weights of the same rank, got ", s.text(), " and ",
            k.text());
  if (s.rank() > 5) c.refuse("convolutions over ", s.rank() - 2, " axes");
  const Ints kernel = spatial_dims(k);
  if (c.has_attr("kernel_shape") && c.is("kernel_shape") != kernel)
    c.wrong("attribute kernel_shape: expected that of the weights, ", k.text());
  return window_of(c, spatial_dims(s), kernel);
}

Value convolved(const Call& c, Value x, Value w, Value bias, const Window& window) {
  return c.b.add(op::conv{.stride = window.stride,
                          .pads = window.pads(),
                          .dilation = window.dilation,
                          .groups = c.i("group", 1),
                          .x = x,
                          .w = w,
                          .bias = bias});
}

void conv(Call& c) {
  c.out(convolved(c, c.value(0), c.value(1), c.value_or_none(2), conv_window(c, 0, 1)));
}

// Padding of a transpose says what is cut off its result.
void conv_transpose(Call& c) {
  const Ints given = c.sane(c.is("output_padding"), "attribute output_padding");
  const Ints to = c.sane(c.is("output_shape"), "attribute output_shape");
  const std::string how = c.s("auto_pad", "NOTSET");
  Window w = conv_window(c, 0, 1);
  const Ints spatial = spatial_dims(c.shape(0));
  Ints more = given.empty() ? Ints(w.axes(), 0) : given;
  if (more.size() != w.axes())
    c.wrong("attribute output_padding: expected ", w.axes(), " numbers, got ", more.size());
  if (!to.empty() && to.size() < w.axes())
    c.wrong("attribute output_shape: expected ", w.axes(), " numbers, got ", to.size());
  const bool same = how == "SAME_UPPER" || how == "SAME_LOWER";
  for (size_t k = 0; k < w.axes(); ++k) {
    if (to.empty() && !same) continue;
    // output_shape may begin with N and C.
    const int64_t size = to.empty() ? spatial[k] * w.stride[k] : to[to.size() - w.axes() + k];
    const int64_t full =
        w.stride[k] * (spatial[k] - 1) + more[k] + w.dilation[k] * (w.kernel[k] - 1) + 1;
    int64_t cut = full - size;
    if (cut < 0) more[k] -= cut, cut = 0;
    w.before[k] = how == "SAME_UPPER" ? cut / 2 : cut - cut / 2;
    w.after[k] = cut - w.before[k];
  }
  c.out(c.b.add(op::conv_transpose{.stride = w.stride,
                                   .pads = w.pads(),
                                   .dilation = w.dilation,
                                   .groups = c.i("group", 1),
                                   .output_padding = more,
                                   .x = c.value(0),
                                   .w = c.value(1),
                                   .bias = c.value_or_none(2)}));
}

void col2im(Call& c) {
  const Ints image = c.ints(1, "image_shape"), block = c.ints(2, "block_shape");
  const Window w = window_of(c, image, block);
  c.out(c.b.add(op::col2im{.kernel = w.kernel,
                           .stride = w.stride,
                           .pads = w.pads(),
                           .dilation = w.dilation,
                           .layout = "unfold",
                           .size = image,
                           .columns = c.value(0)}));
}

// ---- integers

// The convolution of inputs `x` and `w` with their zero points; what follows the sums is absent.
op::qconv integer_conv(const Call& c, size_t x, size_t zero_x, size_t w, size_t zero_w) {
  const Window window = conv_window(c, x, w);
  return {.stride = window.stride,
          .pads = window.pads(),
          .dilation = window.dilation,
          .groups = c.i("group", 1),
          .x = c.value(x),
          .w = c.value(w),
          .x_zero = c.value_or_none(zero_x),
          .w_zero = c.value_or_none(zero_w)};
}

void conv_integer(Call& c) { c.out(c.b.add(integer_conv(c, 0, 2, 1, 3))); }

void qlinear_conv(Call& c) {
  Builder& b = c.b;
  op::qconv n = integer_conv(c, 0, 2, 3, 5);
  n.to = c.dtype(7);
  n.bias = c.value_or_none(8);
  n.y_zero = c.value(7);
  n.multiplier = requantizing_scale(b, c.value(1), c.value(4), c.value(6));
  c.out(b.add(n));
}

// A depthwise convolution along the last axis that sees the past alone.
void causal_conv(Call& c) {
  Builder& b = c.b;
  const Shape s = c.shape(0), w = c.shape(1);
  if (s.rank() != 3 || w.rank() != 3)
    c.wrong("expected inputs of rank 3, got ", s.text(), " and ", w.text());
  const int64_t past = w[2] - 1;
  const Value before = c.has(3) ? c.value(3) : b.zeros({c.dtype(0), {s[0], s[1], past}});
  const Value x = b.concat({before, c.value(0)}, 2);
  const std::string activation = c.s("activation", "none");
  if (activation != "none" && activation != "silu" && activation != "swish")
    c.wrong("attribute activation: expected none, silu or swish, got '", activation, "'");
  c.out(0, b.add(op::conv{.groups = s[1],
                          .act = activation == "none" ? "none" : "silu",
                          .x = x,
                          .w = c.value(1),
                          .bias = c.value_or_none(2)}));
  c.out(1, b.narrow(x, 2, b.shape(x)[2] - past, past));
}

constexpr Rule kRules[] = {
    {"Conv", 1, conv},
    {"ConvTranspose", 1, conv_transpose},
    {"Col2Im", 18, col2im},
    {"ConvInteger", 10, conv_integer},
    {"QLinearConv", 10, qlinear_conv},
    {"CausalConvWithState", 27, causal_conv},
};

}  // namespace

std::span<const Rule> conv_rules() { return kRules; }

}  // namespace tenon::core::onnx
