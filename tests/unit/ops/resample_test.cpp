// SPDX-License-Identifier: Apache-2.0
// resize, grid_sample, roi_align: shapes, refusals, hand-computed values, gradients.
#include <cmath>

#include "evaluate.hpp"
#include "ops/cost.hpp"
#include "rig.hpp"
#include "tenon/resize_taps.hpp"

using namespace tenon::core;

TEST_SUITE_BEGIN("ops/resample");

namespace {

Function resized(const op::resize& form) {
  return [=](Builder& b, const std::vector<Value>& in) -> Value {
    op::resize n = form;
    n.x = in[0];
    return b.add(n);
  };
}
Function sampled(const op::grid_sample& form) {
  return [=](Builder& b, const std::vector<Value>& in) -> Value {
    op::grid_sample n = form;
    n.x = in[0], n.grid = in[1];
    return b.add(n);
  };
}
// The regions and images are constants of the function.
Function aligned(const op::roi_align& form, const std::vector<double>& rois, const Ints& images) {
  return [=](Builder& b, const std::vector<Value>& in) -> Value {
    op::roi_align n = form;
    n.x = in[0];
    std::vector<Value> parts;
    for (const double v : rois) parts.push_back(b.reshape(b.scalar(b.dtype(in[0]), v), {1}));
    n.rois = b.reshape(b.concat(std::move(parts), 0), {static_cast<Dim>(images.size()), 4});
    n.batch_indices = b.ints(kI64, images);
    return b.add(n);
  };
}

std::vector<double> line(const op::resize& form, std::vector<double> x) {
  const auto count = static_cast<Dim>(x.size());
  return forward(resized(form), {tensor(kF64, {1, 1, count}, std::move(x))}).data;
}
double distance(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double most = 0;
  for (size_t k = 0; k < a.size(); ++k) most = std::max(most, std::fabs(a[k] - b[k]));
  return most;
}

}  // namespace

TEST_CASE("resize: how large the result is") {
  Rig r;
  const Value x = r(kF32, {2, 3, 5, 10});
  CHECK(r.infer(op::resize{.sizes = {7, 4}, .x = x}) == "f32[2,3,7,4]");
  CHECK(r.infer(op::resize{.scales = {0.5, 1.25}, .x = x}) == "f32[2,3,2,12]");
  // 0.7 as f32 is a little less, and its product with 10 is 7 as f32.
  CHECK(r.infer(op::resize{.scales = {1, double(0.7F)}, .x = x}) == "f32[2,3,5,7]");
  CHECK(r.infer(op::resize{.sizes = {9}, .x = r(kU8, {1, 2, 3})}) == "u8[1,2,9]");
  CHECK(r.infer(op::resize{.sizes = {9}, .x = r(kBool, {0, 2, 3})}) == "bool[0,2,9]");
  CHECK(r.infer(op::resize{.mode = "cubic", .scales = {2, 2, 2}, .x = r(kF16, {1, 2, 3, 4, 5})}) ==
        "f16[1,2,6,8,10]");
  const op::resize_backward back{.scales = {2, 0.5}, .size = {4, 7}, .dy = r(kF32, {2, 3, 8, 3})};
  CHECK(r.infer(back) == "f32[2,3,4,7]");
}

TEST_CASE("resize: refusals") {
  Rig r;
  const Value x = r(kF32, {1, 2, 4, 4});
  using Op = op::resize;
  r.refuses(Op{.sizes = {2, 2}, .x = r(kF32, {2, 2})}, Code::shape_mismatch, {"x", "rank 3 to 5"});
  r.refuses(Op{.sizes = {2, 2}, .x = r(kF32, {2, 2, 0, 3})}, Code::invalid_argument, {"axis 2"});
  r.refuses(Op{.x = x}, Code::invalid_argument, {"sizes", "scales", "none"});
  r.refuses(Op{.sizes = {2, 2}, .scales = {2, 2}, .x = x}, Code::invalid_argument, {"both"});
  r.refuses(Op{.scales = {2}, .x = x}, Code::invalid_argument, {"scales", "2", "1"});
  r.refuses(Op{.sizes = {2, 0}, .x = x}, Code::invalid_argument, {"sizes", "[2,0]"});
  r.refuses(Op{.sizes = {2, int64_t{1} << 40}, .x = x}, Code::invalid_argument, {"2^30"});
  r.refuses(Op{.scales = {2, NAN}, .x = x}, Code::invalid_argument, {"scales"});
  r.refuses(Op{.scales = {2, 0.2}, .x = x}, Code::invalid_argument, {"axis 3", "4 times 0.2"});
  r.refuses(Op{.scales = {2, 1e30}, .x = x}, Code::invalid_argument, {"axis 3"});
  r.refuses(Op{.sizes = {2, 2}, .roi = {0, 0, 1, 1}, .x = x}, Code::invalid_argument,
            {"roi", "half_pixel"});
  r.refuses(Op{.coordinates = "tf_crop_and_resize", .sizes = {2, 2}, .roi = {0, 0, 1}, .x = x},
            Code::invalid_argument, {"roi", "4 numbers"});
  r.refuses(
      Op{.coordinates = "tf_crop_and_resize", .sizes = {2, 2}, .roi = {0, 0, 1, INFINITY}, .x = x},
      Code::invalid_argument, {"roi", "finite"});
  r.refuses(Op{.mode = "area", .sizes = {2, 2}, .x = x}, Code::invalid_argument, {"mode", "area"});
  r.refuses(Op{.mode = "cubic", .cubic_a = NAN, .sizes = {2, 2}, .x = x}, Code::invalid_argument,
            {"cubic_a"});
  r.refuses(Op{.antialias = true, .sizes = {2, 2}, .x = x}, Code::invalid_argument, {"antialias"});
  r.refuses(Op{.mode = "linear", .sizes = {2, 2}, .x = r(kI32, {1, 2, 4, 4})}, Code::dtype_mismatch,
            {"x", "i32"});
  using Back = op::resize_backward;
  r.refuses(Back{.sizes = {2, 2}, .size = {4, 4}, .dy = x}, Code::shape_mismatch,
            {"dy", "[1,2,2,2]"});
  r.refuses(Back{.sizes = {4, 4}, .size = {4}, .dy = x}, Code::invalid_argument, {"size", "[4]"});
  r.refuses(Back{.sizes = {4, 4}, .size = {4, 0}, .dy = x}, Code::invalid_argument, {"[4,0]"});
}

TEST_CASE("resize: values by hand") {
  using Op = op::resize;
  CHECK(line(Op{.mode = "linear", .sizes = {4}}, {1, 2}) == std::vector<double>{1, 1.25, 1.75, 2});
  CHECK(line(Op{.mode = "linear", .coordinates = "align_corners", .sizes = {3}}, {1, 2}) ==
        std::vector<double>{1, 1.5, 2});
  CHECK(line(Op{.coordinates = "asymmetric", .nearest_mode = "floor", .sizes = {3}},
             {1, 2, 3, 4, 5}) == std::vector<double>{1, 2, 4});
  CHECK(line(Op{.sizes = {2}}, {1, 2, 3, 4}) == std::vector<double>{1, 3});
  CHECK(line(Op{.nearest_mode = "round_prefer_ceil", .sizes = {2}}, {1, 2, 3, 4}) ==
        std::vector<double>{2, 4});
  CHECK(distance(line(Op{.mode = "linear", .antialias = true, .sizes = {2}}, {1, 2, 3, 4}),
                 {1.625, 3.375}) < 1e-15);
  const std::vector<double> cropped = line(Op{.mode = "linear",
                                              .coordinates = "tf_crop_and_resize",
                                              .extrapolation_value = 10,
                                              .sizes = {3},
                                              .roi = {0.5, 1.5}},
                                           {1, 2, 3, 4});
  CHECK(distance(cropped, {2.5, 4, 10}) < 1e-15);
  // One pixel: half_pixel looks at the center, pytorch_half_pixel at the start.
  CHECK(line(Op{.mode = "linear", .sizes = {1}}, {1, 2, 3, 4}) == std::vector{2.5});
  CHECK(line(Op{.mode = "linear", .coordinates = "pytorch_half_pixel", .sizes = {1}},
             {1, 2, 3, 4}) == std::vector{1.0});
}

TEST_CASE("resize: a pixel of weight 0 is not read") {
  const op::resize twice{.mode = "linear", .coordinates = "asymmetric", .sizes = {4}};
  const std::vector<double> y = line(twice, {1, INFINITY});
  CHECK(y == std::vector<double>{1, INFINITY, INFINITY, INFINITY});
}

TEST_CASE("resize: whole ratios are exact, whatever the sizes") {
  // Position o · in / out; in floating point some of these come out below a whole number.
  for (const int64_t in : {1, 2, 3, 7, 49, 1000})
    for (int64_t out = 1; out < 120; ++out) {
      const op::resize n{.coordinates = "asymmetric", .nearest_mode = "floor", .sizes = {out}};
      const tenon::ResizeTaps t = tenon::resize_taps(n, tenon::resize_axis(n, 0, in));
      REQUIRE(t.count() == out);
      for (int64_t o = 0; o < out; ++o) {
        CAPTURE(in);
        CAPTURE(out);
        REQUIRE(t.index[static_cast<size_t>(o)] == o * in / out);
      }
    }
}

TEST_CASE("resize: taps of weighted modes add up to 1 and are in order") {
  const auto check = [](op::resize n, int64_t in) {
    const tenon::ResizeTaps t = tenon::resize_taps(n, tenon::resize_axis(n, 0, in));
    for (size_t o = 0; o + 1 < t.begin.size(); ++o) {
      double sum = 0;
      for (auto k = static_cast<size_t>(t.begin[o]); k < static_cast<size_t>(t.begin[o + 1]); ++k) {
        sum += t.weight[k];
        CHECK(t.index[k] >= 0);
        CHECK(t.index[k] < in);
        if (static_cast<int64_t>(k) > t.begin[o]) CHECK(t.index[k] > t.index[k - 1]);
      }
      CHECK(sum == doctest::Approx(1).epsilon(1e-12));
    }
  };
  for (const char* mode : {"linear", "cubic"})
    for (const char* where : {"half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric"})
      for (const bool smooth : {false, true})
        for (const bool inside : {false, true})
          for (const double scale : {0.11, 0.5, 0.73, 1.0, 1.9, 7.0})
            check({.mode = mode,
                   .coordinates = where,
                   .exclude_outside = inside,
                   .antialias = smooth,
                   .scales = {scale}},
                  23);
}

TEST_CASE("resize: many outputs that read one pixel") {
  // The region is one point, so the gradient of all outputs goes there.
  const op::resize_backward n{
      .coordinates = "tf_crop_and_resize", .sizes = {1000}, .roi = {0.5, 0.5}, .size = {101}};
  const auto back = [&](Builder& b, const std::vector<Value>& in) -> Value {
    op::resize_backward m = n;
    m.dy = in[0];
    return b.add(m);
  };
  const Tensor dx = forward(back, {tensor(kF64, {1, 1, 1000}, std::vector<double>(1000, 1.0))});
  for (size_t k = 0; k < 101; ++k) CHECK(dx[k] == (k == 50 ? 1000 : 0));
}

TEST_CASE("resize: gradients, also of the second order") {
  using Op = op::resize;
  for (const Op& n :
       {Op{.sizes = {7, 3}}, Op{.mode = "linear", .sizes = {8, 3}},
        Op{.mode = "cubic", .coordinates = "align_corners", .sizes = {3, 9}},
        Op{.mode = "cubic", .exclude_outside = true, .antialias = true, .scales = {0.4, 1.7}},
        Op{.mode = "linear",
        .coordinates = "tf_crop_and_resize",
        .extrapolation_value = 3,
        .sizes = {4, 4},
        .roi = {0.2, -0.5, 1.3, 0.8}}}) {
    CAPTURE(n.mode);
    CHECK(gradient_error(resized(n), {noise({1, 2, 5, 6}, 2, 1)}) < 2e-6);
    const auto squared = [&](Builder& b, const std::vector<Value>& in) -> Value {
      return resized(n)(b, {b.times(in[0], in[0])});
    };
    CHECK(second_order_error(squared, {noise({1, 1, 5, 6}, 2, 2)}) < 1e-5);
  }
}

TEST_CASE("grid_sample: types and refusals") {
  Rig r;
  const Value x = r(kF16, {2, 3, 4, 5}), grid = r(kF16, {2, 6, 7, 2});
  using Op = op::grid_sample;
  CHECK(r.infer(Op{.x = x, .grid = grid}) == "f16[2,3,6,7]");
  CHECK(r.infer(Op{.x = x, .grid = r(kF32, {2, 6, 7, 2})}) == "f16[2,3,6,7]");
  CHECK(r.infer(Op{.x = r(kF32, {1, 2, 3, 4, 5}), .grid = r(kF32, {1, 6, 7, 8, 3})}) ==
        "f32[1,2,6,7,8]");
  const op::grid_sample_backward back{.dy = r(kF16, {2, 3, 6, 7}),
                                      .x = x,
                                      .grid = r(kF32, {2, 6, 7, 2}),
                                      .want_dx = true,
                                      .want_dgrid = true};
  CHECK(r.infer(back) == "f16[2,3,4,5]");
  CHECK(r.infer(back, 1) == "f32[2,6,7,2]");
  r.refuses(Op{.x = r(kF16, {2, 3, 4}), .grid = grid}, Code::shape_mismatch, {"x", "rank 4 to 5"});
  r.refuses(Op{.x = x, .grid = r(kF64, {2, 6, 7, 2})}, Code::dtype_mismatch, {"grid", "f64"});
  r.refuses(Op{.x = x, .grid = r(kF16, {2, 6, 7, 3})}, Code::shape_mismatch,
            {"grid", "2 coordinates"});
  r.refuses(Op{.x = x, .grid = r(kF16, {1, 6, 7, 2})}, Code::shape_mismatch, {"grid", "2 images"});
  r.refuses(Op{.x = r(kI32, {2, 3, 4, 5}), .grid = grid}, Code::dtype_mismatch, {"x", "i32"});
  r.refuses(Op{.padding = "edge", .x = x, .grid = grid}, Code::invalid_argument, {"padding"});
  op::grid_sample_backward wrong = back;
  wrong.dy = x;
  r.refuses(wrong, Code::shape_mismatch, {"dy", "[2,3,6,7]"});
}

TEST_CASE("grid_sample: values by hand") {
  const Tensor x = tensor(kF64, {1, 1, 2, 2}, {1, 2, 3, 5});
  const auto at = [&](op::grid_sample n, double column, double row) {
    return forward(sampled(n), {x, tensor(kF64, {1, 1, 1, 2}, {column, row})})[0];
  };
  using Op = op::grid_sample;
  CHECK(at(Op{}, 0, 0) == 2.75);                           // the mean of all
  CHECK(at(Op{}, -1, -1) == 0.25);                         // a quarter of the corner pixel
  CHECK(at(Op{.align_corners = true}, -1, 1) == 3);        // the first column, the last row
  CHECK(at(Op{.padding = "border"}, 5, -5) == 2);          // the last column, the first row
  CHECK(at(Op{.padding = "reflection"}, 1.5, -0.5) == 2);  // position 2 is mirrored to 1
  CHECK(at(Op{.mode = "nearest"}, 0.4, -0.4) == 2);        // positions 0.9 and 0.1
  CHECK(at(Op{.mode = "nearest"}, 2, 0) == 0);             // outside
  CHECK(at(Op{.padding = "border"}, NAN, 0.5) == 3);       // NaN is the first column
  CHECK(at(Op{}, INFINITY, 0) == 0);
}

TEST_CASE("grid_sample: gradients of images and positions, also of the second order") {
  const Tensor grid = noise({2, 2, 3, 2}, 1.3, 5), volume = noise({1, 1, 2, 2, 3}, 1.2, 7);
  for (const char* mode : {"nearest", "linear", "cubic"})
    for (const char* padding : {"zeros", "border", "reflection"})
      for (const bool corners : {false, true}) {
        CAPTURE(mode);
        CAPTURE(padding);
        CAPTURE(corners);
        const auto f = sampled({.mode = mode, .padding = padding, .align_corners = corners});
        CHECK(gradient_error(f, {noise({2, 2, 4, 5}, 2, 3), grid}) < 1e-5);
        CHECK(gradient_error(f, {noise({1, 2, 3, 4, 2}, 2, 4), volume}) < 1e-5);
        if (std::string_view(mode) == "cubic")
          CHECK(second_order_error(f, {noise({2, 1, 4, 5}, 2, 3), grid}) < 1e-4);
      }
}

TEST_CASE("roi_align: types and refusals") {
  Rig r;
  const Value x = r(kF32, {2, 3, 4, 5}), rois = r(kF32, {7, 4}), images = r(kI64, {7});
  using Op = op::roi_align;
  CHECK(
      r.infer(Op{
          .output_height = 2, .output_width = 6, .x = x, .rois = rois, .batch_indices = images}) ==
      "f32[7,3,2,6]");
  r.refuses(Op{.x = x, .rois = r(kF32, {6, 4}), .batch_indices = images}, Code::shape_mismatch,
            {"rois", "[7,4]"});
  r.refuses(Op{.x = x, .rois = r(kF16, {7, 4}), .batch_indices = images}, Code::dtype_mismatch,
            {"rois", "f16"});
  r.refuses(Op{.x = x, .rois = rois, .batch_indices = r(kF32, {7})}, Code::dtype_mismatch,
            {"batch_indices"});
  r.refuses(Op{.output_width = 0, .x = x, .rois = rois, .batch_indices = images},
            Code::invalid_argument, {"output_width", "0"});
  r.refuses(Op{.sampling_ratio = -1, .x = x, .rois = rois, .batch_indices = images},
            Code::invalid_argument, {"sampling_ratio", "-1"});
  r.refuses(Op{.spatial_scale = INFINITY, .x = x, .rois = rois, .batch_indices = images},
            Code::invalid_argument, {"spatial_scale"});
  r.refuses(Op{.x = r(kF32, {0, 3, 4, 5}), .rois = rois, .batch_indices = images},
            Code::index_out_of_range, {"batch_indices"});
}

TEST_CASE("roi_align: values by hand") {
  std::vector<double> pixels;
  for (int k = 0; k < 16; ++k) pixels.push_back(k);
  const Tensor x = tensor(kF64, {1, 1, 4, 4}, pixels);
  const auto of = [&](const op::roi_align& n, const std::vector<double>& roi) {
    return forward(aligned(n, roi, {0}), {x}).data;
  };
  using Op = op::roi_align;
  const Op four{.output_height = 2, .output_width = 2, .sampling_ratio = 2};
  CHECK(of(four, {0, 0, 4, 4}) == std::vector{2.5, 4.5, 10.5, 12.5});
  CHECK(of(Op{}, {0, 0, 4, 4}) == std::vector{7.5});
  Op largest = four;
  largest.mode = "max";
  CHECK(of(largest, {0, 0, 4, 4}) == std::vector<double>{5, 7, 13, 15});
  // The sample is at column 1.25, row 0: 3/4 of pixel 1 is more than 1/4 of pixel 2.
  CHECK(of(Op{.mode = "max", .sampling_ratio = 1}, {1.25, 0, 2.25, 1}) == std::vector{0.75});
  CHECK(of(Op{.sampling_ratio = 2}, {-4, 0, 4, 2}) == std::vector{1.75});
  CHECK(of(Op{}, {3, 3, 1, 1}) == std::vector{0.0});
  CHECK(of(Op{.sampling_ratio = 2}, {NAN, 0, 4, 2}) == std::vector{0.0});
  CHECK(of(Op{}, {0, 0, INFINITY, 2}) == std::vector{0.0});
}

TEST_CASE("roi_align: gradients of images") {
  const std::vector<double> rois = {1.1, 0.7, 4.3, 5.9, -2.2, 1.3,  3.1, 9.7,
                                    2.3, 2.2, 2.6, 2.9, -3.7, -5.3, 9.1, 8.3};
  for (const char* mode : {"avg", "max"})
    for (const int64_t samples : {0, 2}) {
      CAPTURE(mode);
      CAPTURE(samples);
      const auto f =
          aligned({.mode = mode, .output_height = 2, .output_width = 3, .sampling_ratio = samples},
                  rois, {0, 1, -1, 0});
      CHECK(gradient_error(f, {noise({2, 2, 6, 5}, 2, 3)}) < 2e-6);
      const auto squared = [&](Builder& b, const std::vector<Value>& in) -> Value {
        return f(b, {b.times(in[0], in[0])});
      };
      CHECK(second_order_error(squared, {noise({2, 1, 6, 5}, 2, 4)}) < 1e-5);
    }
}

TEST_SUITE_END();
