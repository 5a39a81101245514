// SPDX-License-Identifier: Apache-2.0
// The conv family: which way a node is computed. Tiles, products, planes, depthwise, Winograd
// (README.md), or one product where each window is the whole image.
#include "conv.hpp"

#include <algorithm>
#include <variant>

#include "../kernels.hpp"
#include "../parallel.hpp"
#include "conv_depthwise.hpp"
#include "conv_winograd.hpp"
#include "gemm.hpp"
#include "gemm_core.hpp"
#include "matmul.hpp"

namespace tenon::cpu {
namespace {

using sdk::Call;
using sdk::Kernel;
using sdk::Node;
using sdk::Value;

void check_float(const Value& v, std::string_view operand) {
  if (!is_float(v.type().dtype)) throw sdk::Refusal::dtype(operand, v.type().dtype);
}

// Strides of thousands would need tables of that size: decomposed.
constexpr int64_t kMostPhases = 4096;

void check_phases(const ConvGeometry& g) {
  if (g.phases() > kMostPhases)
    throw sdk::Refusal::shape("strides of " + std::to_string(g.phases()) +
                              " positions in all are not supported");
}

Kernel nothing() {
  return {.run = [](const Call&) {}};
}

// Tiles fill their panels of channels only with many; few terms do not pay for their sums, either.
bool takes_planes(const TapConv& t) {
  constexpr int64_t kFewFilters = 8, kFewTerms = 32;
  return (t.m <= kFewFilters || t.depth() <= kFewTerms) && t.depth() <= 512 && t.windows() >= 16;
}
// Too few steps to pay for the transposed sums of tiles; or narrow tiles, which read each cache line
// of large planes several times.
bool takes_product(const TapConv& t, tenon_dtype dtype) {
  constexpr int64_t kShallow = 192, kNarrow = 8, kLarge = 100;
  const bool narrow = gemm_panels(gemm_sum_dtype(dtype)).rows < kNarrow;
  return t.pointwise() && (t.depth() < kShallow || (narrow && t.windows() >= kLarge));
}

// The way that suits a sum over taps (README.md).
using Way = std::variant<ConvTiles, ConvProduct, ConvPlanes, ConvDepthwise, ConvWinograd>;
bool reads_dense_filters(const TapConv& t, tenon_dtype dtype, const ConvEnds& ends) {
  return ConvDepthwise::takes(t, dtype, ends) || takes_planes(t);
}
Way way_of(const TapConv& t, tenon_dtype dtype, bool packs, const ConvEnds& ends) {
  if (ConvDepthwise::takes(t, dtype, ends)) return ConvDepthwise(t);
  if (takes_planes(t)) return ConvPlanes(t, dtype);
  if (packs && ConvWinograd::takes(t, dtype)) return ConvWinograd(t);
  if (takes_product(t, dtype)) return ConvProduct(t, dtype, packs);
  return ConvTiles(t, dtype, packs);
}

// y of x (operand `from`) and w. Weights that no run changes are packed once.
Kernel sums_over_taps(const std::vector<TapConv>& convs, const Value& from, const Value& w,
                      tenon_dtype dtype, const ConvEnds& ends) {
  const bool packs = w.frozen() && std::none_of(convs.begin(), convs.end(), [&](const TapConv& t) {
                       return reads_dense_filters(t, dtype, ends);
                     });
  struct Part {
    Way way;
    uint64_t packed;  // where its packed filters begin
  };
  Kernel kernel;
  std::vector<Part> parts;
  std::string layout;
  uint64_t bytes = 0;
  double flops = 0;
  for (const TapConv& t : convs) {
    flops += 2.0 * static_cast<double>(t.batch * t.groups * t.m) *
             static_cast<double>(t.windows()) * static_cast<double>(t.depth());
    const Part& part = parts.emplace_back(Part{way_of(t, dtype, packs, ends), bytes});
    std::visit(
        [&](const auto& way) {
          kernel.scratch = std::max(kernel.scratch, way.scratch());
          if constexpr (requires { way.weights(); }) {
            if (!packs) return;
            layout += way.weights().layout() + ";";
            bytes += way.weights().bytes();
          }
        },
        part.way);
  }
  if (bytes > 0)
    kernel.derived.push_back({w.position(), layout, bytes, [parts](const void* dense, void* to) {
                                for (const Part& p : parts)
                                  std::visit(
                                      [&](const auto& way) {
                                        if constexpr (requires { way.weights(); })
                                          way.weights().pack(dense,
                                                             static_cast<char*>(to) + p.packed);
                                      },
                                      p.way);
                              }});
  kernel.cost = flops / 1e11;
  kernel.run = [parts = std::move(parts), x = from.position(), weights = w.position(),
                ends](const Call& c) {
    for (const Part& p : parts)
      std::visit(
          [&](const auto& way) { way.run(c, c.inputs[x], c.in<char>(weights) + p.packed, ends); },
          p.way);
  };
  return kernel;
}

// The dims of a filter.
std::span<const int64_t> kernel_of(const sdk::Type& w) { return w.shape().subspan(2); }

// Each window is a whole image: y is x [n, depth] times the filters [m, depth].
bool is_one_product(const ConvGeometry& g) {
  if (g.groups != 1 || g.windows() != 1) return false;
  return std::all_of(g.axes.begin(), g.axes.end(), [](const ConvGeometry::Axis& a) {
    return a.kernel == a.in && a.before == 0 && a.dilation == 1;
  });
}

Kernel whole_images(const ConvGeometry& g, tenon_dtype dtype, const ConvEnds& ends) {
  const int64_t depth = g.c * g.pixels();
  Epilogue epilogue{};
  epilogue.sum = gemm_sum_dtype(dtype), epilogue.y = dtype, epilogue.n = g.m;
  epilogue.bias = ends.bias, epilogue.bias_dtype = ends.bias_dtype, epilogue.act = ends.act;
  epilogue.residual = ends.residual, epilogue.pre_act = ends.pre_act;
  const Gemm gemm(g.n, g.m, depth, {dtype, depth, 1}, {dtype, 1, depth}, epilogue.plain());
  Kernel kernel;
  kernel.scratch = gemm.scratch();
  kernel.cost = gemm.flops() / 1e11;
  kernel.run = [=](const Call& c) {
    const auto sink = [&](const GemmBlock& block) { epilogue.run(c, block, 0); };
    const auto nothing = [](const GemmBlock&) {};
    gemm.run(c.inputs[0], c.inputs[1], c.outputs[0], c.scratch,
             epilogue.plain() ? GemmSink(nothing) : GemmSink(sink), false);
  };
  return kernel;
}

Kernel make_conv(const sdk::op::conv& n, const Node& node) {
  check_float(n.x, "x");
  const sdk::Type &x = n.x.type(), &w = n.w.type();
  const sdk::Type& y = (node.out(0) ? node.out(0) : node.out(1)).type();
  ConvEnds ends;
  if (n.bias) ends.bias = n.bias.position(), ends.bias_dtype = n.bias.type().dtype;
  ends.residual = n.residual.position();
  if (n.want_pre_act) ends.pre_act = node.out(1).position();
  if (n.act != "none") ends.act = make_activation(n.act, n.act_alpha, n.act_beta);
  const ConvGeometry g = conv_geometry(n, x.shape(), kernel_of(w), y.shape(), n.groups);
  if (is_one_product(g) && !n.residual) return whole_images(g, x.dtype, ends);
  if (y.elements() == 0) return nothing();
  check_conv_depth(g);
  return sums_over_taps({g.reached()}, n.x, n.w, x.dtype, ends);
}

Kernel make_conv_backward_input(const sdk::op::conv_backward_input& n, const Node& node) {
  check_float(n.dy, "dy");
  const sdk::Type& dx = node.out(0).type();
  if (dx.elements() == 0) return nothing();
  const ConvGeometry g =
      conv_geometry(n, dx.shape(), kernel_of(n.w.type()), n.dy.type().shape(), n.groups);
  check_conv_depth(g), check_phases(g);
  return sums_over_taps(g.transposed(), n.dy, n.w, dx.dtype, {});
}

Kernel make_conv_transpose(const sdk::op::conv_transpose& n, const Node& node) {
  check_float(n.x, "x");
  const sdk::Type& y = node.out(0).type();
  if (y.elements() == 0) return nothing();
  ConvEnds ends;
  if (n.bias) ends.bias = n.bias.position(), ends.bias_dtype = n.bias.type().dtype;
  const ConvGeometry g =
      conv_geometry(n, y.shape(), kernel_of(n.w.type()), n.x.type().shape(), n.groups);
  check_conv_depth(g), check_phases(g);
  return sums_over_taps(g.transposed(), n.x, n.w, y.dtype, ends);
}

Kernel make_conv_backward_weight(const sdk::op::conv_backward_weight& n, const Node& node) {
  check_float(n.x, "x");
  const sdk::Type &x = n.x.type(), &dw = node.out(0).type();
  if (dw.elements() == 0) return nothing();
  const ConvGeometry g = conv_geometry(n, x.shape(), kernel_of(dw), n.dy.type().shape(), n.groups);
  check_conv_depth(g);
  const TapConv t = g.forward();
  // Few channels run one group at a time, if their copies hold all taps: some may lie far outside.
  const bool all_reached = g.reached().taps() == t.taps();
  if (takes_planes(t) && t.depth() <= 64 && t.groups >= 4 && all_reached) {
    const ConvPlanes planes(t, x.dtype);
    return {.run =
                [=, dy = n.dy.position(), in = n.x.position()](const Call& c) {
                  planes.run_weight(c.inputs[dy], c.inputs[in], c.outputs[0], c.scratch);
                },
            .scratch = planes.scratch()};
  }
  const ConvWeight products(t, x.dtype);
  return {.run =
              [=, dy = n.dy.position(), in = n.x.position()](const Call& c) {
                products.run(c.inputs[dy], c.inputs[in], c.outputs[0], c.scratch);
              },
          .scratch = products.scratch()};
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

std::span<const sdk::Row> conv_rows() { return kRows; }

}  // namespace tenon::cpu
