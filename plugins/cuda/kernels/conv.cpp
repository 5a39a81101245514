// SPDX-License-Identifier: Apache-2.0
// The conv family: which way a node is computed. One thread for a few results where groups have few
// channels, a matrix product where the window is the whole image, else tiles of a product whose
// operand, the matrix of columns, is never written out.
#include "conv.hpp"

#include <algorithm>
#include <numeric>

#include "../kernels.hpp"
#include "matmul.hpp"
#include "product.hpp"

namespace tenon::cuda {
namespace {

using sdk::Kernel;
using sdk::Node;
using sdk::Refusal;
using sdk::Value;

void check_float(const Value& v, std::string_view operand) {
  const tenon_dtype t = v.type().dtype;
  if (!is_half(t) && t != TENON_DTYPE_F32 && t != TENON_DTYPE_F64) throw Refusal::dtype(operand, t);
}

// a⁻¹ modulo n, of numbers without a common divisor.
int32_t inverse_of(int64_t a, int64_t n) {
  int64_t r0 = n, r1 = a % n, t0 = 0, t1 = 1;
  while (r1 != 0) {
    const int64_t q = r0 / r1;
    r0 = std::exchange(r1, r0 - q * r1);
    t0 = std::exchange(t1, t0 - q * t1);
  }
  return static_cast<int32_t>((t0 % n + n) % n);
}

template <class Op>
ConvWindows windows_of(const Op& n, std::span<const int64_t> kernel) {
  return {kernel, n.stride, n.pads, n.dilation};
}
std::span<const int64_t> kernel_dims(const sdk::Type& w) { return w.shape().subspan(2); }

Kernel nothing() {
  return {.run = [](const sdk::Call&) {}};
}

Kernel sums_over_taps(const Node& node, const ConvProblem& p) {
  if (p.count() == 0) return nothing();
  std::optional<Kernel> by_shifts;
  if (!takes_planes(p)) by_shifts = conv_by_shifts(node, p);
  Kernel kernel = by_shifts         ? std::move(*by_shifts)
                  : takes_planes(p) ? conv_by_planes(node, p)
                                    : conv_by_tiles(node, p);
  kernel.cost = p.seconds();
  return kernel;
}

// A product of dense matrices, of which the left one may be stored as its transpose.
ProductProblem product_of(const Value& a, const Value& b, int64_t m, int64_t n, int64_t k,
                          bool trans_a, bool trans_b) {
  ProductProblem p;
  p.a = a.type().dtype, p.b = b.type().dtype, p.y = p.a, p.sum = acc_dtype(p.a);
  p.m = m, p.n = n, p.k = k;
  p.trans_a = trans_a, p.trans_b = trans_b;
  p.lda = trans_a ? m : k, p.ldb = trans_b ? k : n;
  p.a_alignment = a.alignment(), p.b_alignment = b.alignment();
  return p;
}

Kernel make_conv(const sdk::op::conv& n, const Node& node) {
  check_float(n.x, "x");
  const sdk::Type &x = n.x.type(), &w = n.w.type();
  const Value y = node.out(0) ? node.out(0) : node.out(1);
  const ConvGeometry g =
      conv_geometry(x.dtype, x.shape(), y.type().shape(), windows_of(n, kernel_dims(w)), n.groups);
  const bool acts = n.act != "none";
  const std::string act =
      acts ? activation_text(n.act, n.act_alpha, n.act_beta, acc_dtype(x.dtype), is_half(x.dtype))
           : std::string();
  // A product adds the residual behind the activation.
  if (g.whole() && g.n > 0 && g.c > 0 && node.out(0) && !(acts && n.residual)) {
    const int64_t depth = g.c * g.pixels();
    ProductProblem p = product_of(n.x, n.w, g.n, g.m, depth, false, true);
    ProductPlaces places{n.x.position(), n.w.position()};
    p.act = act, p.act_kind = acts ? n.act : std::string();
    if (n.bias) {
      places.bias = n.bias.position(), p.bias = n.bias.type().dtype;
      p.bias_alignment = n.bias.alignment();
    }
    if (n.residual) {
      places.residual = n.residual.position(), p.residual = x.dtype;
      p.residual_alignment = n.residual.alignment();
    }
    if (n.want_pre_act) p.pre_act = true, places.pre_act = node.out(1).position();
    return make_product(node, p, places);
  }
  ConvProblem p{.geometry = g, .from = n.x, .w = n.w};
  if (n.bias) p.ending.bias = n.bias.position(), p.ending.bias_dtype = n.bias.type().dtype;
  if (n.residual) p.ending.residual = n.residual.position(), p.ending.aligned.push_back(n.residual);
  if (n.want_pre_act) p.ending.pre_act = node.out(1).position();
  p.ending.act = act;
  p.ending.aligned.push_back(y);
  return sums_over_taps(node, p);
}

// dx of dy, the product with the filters as they are stored where the window is the whole image.
Kernel transpose_of(const Node& node, const ConvGeometry& g, const Value& from, const Value& w,
                    ConvEnding ending) {
  if (g.whole() && g.n > 0 && g.m > 0 && g.c > 0 && ending.none())
    return make_product(node, product_of(from, w, g.n, g.c * g.pixels(), g.m, false, false),
                        {from.position(), w.position()});
  ConvProblem p{.geometry = g, .transposed = true, .from = from, .w = w};
  p.ending = std::move(ending);
  p.ending.aligned.push_back(node.out(0));
  return sums_over_taps(node, p);
}
Kernel make_conv_backward_input(const sdk::op::conv_backward_input& n, const Node& node) {
  check_float(n.dy, "dy");
  const sdk::Type &dy = n.dy.type(), &dx = node.out(0).type();
  return transpose_of(node,
                      conv_geometry(dx.dtype, dx.shape(), dy.shape(),
                                    windows_of(n, kernel_dims(n.w.type())), n.groups),
                      n.dy, n.w, {});
}
Kernel make_conv_transpose(const sdk::op::conv_transpose& n, const Node& node) {
  check_float(n.x, "x");
  const sdk::Type &x = n.x.type(), &y = node.out(0).type();
  ConvEnding ending;
  if (n.bias) ending.bias = n.bias.position(), ending.bias_dtype = n.bias.type().dtype;
  return transpose_of(node,
                      conv_geometry(x.dtype, y.shape(), x.shape(),
                                    windows_of(n, kernel_dims(n.w.type())), n.groups),
                      n.x, n.w, std::move(ending));
}

Kernel make_conv_backward_weight(const sdk::op::conv_backward_weight& n, const Node& node) {
  check_float(n.x, "x");
  const sdk::Type &x = n.x.type(), &dy = n.dy.type(), &dw = node.out(0).type();
  const ConvGeometry g =
      conv_geometry(x.dtype, x.shape(), dy.shape(), windows_of(n, kernel_dims(dw)), n.groups);
  if (dw.elements() == 0) return nothing();
  if (g.whole() && g.n > 0)
    return make_product(node, product_of(n.dy, n.x, g.m, g.c * g.pixels(), g.n, true, false),
                        {n.dy.position(), n.x.position()});
  std::optional<Kernel> by_shifts;
  if (!takes_planes_weight(g)) by_shifts = conv_weight_by_shifts(node, g, n.dy, n.x);
  Kernel kernel = by_shifts                ? std::move(*by_shifts)
                  : takes_planes_weight(g) ? conv_weight_by_planes(node, g, n.dy, n.x)
                                           : conv_weight_by_tiles(node, g, n.dy, n.x);
  kernel.cost = ConvProblem{.geometry = g}.seconds();
  return kernel;
}

constexpr sdk::Row kRows[] = {
    sdk::row<sdk::op::conv, make_conv>(),
    sdk::row<sdk::op::conv_transpose, make_conv_transpose>(),
    sdk::row<sdk::op::conv_backward_input, make_conv_backward_input>(),
    sdk::row<sdk::op::conv_backward_weight, make_conv_backward_weight>(),
    sdk::row<sdk::op::im2col, make_im2col>(),
    sdk::row<sdk::op::col2im, make_col2im>(),
};

}  // namespace

int64_t ConvGeometry::taps() const {
  return int64_t{axes[0].kernel} * axes[1].kernel * axes[2].kernel;
}
int64_t ConvGeometry::pixels() const { return int64_t{axes[0].in} * axes[1].in * axes[2].in; }
int64_t ConvGeometry::windows() const { return int64_t{axes[0].out} * axes[1].out * axes[2].out; }
bool ConvGeometry::pointwise() const {
  return std::ranges::all_of(axes, [](const args::ConvAxis& a) {
    return a.kernel == 1 && a.before == 0 && a.in == a.out && (a.stride == 1 || a.out == 1);
  });
}
bool ConvGeometry::whole() const {
  return groups == 1 && std::ranges::all_of(axes, [](const args::ConvAxis& a) {
           return a.out == 1 && a.kernel == a.in && a.before == 0 &&
                  (a.dilation == 1 || a.kernel == 1);
         });
}
args::ConvShape ConvGeometry::shape(bool transposed) const {
  args::ConvShape s;
  std::ranges::copy(axes, s.axes);
  s.batch = n, s.groups = static_cast<int32_t>(groups);
  s.c = static_cast<int32_t>(c / groups), s.m = static_cast<int32_t>(m / groups);
  if (transposed) std::swap(s.c, s.m);
  return s;
}

ConvGeometry conv_geometry(tenon_dtype dtype, std::span<const int64_t> x,
                           std::span<const int64_t> y, const ConvWindows& w, int64_t groups) {
  constexpr int64_t kMostWindow = 1 << 24, kMostAxis = 1 << 29;
  ConvGeometry g{.dtype = dtype, .n = x[0], .c = x[1], .m = y[1], .groups = groups};
  const size_t rank = w.kernel.size(), lead = 3 - rank;
  const auto entry = [](std::span<const int64_t> list, size_t k, int64_t otherwise) {
    return list.empty() ? otherwise : list[k];
  };
  const auto narrow = [](int64_t v) { return static_cast<int32_t>(v); };
  for (size_t k = 0; k < rank; ++k) {
    const int64_t stride = entry(w.stride, k, 1), dilation = entry(w.dilation, k, 1);
    const int64_t before = entry(w.pads, k, 0), kernel = w.kernel[k];
    if (kernel > kMostWindow / dilation || before > kMostWindow || stride > kMostWindow ||
        dilation > kMostWindow)
      throw Refusal::shape("a window wider than 2^24 pixels");
    if (x[2 + k] >= kMostAxis || y[2 + k] >= kMostAxis)
      throw Refusal::shape("an axis of more than 2^29 pixels");
    args::ConvAxis& a = g.axes[lead + k];
    a.in = narrow(x[2 + k]), a.out = narrow(y[2 + k]), a.kernel = narrow(kernel);
    a.stride = narrow(stride), a.before = narrow(before), a.dilation = narrow(dilation);
    a.common = std::gcd(a.stride, a.dilation);
    const int32_t step = a.stride / a.common;
    a.inverse = step > 1 ? inverse_of(a.dilation / a.common, step) : 0;
  }
  // Factors one after the other: a product of all might overflow.
  const auto below = [](std::initializer_list<int64_t> factors) {
    int64_t all = 1;
    for (const int64_t f : factors) {
      if (f != 0 && all >= kNarrowIndex / f + 1) return false;
      all *= f;
    }
    return all < kNarrowIndex;
  };
  const auto& [a0, a1, a2] = g.axes;
  if (!below({a0.in, a1.in, a2.in, std::max<int64_t>(g.n, 1)}) ||
      !below({a0.out, a1.out, a2.out, std::max<int64_t>(g.n, 1)}))
    throw Refusal::shape("more than 2^31 pixels or windows");
  if (!below({a0.kernel, a1.kernel, a2.kernel, std::max<int64_t>((g.c / groups + 7) / 8 * 8, 1),
              std::max<int64_t>((g.m / groups + 7) / 8 * 8, 1), groups}))
    throw Refusal::shape("more than 2^31 weights");
  return g;
}

std::vector<std::string> ConvEnding::defines() const {
  std::vector<std::string> d;
  if (bias >= 0) d.push_back("BIAS=" + type_name("bias", bias_dtype));
  if (residual >= 0) d.emplace_back("RESIDUAL=1");
  if (pre_act >= 0) d.emplace_back("PRE_ACT=1");
  if (!act.empty()) d.push_back("ACT(x)=" + act);
  return d;
}
args::ConvEnds ConvEnding::of(const sdk::Call& call) const {
  return {call.in(bias), call.in(residual), call.outputs[0], call.out(pre_act)};
}

double ConvProblem::seconds() const {
  const ConvGeometry& g = geometry;
  const double flops = 2.0 * static_cast<double>(g.n * g.m) * static_cast<double>(g.windows()) *
                       static_cast<double>(g.c / g.groups) * static_cast<double>(g.taps());
  const double rate = is_half(g.dtype) ? 2e14 : g.dtype == TENON_DTYPE_F64 ? 1e13 : 2e13;
  const double moved =
      static_cast<double>(element_bytes(g.dtype)) * static_cast<double>(g.n) *
      (static_cast<double>(g.c * g.pixels()) + static_cast<double>(g.m * g.windows()));
  return 3e-6 + std::max(flops / rate, moved / 2e12);
}

std::span<const sdk::Row> conv_rows() { return kRows; }

}  // namespace tenon::cuda
