// SPDX-License-Identifier: Apache-2.0
// Rules: Resize and its kin, and reading pictures at positions.
#include <cmath>

#include "import/onnx/helpers.hpp"
#include "import/onnx/window.hpp"

namespace tenon::core::onnx {
namespace {

// What Resize does, by axis of its input.
struct Sizing {
  Ints sizes{};                  // of all axes; empty: scales count
  std::vector<double> scales{};  // of all axes
  std::vector<double> roi{};     // starts, then ends; empty: none
};

// Writes the op over the axes that change. Others are examples or channels.
void give_resized(Call& c, const Sizing& how, op::resize n) {
  Builder& b = c.b;
  const Shape s = c.shape(0);
  const int rank = s.rank();
  const bool crops = n.coordinates == "tf_crop_and_resize";
  Ints changed;
  for (int k = 0; k < rank; ++k) {
    const auto i = static_cast<size_t>(k);
    const bool same = how.sizes.empty() ? how.scales[i] == 1 : how.sizes[i] == s[k];
    const bool whole = !crops || (how.roi[i] == 0 && how.roi[i + static_cast<size_t>(rank)] == 1);
    if (!same || !whole) changed.push_back(k);
  }
  if (changed.empty()) return c.out_item(0, c.item(0));
  // All spatial axes, where that is what the op takes.
  if (rank >= 3 && rank <= 5 && changed[0] >= 2) changed = iota_list(rank - 2, 2);
  if (changed.size() > 3) c.refuse("resizes ", changed.size(), " axes, expected at most 3");
  const Ints kept = other_axes(changed, rank);
  Ints perm = kept;
  perm.insert(perm.end(), changed.begin(), changed.end());
  const bool plain = rank >= 3 && kept == Ints{0, 1};
  Value x = c.value(0);
  if (!plain) {
    x = b.transpose(x, perm);
    Shape flat{1, 1};
    for (const int64_t k : kept) flat[1] *= s[static_cast<int>(k)];
    for (const int64_t k : changed) flat.push(s[static_cast<int>(k)]);
    x = b.reshape(x, flat);
  }
  for (const int64_t k : changed) {
    const auto i = static_cast<size_t>(k);
    if (how.sizes.empty())
      n.scales.push_back(how.scales[i]);
    else
      n.sizes.push_back(how.sizes[i]);
    if (crops) n.roi.push_back(how.roi[i]);
  }
  if (crops)
    for (const int64_t k : changed) n.roi.push_back(how.roi[static_cast<size_t>(k + rank)]);
  n.x = x;
  Value y = b.add(n);
  if (!plain) {
    const Shape resized = b.shape(y);
    Shape apart;
    for (const int64_t k : kept) apart.push(s[static_cast<int>(k)]);
    for (int k = 2; k < resized.rank(); ++k) apart.push(resized[k]);
    Ints back(perm.size());
    for (size_t k = 0; k < perm.size(); ++k)
      back[static_cast<size_t>(perm[k])] = static_cast<int64_t>(k);
    y = b.transpose(b.reshape(y, apart), back);
  }
  c.out(y);
}

std::string mode_of(const Call& c, const std::string& mode) {
  if (mode == "nearest") return mode;
  if (mode == "linear" || mode == "bilinear") return "linear";
  if (mode == "cubic" || mode == "bicubic") return "cubic";
  c.wrong("attribute mode: '", mode, "'");
}

std::vector<double> numbers(const Call& c, size_t k, std::string_view what) {
  const Known& known = c.need(k, what);
  std::vector<double> out;
  for (size_t i = 0; i < static_cast<size_t>(known.size()); ++i) out.push_back(known.number(i));
  return out;
}

// Upsample, and Resize of opset 10: positions are o / scale.
void upsample(Call& c) {
  const int rank = c.rank(0);
  Sizing how;
  how.scales = c.has_attr("scales") ? c.fs("scales") : numbers(c, 1, "scales");
  if (how.scales.size() != static_cast<size_t>(rank))
    c.wrong("scales: expected ", rank, " numbers, got ", how.scales.size());
  give_resized(c, how,
               {.mode = mode_of(c, c.s("mode", "nearest")),
                .coordinates = "asymmetric",
                .nearest_mode = "floor"});
}

void resize(Call& c) {
  if (c.opset < 11) return upsample(c);
  const Shape s = c.shape(0);
  const int rank = s.rank();
  const Ints axes = c.has_attr("axes") ? c.axes(c.is("axes"), rank) : iota_list(rank);
  const auto all = static_cast<size_t>(rank);
  Sizing how;
  op::resize n{.mode = mode_of(c, c.s("mode", "nearest")),
               .coordinates = c.s("coordinate_transformation_mode", "half_pixel"),
               .nearest_mode = c.s("nearest_mode", "round_prefer_floor"),
               .cubic_a = c.f("cubic_coeff_a", -0.75),
               .exclude_outside = c.flag("exclude_outside", false),
               .antialias = c.flag("antialias", false),
               .extrapolation_value = c.f("extrapolation_value", 0)};
  if (n.coordinates == "tf_half_pixel_for_nn") c.refuse("coordinates '", n.coordinates, "'");
  if (n.mode != "linear" && n.mode != "cubic") n.antialias = false;
  if (n.mode != "cubic") n.exclude_outside = n.exclude_outside && n.antialias;
  // An empty tensor is as good as none.
  const auto given = [&](size_t k) { return c.has(k) && c.shape(k).elements() > 0; };
  if (n.coordinates == "tf_crop_and_resize") {
    if (!given(1)) c.wrong("roi is required");
    const std::vector<double> roi = numbers(c, 1, "roi");
    if (roi.size() != 2 * axes.size())
      c.wrong("roi: expected ", 2 * axes.size(), " numbers, got ", roi.size());
    how.roi.assign(2 * all, 0);
    for (size_t k = 0; k < all; ++k) how.roi[k + all] = 1;
    for (size_t k = 0; k < axes.size(); ++k) {
      how.roi[static_cast<size_t>(axes[k])] = roi[k];
      how.roi[static_cast<size_t>(axes[k]) + all] = roi[k + axes.size()];
    }
  }
  if (given(2) == given(3)) c.wrong("expected one of scales and sizes");
  if (given(2)) {
    const std::vector<double> scales = numbers(c, 2, "scales");
    if (scales.size() != axes.size())
      c.wrong("scales: expected ", axes.size(), " numbers, got ", scales.size());
    how.scales.assign(all, 1);
    for (size_t k = 0; k < axes.size(); ++k) how.scales[static_cast<size_t>(axes[k])] = scales[k];
    return give_resized(c, how, n);
  }
  const Ints sizes = c.sane(c.ints(3, "sizes"), "sizes");
  if (sizes.size() != axes.size())
    c.wrong("sizes: expected ", axes.size(), " numbers, got ", sizes.size());
  how.sizes = dims_of(s);
  for (size_t k = 0; k < axes.size(); ++k) how.sizes[static_cast<size_t>(axes[k])] = sizes[k];
  const std::string policy = c.s("keep_aspect_ratio_policy", "stretch");
  if (policy != "stretch") {
    if (policy != "not_larger" && policy != "not_smaller")
      c.wrong("attribute keep_aspect_ratio_policy: '", policy, "'");
    std::optional<double> scale;
    for (size_t k = 0; k < axes.size(); ++k) {
      const double ratio =
          static_cast<double>(sizes[k]) / static_cast<double>(s[static_cast<int>(axes[k])]);
      scale = !scale                   ? ratio
              : policy == "not_larger" ? std::min(*scale, ratio)
                                       : std::max(*scale, ratio);
    }
    // One scale for all axes. Lengths are rounded; where rounding down gives the same, the exact
    // scale is kept.
    bool exact = true;
    for (const int64_t a : axes) {
      const double length = scale.value_or(1) * static_cast<double>(s[static_cast<int>(a)]);
      how.sizes[static_cast<size_t>(a)] =
          static_cast<int64_t>(std::floor(std::min(length, 0x1p40) + 0.5));
      exact &= std::floor(length) == std::floor(length + 0.5);
    }
    if (exact) {
      how.scales.assign(all, 1);
      for (const int64_t a : axes) how.scales[static_cast<size_t>(a)] = scale.value_or(1);
      how.sizes.clear();
    }
  }
  give_resized(c, how, n);
}

void grid_sample(Call& c) {
  c.out(
      c.b.add(op::grid_sample{.mode = mode_of(c, c.s("mode", c.opset < 20 ? "bilinear" : "linear")),
                              .padding = c.s("padding_mode", "zeros"),
                              .align_corners = c.flag("align_corners", false),
                              .x = c.value(0),
                              .grid = c.value(1)}));
}

void roi_align(Call& c) {
  const std::string coordinates =
      c.opset < 16 ? "output_half_pixel" : c.s("coordinate_transformation_mode", "half_pixel");
  c.out(c.b.add(op::roi_align{.mode = c.s("mode", "avg"),
                              .coordinates = coordinates,
                              .output_height = c.i("output_height", 1),
                              .output_width = c.i("output_width", 1),
                              .sampling_ratio = c.i("sampling_ratio", 0),
                              .spatial_scale = c.f("spatial_scale", 1),
                              .x = c.value(0),
                              .rois = c.value(1),
                              .batch_indices = c.value(2)}));
}

// A convolution whose taps read x at positions of their own.
void deform_conv(Call& c) {
  Builder& b = c.b;
  const Shape s = c.shape(0), w = c.shape(1), o = c.shape(2);
  if (s.rank() != 4 || w.rank() != 4 || o.rank() != 4)
    c.refuse("expected images of two spatial axes, got ", s.text());
  const Window window = window_of(c, spatial_dims(s), spatial_dims(w));
  const int64_t taps = w[2] * w[3], groups = c.i("group", 1), offsets = c.i("offset_group", 1);
  const int64_t high = o[2], wide = o[3];
  if (groups < 1 || offsets < 1 || s[1] % offsets || s[1] % groups || w[0] % groups ||
      w[1] != s[1] / groups || o[0] != s[0] || o[1] != offsets * taps * 2)
    c.wrong("x ", s.text(), ", w ", w.text(), " and offset ", o.text(), " do not fit");
  // The position of each tap without its offset, [1, taps, 2, high, wide].
  const DType t = kF64;  // a position in f32 would miss the pixel that it is at
  const auto axis = [&](size_t k, Shape by_tap, Shape by_pixel, int tap_axis, int pixel_axis) {
    const Value tap = b.iota(by_tap, tap_axis, t, static_cast<double>(-window.before[k]),
                             static_cast<double>(window.dilation[k]));
    return b.plus(tap, b.iota(by_pixel, pixel_axis, t, 0, static_cast<double>(window.stride[k])));
  };
  const Shape all{1, w[2], w[3], 1, high, wide};
  const Value rows = b.expand(axis(0, {1, w[2], 1, 1, 1, 1}, {1, 1, 1, 1, high, 1}, 1, 4), all);
  const Value columns = b.expand(axis(1, {1, 1, w[3], 1, 1, 1}, {1, 1, 1, 1, 1, wide}, 2, 5), all);
  const auto placed = [&](Value v) { return b.reshape(v, {1, taps, 1, high, wide}); };
  const Value offset = b.reshape(b.cast(c.value(2), t), {s[0] * offsets, taps, 2, high, wide});
  const Value at = b.plus(offset, b.concat({placed(rows), placed(columns)}, 2));
  // From -1 to 1, the last axis first: (2 s + 1)/d - 1.
  const auto scaled = [&](int64_t k, int64_t d) {
    const Value v =
        b.times(b.plus(b.times(b.narrow(at, 2, k, 1), 2.0), 1.0), 1.0 / static_cast<double>(d));
    return b.reshape(b.minus(v, 1.0), {s[0] * offsets, taps * high, wide, 1});
  };
  const Value grid = b.concat({scaled(1, s[3]), scaled(0, s[2])}, 3);
  const int64_t each = s[1] / offsets;
  Value read = b.add(op::grid_sample{
      .x = b.reshape(b.cast(c.value(0), t), {s[0] * offsets, each, s[2], s[3]}), .grid = grid});
  read = b.cast(b.reshape(read, {s[0] * offsets, each, taps, high * wide}), c.dtype(0));
  if (c.has(4)) read = b.times(read, b.reshape(c.value(4), {s[0] * offsets, 1, taps, high * wide}));
  const Value y = b.matmul(b.reshape(c.value(1), {1, groups, w[0] / groups, w[1] * taps}),
                           b.reshape(read, {s[0], groups, w[1] * taps, high * wide}));
  const Value out = b.reshape(y, {s[0], w[0], high, wide});
  c.out(c.has(3) ? b.plus(out, b.reshape(c.value(3), {w[0], 1, 1})) : out);
}

constexpr Rule kRules[] = {
    {"Upsample", 7, upsample},   {"Resize", 10, resize},          {"GridSample", 16, grid_sample},
    {"RoiAlign", 10, roi_align}, {"DeformConv", 19, deform_conv},
};

}  // namespace

std::span<const Rule> resample_rules() { return kRules; }

}  // namespace tenon::core::onnx
