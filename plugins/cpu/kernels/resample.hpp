// SPDX-License-Identifier: Apache-2.0
// Shared by the files of the resample family.
#pragma once

#include "../kernels.hpp"
#include "convert.hpp"
#include "tenon/resize_taps.hpp"

namespace tenon::cpu {

// Taps of the spatial axes of a resize node, three of them: leading axes that x lacks have one pixel.
struct ResizeAxes {
  int64_t planes = 1;
  std::array<int64_t, 3> in{1, 1, 1}, out{1, 1, 1};
  std::array<tenon::ResizeTaps, 3> taps{};
  std::array<bool, 3> changes{};
};

// Mode nearest, for elements of 1, 2, 4 and 8 bytes.
sdk::Kernel make_resize_nearest(const ResizeAxes& axes, int64_t element_bytes);

sdk::Kernel make_grid_sample(const sdk::op::grid_sample& n, const sdk::Node& node);
sdk::Kernel make_grid_sample_backward(const sdk::op::grid_sample_backward& n,
                                      const sdk::Node& node);
sdk::Kernel make_roi_align(const sdk::op::roi_align& n, const sdk::Node& node);
sdk::Kernel make_roi_align_backward(const sdk::op::roi_align_backward& n, const sdk::Node& node);

}  // namespace tenon::cpu
