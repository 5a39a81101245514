// SPDX-License-Identifier: Apache-2.0
// grid_sample and grid_sample_backward: half-precision operands are widened first, then blocks of
// points, or planes, are distributed over threads.
#include "resample_grid.hpp"

#include <algorithm>
#include <limits>

#include "../parallel.hpp"
#include "resample.hpp"

namespace tenon::cpu {
namespace {

using sdk::Call;
using sdk::Kernel;
using sdk::Node;

template <class Op>
GridPlan plan_of(const Op& n) {
  const sdk::Type &x = n.x.type(), &grid = n.grid.type();
  if (!is_float(x.dtype)) throw sdk::Refusal::dtype("x", x.dtype);
  GridPlan p{.align_corners = n.align_corners, .wide = x.dtype == TENON_DTYPE_F64};
  p.mode = n.mode == "nearest"  ? GridMode::nearest
           : n.mode == "linear" ? GridMode::linear
                                : GridMode::cubic;
  p.padding = n.padding == "zeros"    ? GridPadding::zeros
              : n.padding == "border" ? GridPadding::border
                                      : GridPadding::reflection;
  p.axes = x.rank - 2;
  p.images = x.dims[0], p.channels = x.dims[1], p.points = 1;
  for (int k = 1; k <= p.axes; ++k) p.points *= grid.dims[k];
  for (int k = 0; k < p.axes; ++k) {
    p.size[k] = x.dims[x.rank - 1 - k];
    // Positions are acc, and pixels are 32-bit indices, except with f64.
    if (p.size[k] > (1 << 22)) throw sdk::Refusal::shape("more than 2^22 pixels along an axis");
    p.pixels *= p.size[k];
  }
  if (p.pixels > std::numeric_limits<int32_t>::max())
    throw sdk::Refusal::shape("more than 2^31 pixels in an image");
  return p;
}

// Tensors that a kernel reads or writes in acc, with a copy in scratch where they have another dtype.
class WideTensors {
 public:
  explicit WideTensors(bool wide) : acc_(wide ? TENON_DTYPE_F64 : TENON_DTYPE_F32) {}
  // Returns its position.
  size_t add(const sdk::Type& type) {
    Part part{type.dtype, type.elements(), kNone};
    if (type.dtype != acc_) {
      part.offset = bytes_;
      bytes_ += (part.count * element_bytes(acc_) + 63) / 64 * 64;
    }
    parts_.push_back(part);
    return parts_.size() - 1;
  }
  uint64_t bytes() const { return static_cast<uint64_t>(bytes_); }

  // The tensor in acc; of an input, with its content.
  const void* read(size_t k, const void* tensor, void* scratch) const {
    const Part& p = parts_[k];
    if (p.offset == kNone) return tensor;
    char* const copy = static_cast<char*>(scratch) + p.offset;
    const int64_t each = element_bytes(p.dtype);
    parallel_for(p.count, 1 << 14, [&](int64_t begin, int64_t end) {
      const void* from = static_cast<const char*>(tensor) + begin * each;
      if (acc_ == TENON_DTYPE_F32)
        widen(p.dtype, from, reinterpret_cast<float*>(copy) + begin, end - begin);
      else
        std::copy_n(static_cast<const float*>(from), end - begin,
                    reinterpret_cast<double*>(copy) + begin);
    });
    return copy;
  }
  void* place(size_t k, void* tensor, void* scratch) const {
    const Part& p = parts_[k];
    return p.offset == kNone ? tensor : static_cast<char*>(scratch) + p.offset;
  }
  // Writes an output whose place was in scratch. Outputs are f32 or half where acc is f32.
  void write(size_t k, void* tensor, const void* scratch) const {
    const Part& p = parts_[k];
    if (p.offset == kNone) return;
    const char* const copy = static_cast<const char*>(scratch) + p.offset;
    const int64_t each = element_bytes(p.dtype);
    parallel_for(p.count, 1 << 14, [&](int64_t begin, int64_t end) {
      char* const to = static_cast<char*>(tensor) + begin * each;
      if (acc_ == TENON_DTYPE_F32)
        narrow(p.dtype, reinterpret_cast<const float*>(copy) + begin, to, end - begin);
      else
        std::transform(reinterpret_cast<const double*>(copy) + begin,
                       reinterpret_cast<const double*>(copy) + end, reinterpret_cast<float*>(to),
                       [](double v) { return static_cast<float>(v); });
    });
  }

 private:
  static constexpr int64_t kNone = -1;
  struct Part {
    tenon_dtype dtype;
    int64_t count, offset;
  };
  tenon_dtype acc_;
  std::vector<Part> parts_;
  int64_t bytes_ = 0;
};

int64_t taps_of(const GridPlan& p) {
  const int64_t each = p.mode == GridMode::nearest ? 1 : p.mode == GridMode::linear ? 2 : 4;
  return p.axes == 2 ? each * each : each * each * each;
}

}  // namespace

Kernel make_grid_sample(const sdk::op::grid_sample& n, const Node& node) {
  const GridPlan p = plan_of(n);
  WideTensors wide(p.wide);
  const size_t x = wide.add(n.x.type()), grid = wide.add(n.grid.type());
  const size_t y = wide.add(node.out(0).type());
  const int64_t cost = kGridPoints * (p.channels + 4) * taps_of(p) * 8;
  return {.run =
              [=](const Call& c) {
                const void* image = wide.read(x, c.inputs[0], c.scratch);
                const void* points = wide.read(grid, c.inputs[1], c.scratch);
                void* to = wide.place(y, c.outputs[0], c.scratch);
                parallel_for(p.images * grid_blocks(p), grain_for(cost),
                             [&](int64_t begin, int64_t end) {
                               grid_forward(p, image, points, to, begin, end);
                             });
                wide.write(y, c.outputs[0], c.scratch);
              },
          .scratch = wide.bytes()};
}

Kernel make_grid_sample_backward(const sdk::op::grid_sample_backward& n, const Node&) {
  const GridPlan p = plan_of(n);
  WideTensors wide(p.wide);
  const size_t dy = wide.add(n.dy.type()), x = wide.add(n.x.type()), grid = wide.add(n.grid.type());
  const size_t dx = n.want_dx ? wide.add(n.x.type()) : 0;
  const size_t dgrid = n.want_dgrid ? wide.add(n.grid.type()) : 0;
  // A call for several channels computes the taps once.
  const int64_t group = std::clamp<int64_t>(p.channels * p.images / 16, 1, 16);
  const int64_t groups = (p.channels + group - 1) / group;
  const int64_t cost = kGridPoints * (p.channels + 8) * taps_of(p) * 8;
  return {.run =
              [=, want_dx = n.want_dx, want_dgrid = n.want_dgrid](const Call& c) {
                const void* change = wide.read(dy, c.inputs[0], c.scratch);
                const void* points = wide.read(grid, c.inputs[2], c.scratch);
                if (want_dx) {
                  void* to = wide.place(dx, c.outputs[0], c.scratch);
                  parallel_for(p.images * groups, 1, [&](int64_t begin, int64_t end) {
                    for (int64_t k = begin; k < end; ++k)
                      grid_backward_image(p, change, points, to, k / groups, k % groups * group,
                                          std::min(p.channels, (k % groups + 1) * group));
                  });
                  wide.write(dx, c.outputs[0], c.scratch);
                }
                if (!want_dgrid) return;
                const void* image = wide.read(x, c.inputs[1], c.scratch);
                void* to = wide.place(dgrid, c.outputs[1], c.scratch);
                parallel_for(p.images * grid_blocks(p), grain_for(cost),
                             [&](int64_t begin, int64_t end) {
                               grid_backward_points(p, change, image, points, to, begin, end);
                             });
                wide.write(dgrid, c.outputs[1], c.scratch);
              },
          .scratch = wide.bytes()};
}

}  // namespace tenon::cpu
