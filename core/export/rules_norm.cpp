// SPDX-License-Identifier: Apache-2.0
// Norms that ONNX has. The others are decomposed: ONNX computes statistics of f64 in f32, and takes
// no parameters of another dtype.
#include "export/call.hpp"

namespace tenon::core::onnx {
namespace {

void check_dtypes(const Call& c, Value x, Value gamma, Value beta) {
  if (c.dtype(x) == kF64) c.refuse("ONNX computes the statistics of f64 in f32");
  for (Value v : {gamma, beta})
    if (v && c.dtype(v) != c.dtype(x))
      c.refuse("ONNX takes no parameters of ", dtype_name(c.dtype(v)), " beside ",
               dtype_name(c.dtype(x)));
}

// A parameter, or ones or zeros of these dims.
Ref parameter(Call& c, Value v, DType dtype, const Ints& dims, double otherwise) {
  if (v) return c.in(v);
  return c.e.add("Expand", {c.e.scalar(dtype, otherwise), c.e.ints(dims)});
}

void write_layer_norm(Call& c) {
  const auto n = decode<op::layer_norm>(c.node);
  check_dtypes(c, n.x, n.gamma, n.beta);
  Ints dims;
  if (!n.gamma) {
    const Ints all = c.dims(n.x, "x");
    dims.assign(all.begin() + from_front(n.axis, c.rank(n.x)), all.end());
  }
  const Ref x = c.in(n.x), gamma = parameter(c, n.gamma, x.dtype, dims, 1);
  const std::vector<Attribute> attributes = {attribute("axis", n.axis),
                                             attribute("epsilon", n.eps)};
  std::vector<DType> dtypes = {x.dtype};
  if (c.wants(1) || c.wants(2)) {
    if (x.dtype != kF32) c.refuse("ONNX gives no statistics of ", dtype_name(x.dtype), " in f32");
    dtypes.resize(3, kF32);
  }
  const std::vector<Ref> y =
      c.e.add_plain("LayerNormalization", {x, gamma, c.in(n.beta)}, attributes, dtypes);
  for (size_t k = 0; k < y.size(); ++k) c.out(k, y[k]);
}

void write_group_norm(Call& c) {
  const auto n = decode<op::group_norm>(c.node);
  check_dtypes(c, n.x, n.gamma, n.beta);
  if (c.wants(1) || c.wants(2)) c.refuse("ONNX gives no statistics of groups");
  if (c.rank(n.x) < 3) c.refuse("ONNX normalizes groups of three axes or more");
  const int64_t channels = c.dim(n.x, 1);
  if (channels < 0) c.refuse("the channels of x are known only when the model runs");
  const Ref x = c.in(n.x), gamma = parameter(c, n.gamma, x.dtype, {channels}, 1),
            beta = parameter(c, n.beta, x.dtype, {channels}, 0);
  if (n.groups == channels)
    return c.out(c.e.add("InstanceNormalization", {x, gamma, beta}, {attribute("epsilon", n.eps)}));
  c.out(c.e.add("GroupNormalization", {x, gamma, beta},
                {attribute("num_groups", n.groups), attribute("epsilon", n.eps)}));
}

constexpr ExportRule kRules[] = {{"layer_norm", write_layer_norm},
                                 {"group_norm", write_group_norm}};

}  // namespace

std::span<const ExportRule> norm_export_rules() { return kRules; }

}  // namespace tenon::core::onnx
