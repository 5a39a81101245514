// SPDX-License-Identifier: Apache-2.0
// What the ops with indices in the data share.
#pragma once

#include <string>

#include "../device.hpp"
#include "args.hpp"
#include "entries.hpp"

namespace tenon::cuda {

using args::IndexAxis;
// With what a call tells.
inline IndexAxis axis_at(IndexAxis a, const sdk::Call& c, int input) {
  a.indices = c.inputs[input];
  a.sink = error_sink(c);
  return a;
}

inline IndexAxis index_axis(int64_t length, const sdk::Type& indices) {
  return {.length = length, .count = indices.elements(), .wide = indices.dtype == TENON_DTYPE_I64};
}
// The define of index.cuh.
inline std::string oob_define(std::string_view text) {
  if (text == "error") return "OOB=0";
  if (text == "clamp") return "OOB=1";
  if (text == "skip") return "OOB=2";
  throw sdk::Refusal::attribute("oob", text);
}

sdk::Kernel make_scatter(const sdk::op::scatter& n, const sdk::Node& node);
sdk::Kernel make_scatter_add(const sdk::op::scatter_add& n, const sdk::Node& node);
sdk::Kernel make_scatter_reduce(const sdk::op::scatter_reduce& n, const sdk::Node& node);
sdk::Kernel make_scatter_elements_reduce(const sdk::op::scatter_elements_reduce& n,
                                         const sdk::Node& node);
sdk::Kernel make_gather_backward(const sdk::op::gather_backward& n, const sdk::Node& node);
sdk::Kernel make_scatter_elements_add(const sdk::op::scatter_elements_add& n,
                                      const sdk::Node& node);
sdk::Kernel make_dynamic_slice(const sdk::op::dynamic_slice& n, const sdk::Node& node);
sdk::Kernel make_dynamic_update_slice(const sdk::op::dynamic_update_slice& n,
                                      const sdk::Node& node);

}  // namespace tenon::cuda
