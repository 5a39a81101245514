// SPDX-License-Identifier: Apache-2.0
// resize and resize_backward by weighted sums: the depth of volumes first or last, then planes.
#include "resample.hpp"

#include "axis.hpp"
#include "resample_plane.hpp"

namespace tenon::cpu {
namespace {

using sdk::Call;
using sdk::Kernel;
using sdk::Node;

// in: the type with the spatial dims of the forward's x.
template <class Op>
ResizeAxes axes_of(const Op& n, const sdk::Type& like, std::span<const int64_t> in) {
  ResizeAxes axes;
  axes.planes = like.dims[0] * like.dims[1];
  const size_t missing = 3 - in.size();
  for (size_t k = 0; k < in.size(); ++k) {
    const tenon::ResizeAxis axis = tenon::resize_axis(n, k, in[k]);
    const size_t at = missing + k;
    axes.in[at] = axis.in, axes.out[at] = axis.out;
    if (like.elements() == 0) continue;
    axes.taps[at] = tenon::resize_taps(n, axis);
    if (!axes.taps[at].outside.empty()) throw sdk::Refusal::shape("positions outside of the image");
    axes.changes[at] = !axes.taps[at].identity(axis.in);
  }
  return axes;
}

// Turns resize into its adjoint.
void transpose(ResizeAxes& axes) {
  for (size_t k = 0; k < 3; ++k) {
    if (axes.changes[k]) axes.taps[k] = tenon::transposed(axes.taps[k], axes.in[k]);
    std::swap(axes.in[k], axes.out[k]);
  }
}

// Tables have a column per tap of the output that has most.
void check_tables(const ResizeAxes& axes) {
  for (size_t k = 0; k < 3; ++k)
    if (axes.changes[k] && axes.taps[k].most() > 8 * (axes.in[k] + axes.out[k]) / axes.out[k] + 16)
      throw sdk::Refusal::shape("one result reads far more pixels than the others");
}

// Two steps over planes; the first one may be missing.
template <class A>
struct Volume {
  PlanePlan<A> first, second;
  bool two = false;
  int64_t middle = 0;  // elements between both, in acc
};

template <class A>
Kernel make_weighted(const ResizeAxes& axes, tenon_dtype dtype) {
  const auto taps = [&](size_t k) { return axes.changes[k] ? &axes.taps[k] : nullptr; };
  const auto& [d, h, w] = axes.in;
  const auto& [od, oh, ow] = axes.out;
  const int64_t bytes = element_bytes(dtype);
  Volume<A> v;
  const auto pixels = [&](int64_t planes) {
    return make_plane_plan<A>(planes, h, w, taps(1), taps(2), bytes);
  };
  const auto depth = [&](int64_t plane) {
    return make_plane_plan<A>(axes.planes, d, plane, taps(0), nullptr, bytes);
  };
  if (!axes.changes[0]) {
    v.first = pixels(axes.planes * d);
  } else if (!axes.changes[1] && !axes.changes[2]) {
    v.first = depth(h * w);
  } else if (od <= d) {
    v.two = true, v.middle = axes.planes * od * h * w;
    v.first = depth(h * w), v.second = pixels(axes.planes * od);
  } else {
    v.two = true, v.middle = axes.planes * d * oh * ow;
    v.first = pixels(axes.planes * d), v.second = depth(oh * ow);
  }
  const auto middle = static_cast<uint64_t>(v.middle) * sizeof(A);
  const uint64_t offset = (middle + 63) / 64 * 64;
  const uint64_t scratch = offset + std::max(v.first.slots.scratch(), v.second.slots.scratch());
  constexpr tenon_dtype acc = sizeof(A) == 8 ? TENON_DTYPE_F64 : TENON_DTYPE_F32;
  return {.run =
              [v = std::move(v), dtype, offset](const Call& c) {
                char* const areas = static_cast<char*>(c.scratch) + offset;
                if (!v.two)
                  return run_planes(PlaneRun<A>{v.first, dtype, c.inputs[0], dtype, c.outputs[0]},
                                    areas);
                run_planes(PlaneRun<A>{v.first, dtype, c.inputs[0], acc, c.scratch}, areas);
                run_planes(PlaneRun<A>{v.second, acc, c.scratch, dtype, c.outputs[0]}, areas);
              },
          .scratch = scratch};
}

Kernel make_sums(const ResizeAxes& axes, const sdk::Value& x, std::string_view operand) {
  const tenon_dtype dtype = x.type().dtype;
  if (!is_float(dtype)) throw sdk::Refusal::dtype(operand, dtype);
  check_tables(axes);
  if (std::ranges::none_of(axes.changes, [](bool v) { return v; }))
    return make_resize_nearest(axes, element_bytes(dtype));
  return dtype == TENON_DTYPE_F64 ? make_weighted<double>(axes, dtype)
                                  : make_weighted<float>(axes, dtype);
}

Kernel make_resize(const sdk::op::resize& n, const Node& node) {
  const sdk::Type& x = n.x.type();
  if (node.out(0).type().elements() == 0) return {.run = [](const Call&) {}};
  const ResizeAxes axes =
      axes_of(n, x, std::span(x.dims).subspan(2, static_cast<size_t>(x.rank - 2)));
  if (n.mode == "nearest") return make_resize_nearest(axes, element_bytes("x", x.dtype));
  return make_sums(axes, n.x, "x");
}

Kernel make_resize_backward(const sdk::op::resize_backward& n, const Node& node) {
  if (node.out(0).type().elements() == 0) return {.run = [](const Call&) {}};
  ResizeAxes axes = axes_of(n, n.dy.type(), n.size);
  transpose(axes);
  return make_sums(axes, n.dy, "dy");
}

constexpr sdk::Row kRows[] = {
    sdk::row<sdk::op::resize, make_resize>(),
    sdk::row<sdk::op::resize_backward, make_resize_backward>(),
    sdk::row<sdk::op::grid_sample, make_grid_sample>(),
    sdk::row<sdk::op::grid_sample_backward, make_grid_sample_backward>(),
    sdk::row<sdk::op::roi_align, make_roi_align>(),
    sdk::row<sdk::op::roi_align_backward, make_roi_align_backward>(),
};

}  // namespace

std::span<const sdk::Row> resample_rows() { return kRows; }

}  // namespace tenon::cpu
