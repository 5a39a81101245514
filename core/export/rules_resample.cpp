// SPDX-License-Identifier: Apache-2.0
// Resize, grid_sample and roi_align as nodes of ONNX.
#include <cmath>
#include <cstring>

#include "export/call.hpp"

namespace tenon::core::onnx {
namespace {

Ref floats(Emitter& e, const std::vector<double>& values, bool exact) {
  Bytes bytes(values.size() * sizeof(float));
  for (size_t k = 0; k < values.size(); ++k) {
    const auto v = static_cast<float>(values[k]);
    if (exact && static_cast<double>(v) != values[k])
      throw NoForm{cat("ONNX rounds the number ", values[k], " to f32")};
    std::memcpy(bytes.data() + k * sizeof v, &v, sizeof v);
  }
  return e.constant({kF32, {static_cast<int64_t>(values.size())}},
                    std::make_shared<const Bytes>(std::move(bytes)));
}

void write_resize(Call& c) {
  const auto n = decode<op::resize>(c.node);
  Emitter& e = c.e;
  const int64_t axes = c.rank(n.x) - 2;
  std::vector<Attribute> attributes = {attribute("mode", n.mode),
                                       attribute("coordinate_transformation_mode", n.coordinates),
                                       attribute("axes", count_up(axes, 2))};
  if (n.mode == "nearest") attributes.push_back(attribute("nearest_mode", n.nearest_mode));
  if (n.mode == "cubic") attributes.push_back(attribute("cubic_coeff_a", n.cubic_a));
  if (n.exclude_outside) attributes.push_back(attribute("exclude_outside", 1));
  if (n.antialias) attributes.push_back(attribute("antialias", 1));
  if (n.extrapolation_value != 0)
    attributes.push_back(attribute("extrapolation_value", n.extrapolation_value));
  const Ref roi = n.roi.empty() ? Ref{} : floats(e, n.roi, false);
  // The lengths of the result, and which pixel is next, change with the rounding of a scale.
  const Ref scales = n.scales.empty() ? Ref{} : floats(e, n.scales, true);
  const Ref sizes = n.sizes.empty() ? Ref{} : e.ints(n.sizes);
  c.out(e.add("Resize", {c.in(n.x), roi, scales, sizes}, std::move(attributes)));
}

void write_grid_sample(Call& c) {
  const auto n = decode<op::grid_sample>(c.node);
  if (n.mode == "cubic" && n.padding == "border")
    c.refuse("ONNX moves positions to the edge before it takes the pixels of mode cubic");
  if (n.mode == "cubic" && c.rank(n.x) != 4) c.refuse("ONNX's mode cubic has two spatial axes");
  const Ref x = c.in(n.x), grid = c.in(n.grid);
  c.out(c.e.add("GridSample", {x, c.e.widen(grid)},
                {attribute("mode", n.mode), attribute("padding_mode", n.padding),
                 attribute("align_corners", n.align_corners)}));
}

void write_roi_align(Call& c) {
  const auto n = decode<op::roi_align>(c.node);
  // Those of tenon may count from the end.
  Emitter& e = c.e;
  Ref at = e.cast(c.in(n.batch_indices), kI64);
  at = e.where(e.add("Less", {at, e.integer(0)}),
               e.add("Add", {at, e.reshape(c.length(n.x, 0), {})}), at);
  c.out(
      e.add("RoiAlign", {c.in(n.x), c.in(n.rois), at},
            {attribute("mode", n.mode), attribute("coordinate_transformation_mode", n.coordinates),
             attribute("output_height", n.output_height), attribute("output_width", n.output_width),
             attribute("sampling_ratio", n.sampling_ratio),
             attribute("spatial_scale", n.spatial_scale)}));
}

constexpr ExportRule kRules[] = {
    {"resize", write_resize}, {"grid_sample", write_grid_sample}, {"roi_align", write_roi_align}};

}  // namespace

std::span<const ExportRule> resample_export_rules() { return kRules; }

}  // namespace tenon::core::onnx
