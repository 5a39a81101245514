// SPDX-License-Identifier: Apache-2.0
// Convolutions with few channels in a group: conv_planes.cu.
#include <algorithm>
#include <limits>

#include "conv.hpp"
#include "lines.hpp"
#include "vectors.hpp"

namespace tenon::cuda {
namespace {

using sdk::Call;
using sdk::Kernel;
using sdk::Node;
using sdk::Value;

constexpr int64_t kFew = 8;            // channels
constexpr int64_t kUnrolledTaps = 49;  // of a window that the compiler knows
constexpr int32_t kMostStride = 4, kMostExtent = 32;

// A window of rows and columns that the compiler can know.
bool is_small(const args::ConvShape& s) {
  const args::ConvAxis &d = s.axes[0], &h = s.axes[1], &w = s.axes[2];
  const auto small = [](const args::ConvAxis& a) {
    return a.stride <= kMostStride && (a.kernel - 1) * a.dilation < kMostExtent &&
           a.before < kMostExtent;
  };
  return d.in == 1 && d.out == 1 && d.kernel == 1 && d.before == 0 && small(h) && small(w) &&
         int64_t{h.kernel} * w.kernel <= kUnrolledTaps;
}

// What a thread takes, and moves at once.
struct Run {
  int64_t windows = 1, rows = 1;
  int64_t x = 1, y = 1;
};
std::vector<std::string> defines(tenon_dtype dtype, bool back, bool flip, const args::ConvShape* s,
                                 const Run& run) {
  const auto known = [&](int32_t args::ConvAxis::*field, int axis) {
    return s ? int64_t{s->axes[axis].*field} : 0;
  };
  using Axis = args::ConvAxis;
  return {"TYPE=" + type_name("x", dtype),
          define("BACK", back),
          define("FLIP", flip),
          define("KH", known(&Axis::kernel, 1)),
          define("KW", known(&Axis::kernel, 2)),
          define("SH", known(&Axis::stride, 1)),
          define("SW", known(&Axis::stride, 2)),
          define("DH", known(&Axis::dilation, 1)),
          define("DW", known(&Axis::dilation, 2)),
          define("BW", known(&Axis::before, 2)),
          define("RUN", run.windows),
          define("DOWN", run.rows),
          define("XW", run.x),
          define("YW", run.y)};
}

// Windows side by side of a thread, and how they are read and stored.
Run run_of(tenon_dtype dtype, const args::ConvShape& s, const Value& x,
           const std::vector<Value>& aligned, int64_t most) {
  const args::ConvAxis &h = s.axes[1], &w = s.axes[2];
  const int64_t bytes = element_bytes(dtype);
  Run r;
  r.windows = std::min(most, w.stride == 1 ? 16 / bytes : w.stride == 2 ? 4 : int64_t{2});
  while (r.windows > 1 && r.windows / 2 >= w.out) r.windows /= 2;
  r.rows = h.stride == 1 && h.out > 1 ? 2 : 1;
  r.x = common_width(bytes, w.in, {x});
  while (r.windows * w.stride % r.x != 0) r.x /= 2;
  r.y = r.windows;
  for (const Value& v : aligned)
    r.y = std::min<int64_t>(r.y, common_width(element_bytes(v.type().dtype), w.out, {v}));
  while (r.windows % r.y != 0) r.y /= 2;
  return r;
}

// The transpose of a convolution without strides, as one: windows are the pixels.
args::ConvShape flipped(args::ConvShape s) {
  for (args::ConvAxis& a : s.axes) {
    std::swap(a.in, a.out);
    a.before = a.dilation * (a.kernel - 1) - a.before;
  }
  return s;
}

}  // namespace

bool takes_planes(const ConvProblem& p) {
  constexpr int64_t kMostTerms = 256;
  const args::ConvShape s = p.shape();
  return s.m <= kFew && (s.m == 1 || s.c * p.geometry.taps() <= kMostTerms);
}

Kernel conv_by_planes(const Node& node, const ConvProblem& p) {
  const args::ConvShape s = p.shape();
  const tenon_dtype dtype = p.geometry.dtype;
  args::ConvPlanes a;
  a.shape = s;
  const bool strided =
      std::ranges::any_of(s.axes, [](const args::ConvAxis& axis) { return axis.stride != 1; });
  const auto divisor = [](int64_t v) { return Divisor(static_cast<uint32_t>(v)); };
  const bool known = s.c == 1 && is_small(s) && (!p.transposed || (s.m == 1 && !strided)) &&
                     p.count() < kNarrowIndex;
  std::vector<std::string> d;
  if (known) {
    if (p.transposed) a.shape = flipped(s);
    const Run run = run_of(dtype, a.shape, p.from, p.ending.aligned, 8);
    d = defines(dtype, false, p.transposed, &a.shape, run);
    a.rows = divisor(blocks_for(a.shape.axes[1].out, run.rows));
    a.columns = divisor(blocks_for(a.shape.axes[2].out, run.windows));
    a.items = s.batch * s.groups * s.m * a.rows.value * a.columns.value;
  } else {
    d = defines(dtype, p.transposed, false, nullptr, {});
    a.columns = divisor(p.plane());
    a.items = p.count();
  }
  const Grid grid = line_grid(a.items, 1);
  const auto launched = [&](const auto& entry, const auto& ending) {
    std::ranges::copy(ending.defines(), std::back_inserter(d));
    const auto code = device_of(node).code(entry, d);
    return kernel_of(
        {code}, [code, grid, a, ending, x = p.from.position(), w = p.w.position()](const Call& c) {
          const auto ends = ends_of(ending, c, nullptr);
          code.launch(c, grid,
                      args::ConvPlanesOf<std::remove_cv_t<decltype(ends)>>{
                          a.shape, c.in(x), c.in(w), ends, a.items, a.rows, a.columns});
        });
  };
  if (p.quantized)
    return launched(known ? entries::qconv_planes_rows : entries::qconv_planes_any, *p.quantized);
  return launched(known ? entries::conv_planes_rows : entries::conv_planes_any, p.ending);
}

bool takes_planes_weight(const ConvGeometry& g) {
  constexpr int64_t kMostPairs = 16;
  return g.groups >= 4 && (g.c / g.groups) * (g.m / g.groups) <= kMostPairs;
}

Kernel conv_weight_by_planes(const Node& node, const ConvGeometry& g, const Value& dy,
                             const Value& x) {
  CudaDevice& device = device_of(node);
  args::ConvTapSums a;
  a.shape = g.shape(false);
  const bool known = is_small(a.shape);
  Run run;
  if (known) run = run_of(g.dtype, a.shape, x, {dy}, 8), run.rows = 1;
  const auto sums = device.code(entries::conv_planes_taps,
                                defines(g.dtype, false, false, known ? &a.shape : nullptr, run));
  int64_t blocks = g.m * (g.c / g.groups) * (known ? 1 : g.taps());
  constexpr int64_t kBlocksEach = 8;  // of a multiprocessor
  const int64_t wanted = blocks_for(device.properties().multiprocessors * kBlocksEach, blocks);
  a.piece = blocks_for(std::max<int64_t>(g.n, 1),
                       std::clamp<int64_t>(wanted, 1, std::max<int64_t>(g.n, 1)));
  a.pieces = static_cast<uint32_t>(blocks_for(std::max<int64_t>(g.n, 1), a.piece));
  blocks = launchable(blocks * a.pieces);
  const ConvWeightFinish finish(node, g, a.pieces, g.c / g.groups * g.taps(), 0);
  Kernel kernel = kernel_of({sums, finish.code},
                            [=, at_dy = dy.position(), at_x = x.position()](const Call& c) {
                              args::ConvTapSums t = a;
                              t.dy = c.in(at_dy), t.x = c.in(at_x), t.parts = c.scratch;
                              sums.launch(c, {.blocks = blocks, .threads = 256}, t);
                              finish.run(c, c.scratch);
                            });
  kernel.scratch = finish.bytes();
  return kernel;
}

}  // namespace tenon::cuda
