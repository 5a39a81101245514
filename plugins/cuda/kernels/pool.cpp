// SPDX-License-Identifier: Apache-2.0
// maxpool2d, avgpool2d and their backward ops. The gradient of a maximum takes two kernels: the
// windows' greatest taps, a byte each as a rule, then what each pixel gets from its windows.
#include <algorithm>
#include <limits>
#include <string>

#include "../device.hpp"
#include "../kernels.hpp"
#include "entries.hpp"
#include "lines.hpp"
#include "vectors.hpp"

namespace tenon::cuda {
namespace {

using sdk::Call;
using sdk::Kernel;
using sdk::Node;
using sdk::Refusal;
using sdk::Type;

using Line = args::PoolLine;
using Shape = args::PoolShape;

// The windows of a node and how their kernels are made.
class Pool {
 public:
  // Of a pool of x [N, C, height, width] whose y has y's shape.
  template <class Op>
  Pool(const Op& n, const Type& y, int64_t height, int64_t width, bool mean)
      : mean_(mean), dtype_(y.dtype) {
    planes_ = y.dims[0] * y.dims[1];
    s_.h = line_of(n, 0, height, y.dims[2]);
    s_.w = line_of(n, 1, width, y.dims[3]);
    if (height * width >= kNarrowIndex || y.dims[2] * y.dims[3] >= kNarrowIndex)
      throw Refusal::shape("a plane of more than 2^31 pixels");
    taps_ = int64_t{s_.h.kernel} * s_.w.kernel;
    if (taps_ >= kNarrowIndex) throw Refusal::shape("more than 2^31 taps");
    if constexpr (requires { n.divisor_override; }) {
      if (n.divisor_override < 0 || n.divisor_override > std::numeric_limits<int32_t>::max())
        throw Refusal::attribute("divisor_override", std::to_string(n.divisor_override));
      s_.divisor = static_cast<int32_t>(n.divisor_override);
      s_.include_pad = n.count_include_pad;
    }
  }

  template <class Code>
  struct Launch {
    Code code{};
    Grid grid{};
    Shape shape{};
  };
  // Of x; taps: positions are wanted.
  Launch<CodeFor<entries::pool_windows>> windows(const sdk::Value& x, bool taps,
                                                 const Node& node) const {
    const int64_t lanes = unrolled() ? 1 : 32;
    Blocks b;
    if (unrolled()) {
      b.run = s_.w.count < 4 || s_.w.stride > 4 ? 1 : s_.w.stride > 2 || bytes() == 8 ? 2 : 4;
      b.pixels = common_width(bytes(), s_.w.size, {x});
      while (b.run * s_.w.stride % b.pixels != 0) b.pixels /= 2;
      b.windows = s_.w.count % b.run == 0 ? b.run : 1;
    }
    const Shape s = shape_of(s_.h.count, blocks_for(s_.w.count, b.run));
    return {device_of(node).code(entries::pool_windows, defines(s, taps, lanes, b)),
            line_grid(s.items, lanes), s};
  }
  // What the pixels get from the windows, of dy.
  Launch<CodeFor<entries::pool_pixels>> pixels(const sdk::Value& dy, const Node& node) const {
    const Blocks b = cells_of(dy, node);
    const bool cells = b.height > 0;
    const Shape s = cells
                        ? shape_of(blocks_for(s_.h.size, b.height), blocks_for(s_.w.size, b.width))
                        : shape_of(s_.h.size, s_.w.size);
    return {device_of(node).code(cells ? entries::pool_cells : entries::pool_pixels,
                                 defines(s, false, 1, b)),
            line_grid(s.items, 1), s};
  }
  uint64_t winner_bytes() const {
    return static_cast<uint64_t>(planes_ * s_.h.count * s_.w.count * (winner_bits() / 8));
  }

 private:
  static constexpr int64_t kUnrolledTaps = 49;
  // What a thread takes, and moves at once.
  struct Blocks {
    int64_t run = 1;                // windows
    int64_t height = 0, width = 0;  // pixels, backward
    int64_t pixels = 1, windows = 1;
  };

  template <class Op>
  static Line line_of(const Op& n, size_t k, int64_t size, int64_t count) {
    constexpr int64_t kMost = 1 << 24;
    const int64_t stride = sdk::entry_of(n.stride, k, n.kernel[k]);
    const int64_t before = sdk::entry_of(n.pads, k, 0), after = sdk::entry_of(n.pads, k + 2, 0);
    const int64_t dilation = sdk::entry_of(n.dilation, k, 1);
    if (n.kernel[k] > kMost / dilation || before > kMost || after > kMost)
      throw Refusal::shape("a window wider than 2^24 pixels");
    if (size >= kNarrowIndex / 4 || count >= kNarrowIndex / 4)
      throw Refusal::shape("an axis of more than 2^29 pixels");
    const auto narrow = [](int64_t v) { return static_cast<int32_t>(v); };
    return {.kernel = narrow(n.kernel[k]),
            .stride = narrow(stride),
            .before = narrow(before),
            .after = narrow(after),
            .dilation = narrow(dilation),
            .size = narrow(size),
            .count = narrow(count)};
  }

  // Of items in planes of rows and columns.
  Shape shape_of(int64_t rows, int64_t columns) const {
    Shape s = s_;
    s.items = planes_ * rows * columns;
    s.rows = Divisor(static_cast<uint32_t>(std::max<int64_t>(rows, 1)));
    s.columns = Divisor(static_cast<uint32_t>(std::max<int64_t>(columns, 1)));
    return s;
  }
  bool unrolled() const {
    constexpr int32_t kMostExtent = 64;  // of a row of taps
    return taps_ <= kUnrolledTaps && (s_.w.kernel - 1) * s_.w.dilation < kMostExtent;
  }
  int64_t winner_bits() const { return taps_ < 0xFF ? 8 : taps_ < 0xFFFF ? 16 : 32; }

  int64_t bytes() const { return element_bytes(dtype_); }

  // Cells of whole strides; none where sizes are told at run time.
  Blocks cells_of(const sdk::Value& dy, const Node& node) const {
    constexpr int64_t kMostStride = 4;
    const int64_t h = s_.h.stride, w = s_.w.stride;
    Blocks b;
    if (!unrolled() || s_.h.dilation != 1 || s_.w.dilation != 1 || h > kMostStride ||
        w > kMostStride)
      return b;
    b.height = std::max<int64_t>(h, 2);
    // 16 bytes: neighbours store a run together.
    b.width = w == 3 ? 3 : std::max(w, 16 / bytes());
    b.pixels = common_width(bytes(), s_.w.size, {node.out(0)});
    while (b.width % b.pixels != 0) b.pixels /= 2;
    b.windows = common_width(bytes(), s_.w.count, {dy});
    while (b.width / w % b.windows != 0) b.windows /= 2;
    return b;
  }
  std::vector<std::string> defines(const Shape& s, bool taps, int64_t lanes,
                                   const Blocks& b) const {
    const auto known = [&](int32_t v) { return unrolled() ? v : 0; };
    return {"TYPE=" + type_name("x", dtype_),
            define("MEAN", mean_),
            define("TAPS", taps),
            "WINNER=u" + std::to_string(winner_bits()),
            define("LANES", lanes),
            define("NARROW", s.items < kNarrowIndex),
            define("KH", known(s.h.kernel)),
            define("KW", known(s.w.kernel)),
            define("SH", known(s.h.stride)),
            define("SW", known(s.w.stride)),
            define("DH", known(s.h.dilation)),
            define("DW", known(s.w.dilation)),
            define("BH", known(s.h.before)),
            define("BW", known(s.w.before)),
            define("RUN", b.run),
            define("CH", b.height),
            define("CW", b.width),
            define("XW", b.pixels),
            define("YW", b.windows)};
  }

  bool mean_;
  tenon_dtype dtype_;
  int64_t planes_ = 0, taps_ = 0;
  Shape s_{};
};

void check_image(const sdk::Value& x, std::string_view name, bool integers) {
  const tenon_dtype t = x.type().dtype;
  if (!is_float(t) && !(integers && is_integer(t))) throw Refusal::dtype(name, t);
}

template <class Op>
Kernel make_forward(const Op& n, bool mean, bool indices, const Node& node) {
  check_image(n.x, "x", !mean);
  const Type& x = n.x.type();
  const Pool pool(n, node.out(0).type(), x.dims[2], x.dims[3], mean);
  const auto l = pool.windows(n.x, indices, node);
  return kernel_of({l.code}, [l, indices](const Call& c) {
    void *const none = nullptr, *const at = indices ? c.outputs[1] : none;
    l.code.launch(c, l.grid, c.inputs[0], c.outputs[0], at, none, l.shape);
  });
}
Kernel make_maxpool2d(const sdk::op::maxpool2d& n, const Node& node) {
  return make_forward(n, false, n.want_indices, node);
}
Kernel make_avgpool2d(const sdk::op::avgpool2d& n, const Node& node) {
  return make_forward(n, true, false, node);
}

Kernel make_maxpool2d_backward(const sdk::op::maxpool2d_backward& n, const Node& node) {
  check_image(n.x, "x", false);
  const Type &x = n.x.type(), &dy = n.dy.type();
  if (dy.dtype != x.dtype) throw Refusal::dtype("dy", dy.dtype);
  const Pool pool(n, dy, x.dims[2], x.dims[3], false);
  const auto find = pool.windows(n.x, true, node);
  const auto give = pool.pixels(n.dy, node);
  Kernel kernel = kernel_of({find.code, give.code}, [find, give](const Call& c) {
    void* const none = nullptr;
    find.code.launch(c, find.grid, c.inputs[1], none, none, c.scratch, find.shape);
    give.code.launch(c, give.grid, c.inputs[0], c.scratch, c.outputs[0], give.shape);
  });
  kernel.scratch = pool.winner_bytes();
  return kernel;
}

Kernel make_avgpool2d_backward(const sdk::op::avgpool2d_backward& n, const Node& node) {
  check_image(n.dy, "dy", false);
  const Pool pool(n, n.dy.type(), n.size[0], n.size[1], true);
  const auto give = pool.pixels(n.dy, node);
  return kernel_of({give.code}, [give](const Call& c) {
    const void* const none = nullptr;
    give.code.launch(c, give.grid, c.inputs[0], none, c.outputs[0], give.shape);
  });
}

constexpr sdk::Row kRows[] = {
    sdk::row<sdk::op::maxpool2d, make_maxpool2d>(),
    sdk::row<sdk::op::maxpool2d_backward, make_maxpool2d_backward>(),
    sdk::row<sdk::op::avgpool2d, make_avgpool2d>(),
    sdk::row<sdk::op::avgpool2d_backward, make_avgpool2d_backward>(),
};

}  // namespace

std::span<const sdk::Row> pool_rows() { return kRows; }

}  // namespace tenon::cuda
