// SPDX-License-Identifier: Apache-2.0
// conv conv_transpose conv_backward_input conv_backward_weight (specification, domain operators,
// section 6). All four join x, w and y by the same sum of products; each solves it for one of them.
#include "ops/conv.hpp"

#include <algorithm>

#include "ops/activation.hpp"
#include "ops/padded.hpp"
#include "ops/table.hpp"

namespace tenon::core {
namespace {

template <class Op>
Conv conv_of(const Op& n, const Shape& x, const Shape& w) {
  return {x[0], x[1], w[0], n.groups, axes_of(n, spatial(w), spatial(x))};
}

// ---- shape

void want_groups(const Infer& i, int64_t groups, int64_t channels, std::string_view operand) {
  if (groups < 1)
    i.fail(Code::invalid_argument, "attribute groups: expected a number >= 1, given ", groups);
  if (channels % groups != 0)
    i.fail(Code::shape_mismatch, "operand ", operand, ": expected a multiple of ", groups,
           " groups of channels, got ", channels);
}

// The operands that an op has of x and w: floats of one dtype and rank.
void want_pair(const Infer& i, Value a, std::string_view name_a, Value b, std::string_view name_b) {
  i.want_float(a, name_a);
  i.want_same_dtype(a, name_a, b, name_b);
  want_image(i, a, name_a);
  i.want_rank(b, name_b, i.shape(a).rank());
}

void want_bias(const Infer& i, Value bias, DType dtype, int64_t channels) {
  if (!bias) return;
  if (i.dtype(bias) != dtype && i.dtype(bias) != kF32)
    i.fail(Code::dtype_mismatch, "operand bias: expected ", dtype_name(dtype), " or f32, got ",
           i.type(bias).text());
  i.want_shape(bias, "bias", {channels});
}

void conv_shape(Infer& i, const op::conv& n) {
  want_pair(i, n.x, "x", n.w, "w");
  const Shape &x = i.shape(n.x), &w = i.shape(n.w);
  want_groups(i, n.groups, x[1], "x");
  want_groups(i, n.groups, w[0], "w");
  if (w[1] != x[1] / n.groups)
    i.fail(Code::shape_mismatch, "operand w: expected ", x[1] / n.groups,
           " channels along axis 1, as in a group of x ", i.type(n.x).text(), ", got ",
           i.type(n.w).text());
  want_windows(i, want_axes(i, n, spatial(w), spatial(x)));
  const Type y{i.dtype(n.x), sized(i, conv_of(n, x, w).y())};
  want_bias(i, n.bias, y.dtype, w[0]);
  if (n.residual) {
    i.want_dtype(n.residual, "residual", y.dtype);
    i.want_shape(n.residual, "residual", y.shape);
  }
  want_act(i, n.act, n.act_alpha, n.act_beta);
  i.out(0, y);
  i.out(1, y);
}

void conv_backward_input_shape(Infer& i, const op::conv_backward_input& n) {
  want_pair(i, n.dy, "dy", n.w, "w");
  const Shape &dy = i.shape(n.dy), &w = i.shape(n.w);
  want_groups(i, n.groups, w[0], "w");
  want_entries(i, "size", n.size, static_cast<size_t>(dy.rank() - kConvFirst), 1);
  want_windows(i, want_axes(i, n, spatial(w), n.size));
  if (w[1] > std::numeric_limits<int64_t>::max() / n.groups)
    i.fail(Code::invalid_argument, "attribute groups: ", n.groups, " groups of ", w[1],
           " channels overflow");
  const Conv c = conv_of(n, image_shape(dy[0], w[1] * n.groups, n.size), w);
  i.want_shape(n.dy, "dy", c.y());
  i.out(0, {i.dtype(n.dy), sized(i, c.x())});
}

void conv_backward_weight_shape(Infer& i, const op::conv_backward_weight& n) {
  want_pair(i, n.dy, "dy", n.x, "x");
  const Shape &dy = i.shape(n.dy), &x = i.shape(n.x);
  want_groups(i, n.groups, x[1], "x");
  want_groups(i, n.groups, dy[1], "dy");
  want_entries(i, "kernel", n.kernel, static_cast<size_t>(dy.rank() - kConvFirst), 1);
  want_windows(i, want_axes(i, n, n.kernel, spatial(x)));
  const Shape w = image_shape(dy[1], x[1] / n.groups, n.kernel);
  i.want_shape(n.dy, "dy", conv_of(n, x, w).y());
  i.out(0, {i.dtype(n.dy), sized(i, w)});
}

// The convolution of which conv_transpose is the transpose: its y is x, its x is the result.
Conv transposed_conv(const op::conv_transpose& n, const Shape& x, const Shape& w) {
  Conv c{x[0], w[1] * n.groups, x[1], n.groups, axes_of(n, spatial(w), spatial(x))};
  for (size_t k = 0; k < c.axes.size(); ++k) {
    ConvAxis& a = c.axes[k];
    const int64_t more = n.output_padding.empty() ? 0 : n.output_padding[k];
    a.size = a.stride * (a.size - 1) + a.extent() - a.before - a.after + more;
    // The windows of this convolution are the pixels of x: what would hold more is no padding.
    a.after = a.stride * (x[kConvFirst + static_cast<int>(k)] - 1) + a.extent() - a.size - a.before;
  }
  return c;
}

void conv_transpose_shape(Infer& i, const op::conv_transpose& n) {
  want_pair(i, n.x, "x", n.w, "w");
  const Shape &x = i.shape(n.x), &w = i.shape(n.w);
  want_groups(i, n.groups, x[1], "x");
  if (w[0] != x[1])
    i.fail(Code::shape_mismatch, "operand w: expected ", x[1], " channels along axis 0, as in x ",
           i.type(n.x).text(), ", got ", i.type(n.w).text());
  const ConvAxes axes = want_axes(i, n, spatial(w), spatial(x));
  if (!n.output_padding.empty())
    want_entries(i, "output_padding", n.output_padding, axes.size(), 0);
  for (size_t k = 0; k < axes.size(); ++k) {
    const ConvAxis& a = axes[k];
    if (a.size > std::numeric_limits<int32_t>::max())
      i.fail(Code::shape_mismatch,
             "operand x: expected at most 2^31 - 1 pixels along spatial axis ", k, ", got ",
             a.size);
    if (!n.output_padding.empty() && n.output_padding[k] >= std::max(a.stride, a.dilation))
      i.fail(Code::invalid_argument, "attribute output_padding: expected less than ",
             std::max(a.stride, a.dilation),
             ", the larger of stride and dilation, along spatial "
             "axis ",
             k, ", given ", text_of(n.output_padding));
  }
  if (w[1] > std::numeric_limits<int64_t>::max() / n.groups)
    i.fail(Code::invalid_argument, "attribute groups: ", n.groups, " groups of ", w[1],
           " channels overflow");
  const Conv c = transposed_conv(n, x, w);
  for (size_t k = 0; k < axes.size(); ++k)
    if (c.axes[k].size < 1)
      i.fail(Code::invalid_argument, "attribute pads: the result has ", c.axes[k].size,
             " pixels along spatial axis ", k, ", given ", text_of(n.pads));
  want_bias(i, n.bias, i.dtype(n.x), c.c);
  i.out(0, {i.dtype(n.x), sized(i, c.x())});
}

// ---- decomposition: products over columns (conv_columns.cpp)

// A vector of channels, to be added to an image.
Value along_channels(Builder& b, Value bias, size_t axes) {
  return b.reshape(bias, image_shape(1, b.shape(bias)[0], Ints(axes, 1)));
}

bool conv_lower(Lower& l, const op::conv& n) {
  Builder& b = l.b;
  const DType t = l.type(n.x).dtype;
  const Conv c = conv_of(n, b.shape(n.x), b.shape(n.w));
  Value z = products(b, n.x, n.w, c);
  const DType wide = b.dtype(z);
  if (n.bias) z = b.plus(z, along_channels(b, b.cast(n.bias, wide), c.axes.size()));
  if (n.residual) z = b.plus(z, b.cast(n.residual, wide));
  if (l.wanted(1)) l.out(1, b.cast(z, t));
  if (n.act != "none")
    z = b.add(op::unary{.kind = n.act, .alpha = n.act_alpha, .beta = n.act_beta, .x = z});
  l.out(0, b.cast(z, t));
  return true;
}

bool conv_backward_input_lower(Lower& l, const op::conv_backward_input& n) {
  const Shape dy = l.b.shape(n.dy), w = l.b.shape(n.w);
  const Conv c = conv_of(n, image_shape(dy[0], w[1] * n.groups, n.size), w);
  l.out(0, l.b.cast(transposed_products(l.b, n.dy, n.w, c), l.type(n.dy).dtype));
  return true;
}

bool conv_transpose_lower(Lower& l, const op::conv_transpose& n) {
  Builder& b = l.b;
  const Conv c = transposed_conv(n, b.shape(n.x), b.shape(n.w));
  Value y = transposed_products(b, n.x, n.w, c);
  if (n.bias) y = b.plus(y, along_channels(b, b.cast(n.bias, b.dtype(y)), c.axes.size()));
  l.out(0, b.cast(y, l.type(n.x).dtype));
  return true;
}

bool conv_backward_weight_lower(Lower& l, const op::conv_backward_weight& n) {
  Builder& b = l.b;
  const Shape x = b.shape(n.x);
  const Conv c = conv_of(n, x, image_shape(b.shape(n.dy)[1], x[1] / n.groups, n.kernel));
  l.out(0, b.cast(weight_products(b, n.dy, n.x, c), l.type(n.x).dtype));
  return true;
}

// ---- gradient

template <class To, class From>
To same_windows(const From& n) {
  To to{};
  to.stride = n.stride, to.pads = n.pads, to.dilation = n.dilation, to.groups = n.groups;
  return to;
}

Value input_of(Builder& b, op::conv_backward_input n, Value dy, Value w, const Ints& size) {
  n.size = size, n.dy = dy, n.w = w;
  return b.add(n);
}
Value weight_of(Builder& b, op::conv_backward_weight n, Value dy, Value x, const Ints& kernel) {
  n.kernel = kernel, n.dy = dy, n.x = x;
  return b.add(n);
}
Value result_of(Builder& b, op::conv n, Value x, Value w) {
  n.x = x, n.w = w;
  return b.add(n);
}

void give_bias(Grad& g, Value bias, Value dz) {
  if (!g.wants(bias)) return;
  const Type type = g.b.type(bias);
  Ints axes{0};
  for (int k = kConvFirst; k < g.b.shape(dz).rank(); ++k) axes.push_back(k);
  const Value rows = type.dtype == g.b.dtype(dz) ? dz : g.b.widen(dz);
  g.give(bias, g.b.cast(g.b.sum(rows, axes, false), type.dtype));
}

void conv_grad(Grad& g, const op::conv& n) {
  Value dz = g.dy(0);
  if (dz && n.act != "none") {
    const bool from_output = find_unary(n.act)->from_output;
    dz = g.b.add(op::activation_backward{.kind = n.act,
                                         .alpha = n.act_alpha,
                                         .beta = n.act_beta,
                                         .from_output = from_output,
                                         .x = from_output ? g.y(0) : g.y(1),
                                         .dy = dz});
  }
  if (const Value saved = g.dy(1)) dz = dz ? g.b.plus(dz, saved) : saved;
  if (!dz) return;
  if (g.wants(n.residual)) g.give(n.residual, dz);
  give_bias(g, n.bias, dz);
  if (g.wants(n.x))
    g.give(n.x, input_of(g.b, same_windows<op::conv_backward_input>(n), dz, n.w,
                         spatial(g.b.shape(n.x))));
  if (g.wants(n.w))
    g.give(n.w, weight_of(g.b, same_windows<op::conv_backward_weight>(n), dz, n.x,
                          spatial(g.b.shape(n.w))));
}

void conv_backward_input_grad(Grad& g, const op::conv_backward_input& n) {
  if (g.wants(n.dy)) g.give(n.dy, result_of(g.b, same_windows<op::conv>(n), g.dy(), n.w));
  if (g.wants(n.w))
    g.give(n.w, weight_of(g.b, same_windows<op::conv_backward_weight>(n), n.dy, g.dy(),
                          spatial(g.b.shape(n.w))));
}

void conv_backward_weight_grad(Grad& g, const op::conv_backward_weight& n) {
  if (g.wants(n.dy)) g.give(n.dy, result_of(g.b, same_windows<op::conv>(n), n.x, g.dy()));
  if (g.wants(n.x))
    g.give(n.x, input_of(g.b, same_windows<op::conv_backward_input>(n), n.dy, g.dy(),
                         spatial(g.b.shape(n.x))));
}

void conv_transpose_grad(Grad& g, const op::conv_transpose& n) {
  Builder& b = g.b;
  give_bias(g, n.bias, g.dy());
  if (!g.wants(n.x) && !g.wants(n.w)) return;
  const Conv c = transposed_conv(n, b.shape(n.x), b.shape(n.w));
  if (!any_reached(c.axes)) {
    for (const Value v : {n.x, n.w})
      if (g.wants(v)) g.give(v, b.zeros(b.type(v)));
    return;
  }
  // Its windows over the upstream gradient are the pixels of x.
  auto forward = same_windows<op::conv>(n);
  auto weight = same_windows<op::conv_backward_weight>(n);
  forward.pads.resize(2 * c.axes.size());
  Value dy = g.dy();
  for (size_t k = 0; k < c.axes.size(); ++k) {
    const ConvAxis& a = c.axes[k];
    const int axis = kConvFirst + static_cast<int>(k);
    if (a.after < 0) dy = b.narrow(dy, axis, 0, a.size + a.after);  // what no window reaches
    forward.pads[k] = a.before, forward.pads[k + c.axes.size()] = std::max<int64_t>(a.after, 0);
  }
  weight.pads = forward.pads;
  if (g.wants(n.x)) g.give(n.x, result_of(b, forward, dy, n.w));
  if (g.wants(n.w)) g.give(n.w, weight_of(b, weight, n.x, dy, c.kernel()));
}

// ---- batch

// [examples, n, channels, ..] to [n, examples·channels, ..]: the examples become groups.
Value as_groups(Batch& v, Value operand) {
  const Shape one = v.type(operand).shape;
  Shape joined = one;
  joined[1] *= v.size();
  Ints perm{1, 0};
  for (int k = 1; k < one.rank(); ++k) perm.push_back(k + 1);
  return v.b.reshape(v.b.transpose(v.all(operand), perm), joined);
}
// [examples, channels, ..] to [examples·channels, ..].
Value from_groups(Batch& v, Value result, size_t k) {
  const Shape one = v.result(k);  // [examples, n, channels, ..]
  Shape apart{one[1], one[0]};
  Ints perm{1, 0};
  for (int a = 2; a < one.rank(); ++a) apart.push(one[a]), perm.push_back(a);
  return v.b.transpose(v.b.reshape(result, apart), perm);
}

// No examples make no groups: the results have no elements.
bool is_none(Batch& v, DType dtype, bool second = false) {
  if (v.size() > 0) return false;
  v.out(0, v.b.zeros({dtype, v.result(0)}));
  if (second) v.out(1, v.b.zeros({dtype, v.result(1)}));
  return true;
}

// Weights that all examples share: the batch joins N. Else each example is a group of its own.
bool conv_batch(Batch& v, const op::conv& n) {
  if (!v.batched(n.w) && !v.batched(n.bias))
    return v.add_folded(n, [&](Value x) { return x == n.w || x == n.bias ? v.given(x) : Value{}; });
  if (is_none(v, v.type(n.x).dtype, n.want_pre_act)) return true;
  op::conv m = n;
  m.groups *= v.size();
  m.x = as_groups(v, n.x), m.w = v.folded(n.w), m.bias = v.folded(n.bias);
  if (n.residual) m.residual = as_groups(v, n.residual);
  const Results made = v.b.add(m);
  for (size_t k = 0; k < made.outputs.size(); ++k)
    if (made.outputs[k]) v.out(k, from_groups(v, made.outputs[k], k));
  return true;
}

bool conv_transpose_batch(Batch& v, const op::conv_transpose& n) {
  if (!v.batched(n.w) && !v.batched(n.bias))
    return v.add_folded(n, [&](Value x) { return x == n.w || x == n.bias ? v.given(x) : Value{}; });
  if (is_none(v, v.type(n.x).dtype)) return true;
  op::conv_transpose m = n;
  m.groups *= v.size();
  m.x = as_groups(v, n.x), m.w = v.folded(n.w), m.bias = v.folded(n.bias);
  v.out(0, from_groups(v, v.b.add(m), 0));
  return true;
}

bool conv_backward_input_batch(Batch& v, const op::conv_backward_input& n) {
  if (!v.batched(n.w))
    return v.add_folded(n, [&](Value x) { return x == n.w ? v.given(x) : Value{}; });
  if (is_none(v, v.type(n.dy).dtype)) return true;
  op::conv_backward_input m = n;
  m.groups *= v.size();
  m.dy = as_groups(v, n.dy), m.w = v.folded(n.w);
  v.out(0, from_groups(v, v.b.add(m), 0));
  return true;
}

bool conv_backward_weight_batch(Batch& v, const op::conv_backward_weight& n) {
  if (is_none(v, v.type(n.dy).dtype)) return true;
  op::conv_backward_weight m = n;
  m.groups *= v.size();
  m.dy = as_groups(v, n.dy), m.x = as_groups(v, n.x);
  v.out(0, v.b.reshape(v.b.add(m), v.result(0)));
  return true;
}

// ---- padding: examples may be padded; where they are summed over, they count as zero

template <class Op>
bool conv_padded(Padded& p, const Op& n) {
  Value image;
  if constexpr (requires { n.dy; })
    image = n.dy;
  else
    image = n.x;
  if (p.any_from(image, 1)) return p.refuse("its channels or images are padded");
  if constexpr (requires { n.w; })
    if (p.any(n.w)) return p.refuse("its weights are padded");
  if constexpr (std::is_same_v<Op, op::conv_backward_weight>) {
    if (p.any_from(n.x, 1)) return p.refuse("its channels or images are padded");
    p.fill(n.x, 0, Fill::zero), p.fill(n.dy, 0, Fill::zero);
  }
  return true;
}

// ---- cost

// Two flops for each output of the forward op and each element of a filter.
double forward_flops(const Cost& c, Value y, Value w) {
  const double filters = static_cast<double>(c.shape(w)[0]);
  return 2 * c.elements(y) * c.elements(w) / std::max(filters, 1.0);
}
double conv_flops(const Cost& c, const op::conv& n) {
  return forward_flops(c, c.out(0) ? c.out(0) : c.out(1), n.w);
}
double conv_transpose_flops(const Cost& c, const op::conv_transpose& n) {
  return forward_flops(c, n.x, n.w);
}
double conv_backward_input_flops(const Cost& c, const op::conv_backward_input& n) {
  return forward_flops(c, n.dy, n.w);
}
double conv_backward_weight_flops(const Cost& c, const op::conv_backward_weight& n) {
  return forward_flops(c, n.dy, c.out(0));
}

constexpr Record<op::conv> kConv{.shape = conv_shape,
                                 .words = {{"act", kActWords}},
                                 .grad = conv_grad,
                                 .lower = conv_lower,
                                 .batch = conv_batch,
                                 .padded = conv_padded<op::conv>,
                                 .flops = conv_flops,
                                 .bytes = each_once};
constexpr Record<op::conv_transpose> kConvTranspose{.shape = conv_transpose_shape,
                                                    .grad = conv_transpose_grad,
                                                    .lower = conv_transpose_lower,
                                                    .batch = conv_transpose_batch,
                                                    .padded = conv_padded<op::conv_transpose>,
                                                    .flops = conv_transpose_flops,
                                                    .bytes = each_once};
constexpr Record<op::conv_backward_input> kConvBackwardInput{
    .shape = conv_backward_input_shape,
    .grad = conv_backward_input_grad,
    .lower = conv_backward_input_lower,
    .batch = conv_backward_input_batch,
    .padded = conv_padded<op::conv_backward_input>,
    .flops = conv_backward_input_flops,
    .bytes = each_once};
constexpr Record<op::conv_backward_weight> kConvBackwardWeight{
    .shape = conv_backward_weight_shape,
    .grad = conv_backward_weight_grad,
    .lower = conv_backward_weight_lower,
    .batch = conv_backward_weight_batch,
    .padded = conv_padded<op::conv_backward_weight>,
    .flops = conv_backward_weight_flops,
    .bytes = each_once};

}  // namespace

constinit const OpRecord conv_def = record<op::conv, kConv>();
constinit const OpRecord conv_transpose_def = record<op::conv_transpose, kConvTranspose>();
constinit const OpRecord conv_backward_input_def =
    record<op::conv_backward_input, kConvBackwardInput>();
constinit const OpRecord conv_backward_weight_def =
    record<op::conv_backward_weight, kConvBackwardWeight>();

}  // namespace tenon::core
