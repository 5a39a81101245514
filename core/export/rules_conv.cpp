// SPDX-License-Identifier: Apache-2.0
// Convolutions and pools as nodes of ONNX.
#include <algorithm>

#include "export/call.hpp"

namespace tenon::core::onnx {
namespace {

// ---- convolutions

template <class Op>
std::vector<Attribute> window_attributes(const Op& n) {
  std::vector<Attribute> out;
  if (!n.stride.empty()) out.push_back(attribute("strides", n.stride));
  if (!n.pads.empty()) out.push_back(attribute("pads", n.pads));
  if (!n.dilation.empty()) out.push_back(attribute("dilations", n.dilation));
  return out;
}

void write_conv(Call& c) {
  const auto n = decode<op::conv>(c.node);
  Emitter& e = c.e;
  const DType t = c.dtype(n.x), wide = n.bias && c.dtype(n.bias) != t ? kF32 : t;
  std::vector<Attribute> attributes = window_attributes(n);
  attributes.push_back(attribute("group", n.groups));
  Ref z = e.add("Conv", {e.cast(c.in(n.x), wide), e.cast(c.in(n.w), wide), c.in(n.bias)},
                std::move(attributes));
  if (n.residual) z = e.add("Add", {z, e.cast(c.in(n.residual), wide)});
  c.out(1, e.cast(z, t));
  c.out(0, e.cast(n.act == "none" ? z : write_unary(c, n.act, n.act_alpha, n.act_beta, z), t));
}

void write_conv_transpose(Call& c) {
  const auto n = decode<op::conv_transpose>(c.node);
  Emitter& e = c.e;
  const DType t = c.dtype(n.x), wide = n.bias && c.dtype(n.bias) != t ? kF32 : t;
  std::vector<Attribute> attributes = window_attributes(n);
  attributes.push_back(attribute("group", n.groups));
  if (!n.output_padding.empty())
    attributes.push_back(attribute("output_padding", n.output_padding));
  const Ref y =
      e.add("ConvTranspose", {e.cast(c.in(n.x), wide), e.cast(c.in(n.w), wide), c.in(n.bias)},
            std::move(attributes));
  c.out(e.cast(y, t));
}

// The transpose of a convolution; pixels behind the last window are padding of the result.
void write_conv_backward_input(Call& c) {
  const auto n = decode<op::conv_backward_input>(c.node);
  const Ints dy = c.dims(n.dy, "dy"), w = c.dims(n.w, "w");
  const size_t axes = n.size.size();
  Ints more;
  for (size_t k = 0; k < axes; ++k) {
    const int64_t stride = n.stride.empty() ? 1 : n.stride[k],
                  dilation = n.dilation.empty() ? 1 : n.dilation[k];
    const int64_t pads = n.pads.empty() ? 0 : n.pads[k] + n.pads[k + axes];
    more.push_back(n.size[k] - (stride * (dy[k + 2] - 1) + dilation * (w[k + 2] - 1) + 1 - pads));
    if (more.back() < 0 || more.back() >= std::max(stride, dilation))
      c.refuse("ONNX's ConvTranspose pads results by less than the larger of stride and dilation");
  }
  std::vector<Attribute> attributes = window_attributes(n);
  attributes.push_back(attribute("group", n.groups));
  if (std::ranges::any_of(more, [](int64_t v) { return v != 0; }))
    attributes.push_back(attribute("output_padding", more));
  c.out(c.e.add("ConvTranspose", {c.in(n.dy), c.in(n.w)}, std::move(attributes)));
}

// ---- pools

// Readers of ONNX do not agree whether ceil_mode counts windows that begin in the padding at the end.
// Where there are such, longer padding takes its place, if that means the same.
template <class Op>
void avoid_ceil_mode(const Call& c, Op& n, bool counts_padding) {
  const size_t axes = n.kernel.size();
  if (!n.ceil_mode) return;
  Ints pads = n.pads.empty() ? Ints(2 * axes, 0) : n.pads;
  bool differs = false, fits = true;
  for (size_t k = 0; k < axes; ++k) {
    const int64_t stride = n.stride.empty() ? n.kernel[k] : n.stride[k],
                  dilation = n.dilation.empty() ? 1 : n.dilation[k];
    const int64_t before = pads[k], d = c.dim(n.x, static_cast<int>(k) + 2);
    if (d < 0) return;
    int64_t& after = pads[k + axes];
    const int64_t room = d + before + after - dilation * (n.kernel[k] - 1) - 1;
    const int64_t last = (room + stride - 1) / stride * stride;  // where the last window begins
    if (last == room / stride * stride) continue;
    if (last >= d + before) {
      differs = true;
      continue;
    }
    after += last - room;
    fits &= after < n.kernel[k] && !counts_padding;
  }
  if (!differs) return;
  if (!fits) c.refuse("readers of ONNX count the last windows of ceil_mode in different ways");
  n.ceil_mode = false;
  n.pads = pads;
}

template <class Op>
std::vector<Attribute> pool_attributes(const Call& c, Op n, bool counts_padding = false) {
  avoid_ceil_mode(c, n, counts_padding);
  std::vector<Attribute> out = window_attributes(n);
  if (n.stride.empty()) out.push_back(attribute("strides", n.kernel));
  out.push_back(attribute("kernel_shape", n.kernel));
  if (n.ceil_mode) out.push_back(attribute("ceil_mode", 1));
  return out;
}

// Indices of ONNX count through the whole tensor, those of tenon through a plane.
Ref in_plane(Call& c, const Ref& at, Value x) {
  const Ints dims = c.dims(x, "x");
  int64_t plane = 1;
  for (size_t k = 2; k < dims.size(); ++k) plane *= dims[k];
  Emitter& e = c.e;
  Ints planes(dims.size(), 1);
  planes[0] = dims[0];
  planes[1] = dims[1];
  Ref first = e.range(e.integer(dims[0] * dims[1]));
  first = e.add("Mul", {first, e.integer(plane)});
  first = e.add("Reshape", {first, e.ints(planes)}, {attribute("allowzero", 1)});
  return e.add("Sub", {at, first});
}

template <class Op>
void give_largest(Call& c, const Op& n, bool smallest) {
  Emitter& e = c.e;
  const Ref x = c.in(n.x);
  if (smallest && !is_float(x.dtype)) c.refuse("ONNX has no pool of the smallest integers");
  std::vector<Attribute> attributes = pool_attributes(c, n);
  const size_t outputs = c.wants(1) ? 2 : 1;
  std::vector<Ref> y =
      e.add_all("MaxPool", {smallest ? e.add("Neg", {x}) : x}, std::move(attributes), outputs);
  c.out(0, smallest ? e.add("Neg", {y[0]}) : y[0]);
  if (outputs == 2) c.out(1, in_plane(c, y[1], n.x));
}

template <class Op>
void give_average(Call& c, const Op& n) {
  Emitter& e = c.e;
  const bool counts = n.count_include_pad || n.divisor_override > 0;
  if (n.divisor_override > 0 && n.ceil_mode) c.refuse("ONNX's AveragePool has no divisor");
  std::vector<Attribute> attributes = pool_attributes(c, n, counts);
  if (counts) attributes.push_back(attribute("count_include_pad", 1));
  const Ref x = c.in(n.x);
  if (n.divisor_override == 0) return c.out(e.add("AveragePool", {x}, std::move(attributes)));
  double taps = 1;
  for (const int64_t k : n.kernel) taps *= static_cast<double>(k);
  const Ref y = e.add("AveragePool", {e.widen(x)}, std::move(attributes));
  const Ref factor = e.scalar(y.dtype, taps / static_cast<double>(n.divisor_override));
  c.out(e.cast(e.add("Mul", {y, factor}), x.dtype));
}

void write_maxpool2d(Call& c) { give_largest(c, decode<op::maxpool2d>(c.node), false); }
void write_avgpool2d(Call& c) { give_average(c, decode<op::avgpool2d>(c.node)); }

void write_pool(Call& c) {
  const auto n = decode<op::pool>(c.node);
  if (n.kind == "max" || n.kind == "min") return give_largest(c, n, n.kind == "min");
  if (n.kind == "avg") return give_average(c, n);
  c.refuse("ONNX has no pool of kind ", n.kind);
}

constexpr ExportRule kRules[] = {
    {"conv", write_conv},
    {"conv_transpose", write_conv_transpose},
    {"conv_backward_input", write_conv_backward_input},
    {"maxpool2d", write_maxpool2d},
    {"avgpool2d", write_avgpool2d},
    {"pool", write_pool},
};

}  // namespace

std::span<const ExportRule> conv_export_rules() { return kRules; }

}  // namespace tenon::core::onnx
