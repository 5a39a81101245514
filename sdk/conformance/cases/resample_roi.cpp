// SPDX-License-Identifier: Apache-2.0
// roi_align and roi_align_backward.
#include "cases/families.hpp"

namespace tenon::conform {
namespace {

struct Form {
  const char* id;
  const char* sentence;
  op::roi_align n;
  Dims x = {2, 3, 7, 6};
  // Inside, across each edge, smaller than a pixel, outside, turned around, larger than the image.
  std::vector<double> rois = {1.1,  0.7, 4.3,  5.9, -2.2, 1.3, 3.1, 9.7, 2.3,  2.2,  2.6,  2.9,
                              -9.3, 1.2, -4.1, 3.3, 4.7,  5.1, 2.2, 1.3, -3.7, -5.3, 21.4, 17.3};
  std::vector<int64_t> images = {0, 1, -1, 1, 0, -2};
};

const std::vector<Form>& forms() {
  static const std::vector<Form> all = {
      {"fixed",
       "two samples per axis",
       {.output_height = 3, .output_width = 2, .sampling_ratio = 2}},
      {"adaptive", "as many samples as the region needs", {.output_height = 2, .output_width = 3}},
      {"scaled",
       "regions of a larger picture",
       {.output_height = 2, .output_width = 2, .sampling_ratio = 3, .spatial_scale = 0.5}},
      {"unshifted",
       "without the half pixel",
       {.coordinates = "output_half_pixel", .output_height = 2, .output_width = 3}},
      {"one", "one bin per region", {.spatial_scale = 0.75}},
      {"many", "more samples than pixels", {.output_height = 2, .sampling_ratio = 17}},
      {"line", "an image of one row", {.output_height = 2, .output_width = 2}, {2, 2, 1, 9}},
      {"column", "an image of two columns", {.output_height = 2, .output_width = 2}, {2, 2, 9, 2}},
      {"channels",
       "many channels",
       {.output_height = 3, .output_width = 3, .sampling_ratio = 2},
       {2, 67, 7, 6}},
  };
  return all;
}

int64_t regions_in(const Form& f) { return static_cast<int64_t>(f.images.size()); }

// Positions are rounded, and a value changes with its position.
Value position_scale(CaseBuilder& b, Value v, double times) {
  return b.binary("mul", largest_of(b, v), b.number(times));
}

void form_rows(Suite& s, const Form& f, const char* mode) {
  const bool small = f.x[1] < 9;
  const std::string id = std::string(mode) + "-" + f.id;
  const auto operands = [=](CaseBuilder& b, auto& n) {
    n.rois = b.input("rois", {regions_in(f), 4}, Fill::list(f.rois).fixed());
    n.batch_indices = b.ints("images", {regions_in(f)}, f.images);
  };
  s.add({.id = "roi-align-" + id,
         .sentence = std::string("roi_align: ") + f.sentence,
         .build =
             [=](CaseBuilder& b) {
               op::roi_align n = f.n;
               n.mode = mode;
               n.x = b.input("x", f.x, Fill::distinct(-2, 3));
               operands(b, n);
               b.output("y", b.add(n));
               b.scale("y", [&] { return position_scale(b, n.x, 8); });
             },
         .tolerance = sum_of(64),
         .decomposed = 2,
         .gradient = small,
         .scales = {1}});
  s.add({.id = "roi-align-backward-" + id,
         .sentence = std::string("gradient of roi_align: ") + f.sentence,
         .build =
             [=](CaseBuilder& b) {
               op::roi_align_backward n{.mode = mode, .coordinates = f.n.coordinates};
               n.output_height = f.n.output_height, n.output_width = f.n.output_width;
               n.sampling_ratio = f.n.sampling_ratio, n.spatial_scale = f.n.spatial_scale;
               n.x = b.input("x", f.x, Fill::distinct(-2, 3).fixed());
               operands(b, n);
               n.dy = b.input("dy", {regions_in(f), f.x[1], n.output_height, n.output_width});
               b.output("dx", b.add(n));
               b.scale("dx", [&] { return position_scale(b, n.dy, 32); });
             },
         .tolerance = sum_of(64),
         .decomposed = 2,
         .gradient = small,
         .scales = {1}});
}

void known_row(Suite& s, const char* id, const char* sentence, const op::roi_align& form,
               const std::vector<double>& rois, const std::vector<double>& y) {
  s.add({.id = std::string("roi-align-known-") + id,
         .sentence = std::string("roi_align: ") + sentence,
         .build =
             [=](CaseBuilder& b) {
               op::roi_align n = form;
               std::vector<double> pixels;
               for (int k = 0; k < 16; ++k) pixels.push_back(k);
               n.x = b.input("x", {1, 1, 4, 4}, Fill::list(pixels));
               const auto count = static_cast<int64_t>(rois.size() / 4);
               n.rois = b.input("rois", {count, 4}, Fill::list(rois).fixed());
               n.batch_indices =
                   b.ints("images", {count}, std::vector<int64_t>(static_cast<size_t>(count), 0));
               b.output("y", b.add(n));
               b.expect("y", y);
             },
         .tolerance = sum_of(16)});
}

void known_rows(Suite& s) {
  const std::vector<double> whole = {0, 0, 4, 4};
  known_row(s, "avg", "samples on the centers of pixels",
            {.output_height = 2, .output_width = 2, .sampling_ratio = 2}, whole,
            {2.5, 4.5, 10.5, 12.5});
  known_row(s, "adaptive", "one sample per pixel", {}, whole, {7.5});
  known_row(s, "max", "the largest of four pixels",
            {.mode = "max", .output_height = 2, .output_width = 2, .sampling_ratio = 2}, whole,
            {5, 7, 13, 15});
  known_row(s, "max-weighted", "of mode max, each pixel counts times its weight",
            {.mode = "max", .sampling_ratio = 1}, {1.25, 0, 2.25, 1}, {0.75});
  known_row(s, "unshifted", "a sample behind the last center counts as that pixel",
            {.coordinates = "output_half_pixel",
             .output_height = 2,
             .output_width = 2,
             .sampling_ratio = 2},
            whole, {5, 6.75, 12, 13.75});
  known_row(s, "outside", "samples outside are 0, but they count", {.sampling_ratio = 2},
            {-4, 0, 4, 2}, {1.75});
  known_row(s, "turned", "a region that ends before it starts has no samples",
            {.output_height = 1, .output_width = 2}, {3, 3, 1, 1}, {0, 0});
}

void refusals(Suite& s) {
  const auto error = [&](const char* id, const op::roi_align& form, const Dims& rois,
                         tenon_code code, const char* text) {
    s.add({.id = std::string("roi-align-") + id + "-refused",
           .sentence = std::string("roi_align: ") + id + " that does not fit is refused",
           .dtypes = {f32},
           .build =
               [=](CaseBuilder& b) {
                 op::roi_align n = form;
                 n.x = b.input("x", {1, 2, 4, 4});
                 n.rois = b.input("rois", rois);
                 n.batch_indices = b.ints("images", {3}, {0, 0, 0});
                 b.output("y", b.add(n));
               },
           .error = code,
           .error_text = text});
  };
  error("rois", {}, {3, 5}, TENON_SHAPE_MISMATCH, "operand rois");
  error("height", {.output_height = 0}, {3, 4}, TENON_INVALID_ARGUMENT, "output_height");
  error("samples", {.sampling_ratio = -1}, {3, 4}, TENON_INVALID_ARGUMENT, "sampling_ratio");
}

}  // namespace

void resample_roi_rows(Suite& s) {
  for (const Form& f : forms())
    for (const char* mode : {"avg", "max"}) form_rows(s, f, mode);
  known_rows(s);
  refusals(s);
  s.add({.id = "roi-align-none",
         .sentence = "roi_align of no regions",
         .dtypes = {f32, f16},
         .build =
             [](CaseBuilder& b) {
               op::roi_align n{.output_height = 2, .output_width = 2};
               n.x = b.input("x", {1, 2, 4, 4});
               n.rois = b.input("rois", {0, 4});
               n.batch_indices = b.ints("images", {0}, {});
               b.output("y", b.add(n));
             },
         .strided = false});
}

}  // namespace tenon::conform
