// SPDX-License-Identifier: Apache-2.0
// resize, resize_backward and grid_sample. Each run makes the tables of taps first: they are small, and
// a kernel has no other place for them. Where a result has few taps, one kernel takes all axes; else
// the axes follow each other.
#include "tenon/resize_taps.hpp"

#include <algorithm>

#include "../device.hpp"
#include "../kernels.hpp"
#include "entries.hpp"
#include "lines.hpp"

namespace tenon::cuda {
namespace {

using sdk::Call;
using sdk::Kernel;
using sdk::Node;
using sdk::Refusal;

constexpr int kThreads = 256;
Grid grid_of(int64_t items) {
  return {.blocks = launchable(blocks_for(items, kThreads)), .threads = kThreads};
}
int64_t aligned(int64_t bytes) { return (bytes + 255) / 256 * 256; }

int32_t position_in(std::initializer_list<std::string_view> words, std::string_view word) {
  return static_cast<int32_t>(std::find(words.begin(), words.end(), word) - words.begin());
}

// One axis of a node. in, out: of the result's operand and of the result.
struct Axis {
  int64_t in = 1, out = 1;
  bool changes = false;
  int64_t taps = 1;  // of one result, at most
  args::TapsShape shape{};
  int64_t forward_table = 0, table = 0;  // places in scratch
};

// Tables: a range for each row, then its weights.
int64_t table_bytes(int64_t rows, int64_t taps, int64_t acc_bytes) {
  return aligned(rows * (static_cast<int64_t>(sizeof(args::TapRange)) + taps * acc_bytes));
}

template <class Op>
Axis axis_of(const Op& n, size_t k, int64_t in, bool backward) {
  const tenon::ResizeAxis a = tenon::resize_axis(n, k, in);
  const tenon::ResizeTaps taps = tenon::resize_taps(n, a);
  if (!taps.outside.empty()) throw Refusal::shape("positions outside of the image");
  if (a.end < a.start) throw Refusal::shape("a region that ends before it starts");
  Axis axis{.in = a.in, .out = a.out, .changes = !taps.identity(a.in)};
  const double stretch = n.antialias ? std::min(a.scale, 1.0) : 1.0;
  const double reach = n.mode == "nearest" ? 0 : (n.mode == "cubic" ? 2 : 1) / stretch;
  axis.taps = std::min(a.in, static_cast<int64_t>(std::ceil(2 * reach)) + 1);
  args::TapsShape& s = axis.shape;
  s.in = static_cast<int32_t>(a.in), s.out = static_cast<int32_t>(a.out);
  s.taps = static_cast<int32_t>(axis.taps);
  s.mode = position_in({"nearest", "linear", "cubic"}, n.mode);
  s.coordinates = position_in({"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel",
                               "align_corners", "asymmetric", "tf_crop_and_resize"},
                              n.coordinates);
  s.nearest =
      position_in({"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"}, n.nearest_mode);
  s.exact = a.exact, s.exclude = n.exclude_outside, s.smooth = n.antialias;
  s.scale = a.scale, s.start = a.start, s.end = a.end, s.cubic_a = n.cubic_a;
  if (!backward) return axis;
  const tenon::ResizeTaps back = tenon::transposed(taps, a.in);
  int64_t most = 1;
  for (size_t i = 0; i + 1 < back.begin.size(); ++i)
    if (back.begin[i] < back.begin[i + 1])
      most = std::max(most, back.index[static_cast<size_t>(back.begin[i + 1]) - 1] -
                                back.index[static_cast<size_t>(back.begin[i])] + 1);
  std::swap(axis.in, axis.out);
  axis.taps = most, s.back_taps = static_cast<int32_t>(most);
  return axis;
}

class Resize {
 public:
  template <class Op>
  Resize(const Op& n, const sdk::Type& x, std::span<const int64_t> in, bool backward,
         const Node& node)
      : backward_(backward), dtype_(x.dtype), device_(device_of(node)) {
    planes_ = x.dims[0] * x.dims[1];
    acc_ = n.mode == "nearest" && !backward ? TENON_DTYPE_F32 : acc_dtype(dtype_);
    moves_ = n.mode == "nearest" && !backward;
    for (size_t k = 0; k < in.size(); ++k) {
      Axis& a = axes_[3 - in.size() + k];
      a = axis_of(n, k, in[k], backward);
      constexpr int64_t kMostTaps = 1 << 16;
      if (a.taps > kMostTaps) throw Refusal::shape("more than 2^16 taps of one result");
    }
    const int64_t bytes = element_bytes(acc_);
    for (Axis& a : axes_) {
      if (!a.changes) continue;
      a.table = scratch_;
      scratch_ += table_bytes(a.out, a.taps, bytes);
      if (!backward) continue;
      a.forward_table = scratch_;
      scratch_ += table_bytes(a.in, a.shape.taps, bytes);
    }
  }

  Kernel make() {
    int64_t all = 1;
    for (const Axis& a : axes_) all *= a.changes ? a.taps : 1;
    constexpr int64_t kFewTaps = 36;
    return all <= kFewTaps ? at_once() : by_axis();
  }

 private:
  std::vector<std::string> defines(std::string from, std::string to, bool moves) const {
    return {"TYPE=" + std::move(from), "TO=" + std::move(to), "ACC=" + type_name("x", acc_),
            define("MOVE", moves)};
  }

  // Launches the kernels that make the tables.
  auto tables() const {
    const std::string acc = type_name("x", acc_);
    const auto taps = device_.code(entries::resample_taps, defines(acc, acc, false));
    const auto turn = device_.code(entries::resample_transposed, defines(acc, acc, false));
    const auto make = [axes = axes_, backward = backward_, taps, turn](const Call& c) {
      const auto place = [&](int64_t offset) -> void* {
        return static_cast<char*>(c.scratch) + offset;
      };
      for (const Axis& a : axes) {
        if (!a.changes) continue;
        void* const table = place(a.table);
        if (!backward) {
          taps.launch(c, grid_of(a.shape.out), table, a.shape);
          continue;
        }
        void* const forward = place(a.forward_table);
        taps.launch(c, grid_of(a.shape.out), forward, a.shape);
        const void* const from = forward;
        turn.launch(c, grid_of(a.shape.in), from, table, a.shape);
      }
    };
    struct Tables {
      std::vector<Code> codes;
      decltype(make) launch;
    };
    Tables t{{taps}, make};
    if (backward_) t.codes.push_back(turn);
    return t;
  }

  Kernel at_once() {
    args::ImagesShape s;
    s.planes = planes_;
    s.in_pixels = axes_[0].in * axes_[1].in * axes_[2].in;
    s.out_pixels = axes_[0].out * axes_[1].out * axes_[2].out;
    if (s.in_pixels >= kNarrowIndex || s.out_pixels >= kNarrowIndex)
      throw Refusal::shape("an image of more than 2^31 pixels");
    s.in_h = static_cast<int32_t>(axes_[1].in), s.in_w = static_cast<int32_t>(axes_[2].in);
    for (int k = 0; k < 3; ++k) {
      s.taps[k] = static_cast<int32_t>(axes_[k].taps);
      s.rows[k] = static_cast<int32_t>(axes_[k].out);
    }
    s.h = args::Divisor(static_cast<uint32_t>(axes_[1].out));
    s.w = args::Divisor(static_cast<uint32_t>(axes_[2].out));
    constexpr int64_t kPlanes = 4;  // of a thread
    const Grid grid = grid_of(blocks_for(planes_, kPlanes) * s.out_pixels);
    const std::string type =
        moves_ ? "u" + std::to_string(8 * element_bytes(dtype_)) : type_name("x", dtype_);
    const auto code = device_.code(entries::resample_images, defines(type, type, moves_));
    const auto t = tables();
    std::vector<Code> codes = t.codes;
    codes.push_back(code);
    Kernel kernel = kernel_of(std::move(codes), [=, make = t.launch, axes = axes_](const Call& c) {
      make(c);
      const auto table = [&](int k) -> const void* {
        return axes[k].changes ? static_cast<char*>(c.scratch) + axes[k].table : nullptr;
      };
      code.launch(c, grid, c.inputs[0], c.outputs[0], table(0), table(1), table(2), s);
    });
    kernel.scratch = static_cast<uint64_t>(scratch_);
    return kernel;
  }

  // One pass over one axis. from, to: places in scratch; -1: the operand, the result.
  struct Pass {
    CodeFor<entries::resample_line> code{};
    Grid grid{};
    args::LineShape shape{};
    int64_t table = 0, from = -1, to = -1;
  };
  Kernel by_axis() {
    std::vector<int> order;
    for (int k = 0; k < 3; ++k)
      if (axes_[k].changes) order.push_back(k);
    // The axes that shrink come first, so that later ones have less to do.
    const auto growth = [&](int k) {
      return static_cast<double>(axes_[k].out) / static_cast<double>(axes_[k].in);
    };
    std::ranges::stable_sort(order, [&](int a, int b) { return growth(a) < growth(b); });
    int64_t dims[3] = {axes_[0].in, axes_[1].in, axes_[2].in};
    std::vector<Pass> passes;
    const std::string own = type_name("x", dtype_), acc = type_name("x", acc_);
    for (const int k : order) {
      Pass p;
      const bool first = passes.empty(), last = passes.size() + 1 == order.size();
      p.shape.in = dims[k], p.shape.out = axes_[k].out;
      p.shape.taps = static_cast<int32_t>(axes_[k].taps);
      for (int m = k + 1; m < 3; ++m) p.shape.inner *= dims[m];
      dims[k] = axes_[k].out;
      p.shape.items = planes_ * dims[0] * dims[1] * dims[2];
      p.grid = grid_of(p.shape.items);
      p.table = axes_[k].table;
      p.code =
          device_.code(entries::resample_line, defines(first ? own : acc, last ? own : acc, false));
      if (!first) p.from = passes.back().to;
      if (!last) {
        p.to = scratch_;
        scratch_ += aligned(p.shape.items * element_bytes(acc_));
      }
      passes.push_back(p);
    }
    const auto t = tables();
    std::vector<Code> codes = t.codes;
    for (const Pass& p : passes) codes.push_back(p.code);
    Kernel kernel = kernel_of(std::move(codes), [make = t.launch, passes](const Call& c) {
      make(c);
      char* const scratch = static_cast<char*>(c.scratch);
      for (const Pass& p : passes) {
        const void* from = p.from < 0 ? c.inputs[0] : scratch + p.from;
        void* to = p.to < 0 ? c.outputs[0] : scratch + p.to;
        const void* table = scratch + p.table;
        p.code.launch(c, p.grid, from, to, table, p.shape);
      }
    });
    kernel.scratch = static_cast<uint64_t>(scratch_);
    return kernel;
  }

  bool backward_, moves_ = false;
  tenon_dtype dtype_, acc_ = TENON_DTYPE_F32;
  CudaDevice& device_;
  int64_t planes_ = 0, scratch_ = 0;
  std::array<Axis, 3> axes_{};
};

void check_float(const sdk::Value& v, std::string_view name) {
  if (!is_float(v.type().dtype)) throw Refusal::dtype(name, v.type().dtype);
}
void check_elements(const Node& node) {
  if (node.out(0).type().elements() == 0) throw Refusal::shape("no images");
}

Kernel make_resize(const sdk::op::resize& n, const Node& node) {
  if (n.mode != "nearest") check_float(n.x, "x");
  check_elements(node);
  const sdk::Type& x = n.x.type();
  const auto in = std::span(x.dims).subspan(2, static_cast<size_t>(x.rank - 2));
  return Resize(n, x, in, false, node).make();
}
Kernel make_resize_backward(const sdk::op::resize_backward& n, const Node& node) {
  check_float(n.dy, "dy");
  check_elements(node);
  return Resize(n, n.dy.type(), n.size, true, node).make();
}

Kernel make_grid_sample(const sdk::op::grid_sample& n, const Node& node) {
  check_float(n.x, "x");
  check_elements(node);
  const sdk::Type &x = n.x.type(), &grid = n.grid.type();
  constexpr int64_t kChannels = 8;  // of a thread
  args::GridShape s;
  s.images = x.dims[0], s.channels = x.dims[1];
  s.groups = blocks_for(s.channels, kChannels);
  s.points = 1, s.pixels = 1;
  const int axes = x.rank - 2;
  for (int k = 0; k < axes; ++k) {
    const int64_t size = x.dims[x.rank - 1 - k];
    if (size > (1 << 22)) throw Refusal::shape("more than 2^22 pixels along an axis");
    s.size[k] = static_cast<int32_t>(size);
    s.pixels *= size;
    s.points *= grid.dims[k + 1];
  }
  const auto code = device_of(node).code(
      entries::grid_sample,
      {"TYPE=" + type_name("x", x.dtype), "GRID=" + type_name("grid", grid.dtype),
       define("MODE", position_in({"nearest", "linear", "cubic"}, n.mode)),
       define("PADDING", position_in({"zeros", "border", "reflection"}, n.padding)),
       define("CORNERS", n.align_corners), define("AXES", axes)});
  const Grid blocks = grid_of(s.images * s.groups * s.points);
  return kernel_of({code}, [=](const Call& c) {
    code.launch(c, blocks, c.inputs[0], c.inputs[1], c.outputs[0], s);
  });
}

constexpr sdk::Row kRows[] = {
    sdk::row<sdk::op::resize, make_resize>(),
    sdk::row<sdk::op::resize_backward, make_resize_backward>(),
    sdk::row<sdk::op::grid_sample, make_grid_sample>(),
};

}  // namespace

std::span<const sdk::Row> resample_rows() { return kRows; }

}  // namespace tenon::cuda
