// SPDX-License-Identifier: Apache-2.0
// resize and resize_backward. resample_grid.cpp has grid_sample, resample_roi.cpp roi_align.
#include <cmath>
#include <limits>

#include "cases/families.hpp"

namespace tenon::conform {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Form {
  const char* id;
  const char* sentence;
  Dims x;
  op::resize n;

  bool nearest() const { return n.mode == "nearest"; }
  int64_t pixels() const {
    int64_t all = 1;
    for (const int64_t d : x) all *= d;
    return all;
  }
  // Terms of the longest sum, or a few more.
  int64_t terms() const {
    int64_t all = 1;
    for (size_t k = 2; k < x.size(); ++k) {
      const double scale = n.sizes.empty()
                               ? n.scales[k - 2]
                               : static_cast<double>(n.sizes[k - 2]) / static_cast<double>(x[k]);
      all *= static_cast<int64_t>(std::ceil(8 * std::max(scale, 1 / scale)));
    }
    return all;
  }
  op::resize_backward backward() const {
    op::resize_backward m{.mode = n.mode, .coordinates = n.coordinates};
    m.nearest_mode = n.nearest_mode, m.cubic_a = n.cubic_a;
    m.exclude_outside = n.exclude_outside, m.antialias = n.antialias;
    m.sizes = n.sizes, m.scales = n.scales, m.roi = n.roi;
    m.size.assign(x.begin() + 2, x.end());
    return m;
  }
};

std::vector<Form> nearest_forms() {
  return {
      {"nearest-2x",
       "nearest, twice as large",
       {2, 3, 3, 5},
       {.coordinates = "asymmetric", .nearest_mode = "floor", .sizes = {6, 10}}},
      {"nearest-2x-wide",
       "nearest, twice as large, of whole vectors and a part of one",
       {1, 2, 2, 215},
       {.coordinates = "asymmetric", .nearest_mode = "floor", .sizes = {4, 430}}},
      {"nearest-2x-narrow",
       "nearest, twice as large, of rows with less than a large vector",
       {1, 2, 2, 41},
       {.coordinates = "asymmetric", .nearest_mode = "floor", .sizes = {2, 82}}},
      {"nearest-3x",
       "nearest by whole factors that differ",
       {1, 2, 3, 17},
       {.coordinates = "asymmetric", .nearest_mode = "floor", .scales = {2, 3}}},
      {"nearest-ratio",
       "nearest, sizes of no whole ratio",
       {1, 2, 5, 7},
       {.coordinates = "asymmetric", .nearest_mode = "floor", .sizes = {7, 4}}},
      {"nearest-centers",
       "nearest by the centers of pixels, rounded up",
       {1, 2, 5, 6},
       {.nearest_mode = "round_prefer_ceil", .sizes = {3, 13}}},
      {"nearest-default", "nearest as it is by default", {1, 2, 5, 6}, {.scales = {0.6, 1.7}}},
      {"nearest-ceil",
       "nearest, rounded up, ends on ends",
       {1, 2, 4, 5},
       {.coordinates = "align_corners", .nearest_mode = "ceil", .sizes = {7, 3}}},
      {"nearest-volume",
       "nearest in volumes",
       {1, 2, 2, 3, 4},
       {.coordinates = "half_pixel_symmetric", .scales = {2, 1, 1.4}}},
      {"nearest-signal",
       "nearest in long signals",
       {2, 3, 301},
       {.coordinates = "pytorch_half_pixel", .sizes = {467}}},
      {"nearest-crop",
       "nearest of a region that leaves the image",
       {1, 2, 4, 5},
       {.coordinates = "tf_crop_and_resize",
        .nearest_mode = "round_prefer_ceil",
        .extrapolation_value = 7,
        .sizes = {5, 6},
        .roi = {0.25, -0.5, 1.25, 0.75}}},
  };
}

std::vector<Form> weighted_forms() {
  return {
      {"linear-2x", "linear, twice as large", {2, 3, 3, 5}, {.mode = "linear", .sizes = {6, 10}}},
      {"linear-down", "linear, smaller", {1, 2, 7, 6}, {.mode = "linear", .sizes = {3, 4}}},
      {"linear-corners",
       "linear, ends on ends",
       {1, 2, 4, 5},
       {.mode = "linear", .coordinates = "align_corners", .sizes = {9, 3}}},
      {"linear-asymmetric",
       "linear from the first pixel",
       {1, 2, 4, 5},
       {.mode = "linear", .coordinates = "asymmetric", .scales = {2, 1.3}}},
      {"linear-symmetric",
       "linear, centered where a fraction of a pixel is lost",
       {1, 2, 5, 6},
       {.mode = "linear", .coordinates = "half_pixel_symmetric", .scales = {0.7, 1.9}}},
      {"linear-single",
       "linear to one pixel",
       {1, 2, 5, 6},
       {.mode = "linear", .coordinates = "pytorch_half_pixel", .sizes = {1, 3}}},
      {"linear-one-axis",
       "linear along one axis alone",
       {1, 2, 5, 6},
       {.mode = "linear", .sizes = {5, 9}}},
      {"linear-signal", "linear in long signals", {2, 2, 133}, {.mode = "linear", .scales = {2.5}}},
      {"linear-volume",
       "linear in volumes",
       {1, 2, 2, 3, 4},
       {.mode = "linear", .sizes = {4, 2, 7}}},
      {"linear-inside",
       "linear without what is outside",
       {1, 2, 4, 5},
       {.mode = "linear", .exclude_outside = true, .scales = {1.5, 2.5}}},
      {"linear-crop",
       "linear of a region that leaves the image",
       {1, 2, 4, 5},
       {.mode = "linear",
        .coordinates = "tf_crop_and_resize",
        .extrapolation_value = 0.75,
        .sizes = {5, 1},
        .roi = {0.5, 0.125, 1.25, 0.75}}},
      {"linear-rows",
       "linear in long rows",
       {1, 3, 5, 301},
       {.mode = "linear", .sizes = {11, 607}}},
      {"linear-planes",
       "linear in many planes",
       {4, 37, 5, 3},
       {.mode = "linear", .sizes = {9, 8}}},
      {"cubic-2x", "cubic, twice as large", {1, 2, 4, 5}, {.mode = "cubic", .sizes = {8, 10}}},
      {"cubic-down",
       "cubic, smaller, ends on ends",
       {1, 2, 7, 6},
       {.mode = "cubic", .coordinates = "align_corners", .cubic_a = -0.5, .sizes = {3, 4}}},
      {"cubic-inside",
       "cubic without what is outside",
       {1, 2, 4, 5},
       {.mode = "cubic", .exclude_outside = true, .scales = {1.6, 0.7}}},
      {"cubic-crop",
       "cubic of a region",
       {1, 2, 5, 6},
       {.mode = "cubic",
        .coordinates = "tf_crop_and_resize",
        .sizes = {4, 5},
        .roi = {0.25, 0.0, 0.75, 1.5}}},
      {"cubic-volume", "cubic in volumes", {1, 1, 3, 3, 4}, {.mode = "cubic", .sizes = {5, 4, 6}}},
      {"cubic-rows", "cubic in long rows", {1, 2, 9, 203}, {.mode = "cubic", .sizes = {14, 331}}},
      {"smooth-linear",
       "linear and smaller, antialiased",
       {1, 2, 9, 7},
       {.mode = "linear", .antialias = true, .sizes = {4, 3}}},
      {"smooth-cubic",
       "cubic and smaller, antialiased, without what is outside",
       {1, 2, 9, 7},
       {.mode = "cubic",
        .cubic_a = -0.5,
        .exclude_outside = true,
        .antialias = true,
        .sizes = {4, 3}}},
      {"smooth-both",
       "antialiased: one axis shrinks, one grows",
       {1, 2, 11, 4},
       {.mode = "cubic", .antialias = true, .scales = {0.3, 1.5}}},
      {"smooth-rows",
       "antialiased, long rows",
       {1, 3, 40, 509},
       {.mode = "linear", .exclude_outside = true, .antialias = true, .sizes = {9, 101}}},
  };
}

void form_rows(Suite& s, const Form& f) {
  const bool small = f.pixels() < 150;
  s.add({.id = std::string("resize-") + f.id,
         .sentence = std::string("resize: ") + f.sentence,
         .dtypes = f.nearest() ? kFloats + kInts : kFloats,
         .build =
             [=](CaseBuilder& b) {
               op::resize n = f.n;
               n.x = b.input("x", f.x, is_float(b.own()) ? Fill::normal() : Fill::integers(0, 99));
               b.output("y", b.add(n));
               if (!f.nearest()) b.scale("y", [&] { return largest_of(b, n.x); });
             },
         .tolerance = f.nearest() ? kExact : sum_of(f.terms()),
         .decomposed = f.nearest() ? 1.0 : 2.0,
         .gradient = small,
         .second_order = false,
         .scales = {1}});
  s.add({.id = std::string("resize-backward-") + f.id,
         .sentence = std::string("gradient of resize: ") + f.sentence,
         .build =
             [=](CaseBuilder& b) {
               op::resize forward = f.n;
               forward.x = b.input("like", f.x);
               op::resize_backward n = f.backward();
               n.dy = b.input("dy", b.graph().type(b.add(forward)).dims);
               b.output("dx", b.add(n));
               b.scale("dx", [&] {
                 const double most = std::sqrt(static_cast<double>(f.terms()));
                 return b.binary("mul", largest_of(b, n.dy), b.number(most));
               });
             },
         .tolerance = sum_of(f.terms()),
         .decomposed = 2,
         .gradient = small,
         .scales = {1}});
}

struct Known {
  const char* id;
  const char* sentence;
  std::vector<double> x;
  op::resize n;
  std::vector<double> y;
};

void known_rows(Suite& s) {
  const std::vector<Known> all = {
      {"linear",
       "halves between centers",
       {1, 2},
       {.mode = "linear", .sizes = {4}},
       {1, 1.25, 1.75, 2}},
      {"linear-corners",
       "the ends stay, the middle is new",
       {1, 2},
       {.mode = "linear", .coordinates = "align_corners", .sizes = {3}},
       {1, 1.5, 2}},
      {"linear-corners-scale",
       "ends on ends, with a size that lost a fraction",
       {1, 2, 3, 4},
       {.mode = "linear", .coordinates = "align_corners", .scales = {0.6}},
       {1, 22.0 / 7}},
      {"linear-symmetric",
       "what is lost is lost on both sides",
       {1, 2, 3, 4},
       {.mode = "linear", .coordinates = "half_pixel_symmetric", .scales = {0.6}},
       {5.0 / 3, 10.0 / 3}},
      {"linear-skip",
       "a NaN reaches no output that gives it the weight 0",
       {1, kNan, 3},
       {.mode = "linear", .coordinates = "asymmetric", .sizes = {6}},
       {1, kNan, kNan, kNan, 3, 3}},
      {"linear-crop",
       "outside of the image comes the given value",
       {1, 2, 3, 4},
       {.mode = "linear",
        .coordinates = "tf_crop_and_resize",
        .extrapolation_value = 10,
        .sizes = {3},
        .roi = {0.5, 1.5}},
       {2.5, 4, 10}},
      {"cubic",
       "four pixels per output",
       {1, 2, 3, 4},
       {.mode = "cubic", .sizes = {8}},
       {0.89453125, 1.19140625, 1.66796875, 2.296875, 2.703125, 3.33203125, 3.80859375,
        4.10546875}},
      {"cubic-inside",
       "weights inside add up to 1",
       {1, 2, 3, 4},
       {.mode = "cubic", .cubic_a = -0.5, .exclude_outside = true, .sizes = {8}},
       {31.0 / 34, 160.0 / 137, 224.0 / 131, 2.25, 2.75, 431.0 / 131, 525.0 / 137, 139.0 / 34}},
      {"smooth-linear",
       "a filter of twice the width",
       {1, 2, 3, 4},
       {.mode = "linear", .antialias = true, .sizes = {2}},
       {1.625, 3.375}},
      {"smooth-cubic",
       "a cubic filter of twice the width",
       {1, 2, 3, 4},
       {.mode = "cubic", .antialias = true, .sizes = {2}},
       {1.490234375, 3.509765625}},
      {"tie-floor", "a tie goes down", {1, 2, 3, 4}, {.sizes = {2}}, {1, 3}},
      {"tie-ceil",
       "a tie goes up",
       {1, 2, 3, 4},
       {.nearest_mode = "round_prefer_ceil", .sizes = {2}},
       {2, 4}},
      {"nearest-clamped",
       "rounding up stays in the image",
       {1, 2},
       {.nearest_mode = "ceil", .sizes = {4}},
       {1, 2, 2, 2}},
  };
  for (const Known& k : all)
    s.add({.id = std::string("resize-known-") + k.id,
           .sentence = std::string("resize: ") + k.sentence,
           .dtypes = {f32, f64},
           .build =
               [=](CaseBuilder& b) {
                 op::resize n = k.n;
                 n.x = b.input("x", {1, 1, static_cast<int64_t>(k.x.size())}, Fill::list(k.x));
                 b.output("y", b.add(n));
                 b.expect("y", k.y);
               },
           .tolerance = sum_of(8)});
  s.add({.id = "resize-known-exact",
         .sentence = "resize: positions that are whole numbers are not rounded down",
         .dtypes = {f32, u8},
         .build = [](CaseBuilder& b) {
           op::resize n{.coordinates = "asymmetric", .nearest_mode = "floor", .sizes = {82}};
           n.x = b.input("x", {1, 1, 2}, Fill::list({3, 5}));
           std::vector<double> y(82, 3.0);
           std::fill(y.begin() + 41, y.end(), 5.0);
           b.output("y", b.add(n));
           b.expect("y", y);
         }});
}

void refusals(Suite& s) {
  const auto error = [&](const char* id, const op::resize& n, const char* text,
                         tenon_dtype dtype = f32) {
    s.add({.id = std::string("resize-") + id + "-refused",
           .sentence = std::string("resize: ") + id + " that does not fit is refused",
           .dtypes = {dtype},
           .build =
               [=](CaseBuilder& b) {
                 op::resize m = n;
                 m.x = b.input("x", {1, 2, 4, 4}, Fill::integers(0, 9));
                 b.output("y", b.add(m));
               },
           .error = dtype == f32 ? TENON_INVALID_ARGUMENT : TENON_DTYPE_MISMATCH,
           .error_text = text});
  };
  error("no-size", {}, "sizes");
  error("both", {.sizes = {2, 2}, .scales = {2, 2}}, "both");
  error("length", {.sizes = {2}}, "spatial axis");
  error("empty", {.sizes = {2, 0}}, "sizes");
  error("scale", {.scales = {2, -1}}, "scales");
  error("tiny-scale", {.scales = {2, 0.2}}, "axis 3");
  error("roi", {.coordinates = "tf_crop_and_resize", .sizes = {2, 2}, .roi = {0, 1}}, "roi");
  error("smooth-nearest", {.antialias = true, .sizes = {2, 2}}, "antialias");
  error("integers", {.mode = "linear", .sizes = {2, 2}}, "operand x", i32);
}

}  // namespace

void resample_cases(Suite& s) {
  s.floor({.joined = 1200, .own_joined = 30});
  for (const Form& f : nearest_forms()) form_rows(s, f);
  for (const Form& f : weighted_forms()) form_rows(s, f);
  known_rows(s);
  refusals(s);
  s.add({.id = "resize-empty",
         .sentence = "resize of no images",
         .dtypes = {f32, bf16},
         .build =
             [](CaseBuilder& b) {
               const Value x = b.input("x", {0, 3, 4, 4});
               b.output("nearest", b.add(op::resize{.sizes = {8, 8}, .x = x}));
               b.output("linear", b.add(op::resize{.mode = "linear", .sizes = {8, 3}, .x = x}));
               b.output("back", b.add(op::resize_backward{
                                    .mode = "cubic", .sizes = {4, 4}, .size = {7, 2}, .dy = x}));
             },
         .strided = false});
  resample_grid_rows(s);
  resample_roi_rows(s);
}

}  // namespace tenon::conform
