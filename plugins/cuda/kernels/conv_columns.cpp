// SPDX-License-Identifier: Apache-2.0
// im2col and col2im.
#include "conv.hpp"
#include "lines.hpp"

namespace tenon::cuda {
namespace {

using sdk::Kernel;
using sdk::Refusal;

template <class Op>
args::ConvColumns columns_of(const Op& n, const sdk::Type& x, int64_t count) {
  sdk::Dims y{x.dims[0], x.dims[1]};
  const auto axes = static_cast<size_t>(x.rank - 2);
  for (size_t k = 0; k < axes; ++k) {
    const int64_t stride = n.stride.empty() ? 1 : n.stride[k];
    const int64_t dilation = n.dilation.empty() ? 1 : n.dilation[k];
    const int64_t pads = n.pads.empty() ? 0 : n.pads[k] + n.pads[k + axes];
    y[2 + k] = (x.dims[2 + k] + pads - dilation * (n.kernel[k] - 1) - 1) / stride + 1;
  }
  const ConvGeometry g = conv_geometry(x.dtype, x.shape(), {y.data(), static_cast<size_t>(x.rank)},
                                       {n.kernel, n.stride, n.pads, n.dilation}, 1);
  args::ConvColumns s;
  s.shape = g.shape(false);
  s.count = count;
  s.windows = g.windows(), s.pixels = g.pixels();
  const auto divisor = [](int64_t d) { return Divisor(static_cast<uint32_t>(d)); };
  s.taps = divisor(g.taps());
  s.by_line = divisor(int64_t{g.axes[1].kernel} * g.axes[2].kernel);
  s.by_tap = divisor(g.axes[2].kernel);
  return s;
}

template <const auto& entry>
Kernel columns_kernel(const sdk::Node& node, const std::string& type, bool rows,
                      const args::ConvColumns& s) {
  const auto code = device_of(node).code(entry, {"TYPE=" + type, define("ROWS", rows)});
  const Grid grid = line_grid(s.count, 1);
  return kernel_of({code}, [code, grid, s](const sdk::Call& c) {
    code.launch(c, grid, c.inputs[0], c.outputs[0], s);
  });
}

}  // namespace

Kernel make_im2col(const sdk::op::im2col& n, const sdk::Node& node) {
  const sdk::Type &x = n.x.type(), &y = node.out(0).type();
  if (!is_float(x.dtype) && !is_integer(x.dtype)) throw Refusal::dtype("x", x.dtype);
  const int64_t bytes = element_bytes(x.dtype);
  if (bytes == 0) throw Refusal::dtype("x", x.dtype);
  if (y.elements() == 0) return {.run = [](const sdk::Call&) {}};
  // What is moved and not computed with needs no dtype.
  return columns_kernel<entries::im2col>(node, "u" + std::to_string(8 * bytes), n.layout == "rows",
                                         columns_of(n, x, y.elements()));
}

Kernel make_col2im(const sdk::op::col2im& n, const sdk::Node& node) {
  const sdk::Type &columns = n.columns.type(), &x = node.out(0).type();
  if (!is_float(columns.dtype)) throw Refusal::dtype("columns", columns.dtype);
  if (x.elements() == 0) return {.run = [](const sdk::Call&) {}};
  return columns_kernel<entries::col2im>(node, type_name("columns", x.dtype), n.layout == "rows",
                                         columns_of(n, x, x.elements()));
}

}  // namespace tenon::cuda
