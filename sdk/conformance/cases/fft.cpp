// SPDX-License-Identifier: Apache-2.0
// fft rfft irfft fftfreq fftshift; ops made of transforms are in fft_frames.cpp.
#include <cmath>

#include "cases/fft.hpp"

namespace tenon::conform {
namespace {

struct Form {
  std::string id;
  Dims dims;
  Dims axes{}, n{};
  std::string norm = "backward";
  bool gradient = false;
};

void fft_row(Suite& s, const Form& f, bool inverse) {
  const std::string name = inverse ? "ifft-" : "fft-";
  Dims axes = f.axes.empty() ? Dims{-1} : f.axes, over{-1};
  double points = 1;
  for (size_t k = 0; k < axes.size(); ++k) {
    const auto rank = static_cast<int64_t>(f.dims.size());
    const int64_t axis = axes[k] < 0 ? axes[k] + rank : axes[k];
    points *= static_cast<double>(f.n.empty() ? f.dims[static_cast<size_t>(axis)] : f.n[k]);
    over.push_back(axis);
  }
  s.add({.id = name + f.id,
         .sentence = std::string(inverse ? "inverse " : "") + "transform, " + f.id,
         .dtypes = kParts,
         .build =
             [=](CaseBuilder& b) {
               const Value x = complex_input(b, "x", f.dims);
               complex_output(
                   b, "y",
                   b.add(op::fft{
                       .axes = f.axes, .n = f.n, .norm = f.norm, .inverse = inverse, .x = x}));
               b.scale("y", [&] {
                 return length_of(b, pairs(b, x), over, factor_of(f.norm, inverse, points));
               });
             },
         .tolerance = transform_of(static_cast<int64_t>(points)),
         .decomposed = 4,
         .gradient = f.gradient,
         .scales = {1}});
}

void fft_rows(Suite& s) {
  for (const int64_t n : {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 16, 22, 25, 26, 27, 32})
    fft_row(s, {.id = std::to_string(n), .dims = {3, n}, .gradient = n < 14}, n % 2 == 0);
  for (const int64_t n : {17,  31,  37,  49,  60,  64,  77,  100, 121, 127, 128,
                          131, 143, 169, 240, 256, 262, 343, 400, 509, 512})
    fft_row(s, {.id = std::to_string(n), .dims = {5, n}}, n % 2 == 1);
  for (const int64_t n : {1000, 1001, 1009, 1024, 1536, 2048, 2187, 2310, 3000, 3125, 4096, 4097})
    fft_row(s, {.id = std::to_string(n), .dims = {2, n}}, n % 3 == 0);
  for (const int64_t n : {256, 1000, 1024})
    fft_row(s, {.id = std::to_string(n) + "-many", .dims = {37, n}}, n == 1024);
  for (const int64_t n : {16384, 20000, 65536})
    fft_row(s, {.id = std::to_string(n), .dims = {1, n}}, n == 20000);
  fft_row(s, {.id = "40000-rows", .dims = {3, 40000}, .norm = "ortho"}, false);
  fft_row(s, {.id = "65536-rows", .dims = {2, 65536}, .norm = "forward"}, true);
  for (const bool inverse : {false, true}) {
    for (const char* norm : {"backward", "ortho", "forward"}) {
      fft_row(s, {.id = norm, .dims = {2, 12}, .norm = norm, .gradient = true}, inverse);
      fft_row(s, {.id = std::string("long-") + norm, .dims = {2, 300}, .norm = norm}, inverse);
    }
    fft_row(s, {.id = "first", .dims = {12, 5}, .axes = {0}, .gradient = true}, inverse);
    fft_row(s, {.id = "middle", .dims = {2, 9, 5}, .axes = {1}, .gradient = true}, inverse);
    fft_row(s, {.id = "two", .dims = {3, 8, 5}, .axes = {-2, -1}, .gradient = true}, inverse);
    fft_row(
        s, {.id = "three", .dims = {4, 3, 5}, .axes = {0, 1, 2}, .norm = "ortho", .gradient = true},
        inverse);
    fft_row(s, {.id = "cut", .dims = {3, 11}, .n = {6}, .gradient = true}, inverse);
    fft_row(s, {.id = "filled", .dims = {3, 5}, .n = {9}, .norm = "forward", .gradient = true},
            inverse);
    fft_row(s, {.id = "two-lengths", .dims = {6, 5}, .axes = {1, 0}, .n = {8, 4}, .gradient = true},
            inverse);
    fft_row(s, {.id = "vector", .dims = {10}, .gradient = true}, inverse);
    fft_row(s, {.id = "empty", .dims = {0, 10}}, inverse);
  }
  s.add({.id = "fft-known",
         .sentence = "the transform of four numbers",
         .dtypes = kParts,
         .build =
             [](CaseBuilder& b) {
               const Value x = complex_input(b, "x", {4}, Fill::list({1, 0, 2, 0, 3, 0, 4, 1}));
               complex_output(b, "y", b.add(op::fft{.x = x}));
               b.expect("y", {10, 1, -3, 2, -2, -1, -1, -2});
             },
         .tolerance = ulps(4)});
  s.add({.id = "fft-rows-apart",
         .sentence = "a NaN stays in its row",
         .dtypes = kParts,
         .build =
             [](CaseBuilder& b) {
               const Value x = complex_input(b, "x", {2, 3},
                                             Fill::list({1, 0, 2, 0, 3, 0, NAN, NAN, 1, 0, 1, 0}));
               complex_output(b, "y", b.add(op::fft{.x = x}));
               const double h = std::sqrt(0.75);
               b.expect("y", {6, 0, -1.5, h, -1.5, -h, NAN, NAN, NAN, NAN, NAN, NAN});
             },
         .tolerance = ulps(8)});
}

void real_row(Suite& s, const Form& f, int64_t axis, int64_t n) {
  const auto rank = static_cast<int64_t>(f.dims.size());
  const int64_t at = axis < 0 ? axis + rank : axis;
  const int64_t points = n == 0 ? f.dims[static_cast<size_t>(at)] : n;
  s.add({.id = "rfft-" + f.id,
         .sentence = "transform of real numbers, " + f.id,
         .dtypes = kParts,
         .build =
             [=](CaseBuilder& b) {
               const Value x = b.input("x", f.dims);
               complex_output(b, "y",
                              b.add(op::rfft{.axis = axis, .n = n, .norm = f.norm, .x = x}));
               b.scale("y", [&] {
                 const Value size =
                     length_of(b, x, {at}, factor_of(f.norm, false, static_cast<double>(points)));
                 Dims dims = b.graph().type(size).dims;
                 dims.push_back(1);
                 return b.graph().add(op::reshape{.shape = dims, .allow_zero = true, .x = size});
               });
             },
         .tolerance = transform_of(points),
         .decomposed = 4,
         .gradient = f.gradient,
         .scales = {1}});
  Dims bins = f.dims;
  bins[static_cast<size_t>(at)] = points / 2 + 1;
  s.add({.id = "irfft-" + f.id,
         .sentence = "inverse transform to real numbers, " + f.id,
         .dtypes = kParts,
         .build =
             [=](CaseBuilder& b) {
               const Value x = complex_input(b, "x", bins);
               b.output("y", b.add(op::irfft{.axis = axis, .n = points, .norm = f.norm, .x = x}));
               b.scale("y", [&] {
                 return b.reduce(
                     "l2",
                     length_of(b, pairs(b, x), {at},
                               2 * factor_of(f.norm, true, static_cast<double>(points))),
                     {-1}, false);
               });
             },
         .tolerance = transform_of(points),
         .decomposed = 4,
         .gradient = f.gradient,
         .scales = {1}});
}

void real_rows(Suite& s) {
  for (const int64_t n : {1, 2, 3, 4, 5, 6, 7, 8, 10, 15, 16, 22, 30})
    real_row(s, {.id = std::to_string(n), .dims = {3, n}, .gradient = true}, -1, 0);
  for (const int64_t n :
       {64, 100, 101, 127, 128, 240, 256, 274, 400, 512, 1000, 1024, 1025, 2048, 10000})
    real_row(s, {.id = std::to_string(n), .dims = {2, n}}, -1, 0);
  real_row(s, {.id = "400-many", .dims = {37, 400}}, -1, 0);
  real_row(s, {.id = "1024-many", .dims = {19, 1024}}, -1, 0);
  for (const char* norm : {"ortho", "forward"}) {
    real_row(s, {.id = norm, .dims = {2, 12}, .norm = norm, .gradient = true}, -1, 0);
    real_row(s, {.id = std::string("odd-") + norm, .dims = {2, 9}, .norm = norm, .gradient = true},
             -1, 0);
  }
  real_row(s, {.id = "first", .dims = {8, 3}, .gradient = true}, 0, 0);
  real_row(s, {.id = "middle", .dims = {2, 9, 3}, .gradient = true}, 1, 0);
  real_row(s, {.id = "cut", .dims = {2, 12}, .gradient = true}, -1, 7);
  real_row(s, {.id = "filled", .dims = {2, 5}, .gradient = true}, -1, 8);
  s.add({.id = "irfft-default",
         .sentence = "without a length the result is even; bins that are missing are 0",
         .dtypes = kParts,
         .build =
             [](CaseBuilder& b) {
               const Value x = complex_input(b, "x", {3}, Fill::list({10, 3, -2, 2, -2, 5}));
               b.output("y", b.add(op::irfft{.x = x}));
               b.output("longer", b.add(op::irfft{.n = 8, .norm = "forward", .x = x}));
               b.output("shorter", b.add(op::irfft{.n = 2, .norm = "forward", .x = x}));
               b.expect("y", {1, 2, 3, 4});
               b.expect("shorter", {8, 12});
             },
         .tolerance = ulps(8)});
  s.add_failure(
      "fft-length-refused", "a transform of no points",
      [](CaseBuilder& b) {
        complex_output(b, "y", b.add(op::fft{.n = {0}, .x = complex_input(b, "x", {3})}));
      },
      TENON_INVALID_ARGUMENT, "attribute n");
  s.add_failure(
      "fft-axes-refused", "an axis twice",
      [](CaseBuilder& b) {
        complex_output(b, "y", b.add(op::fft{.axes = {0, -2}, .x = complex_input(b, "x", {3, 4})}));
      },
      TENON_INVALID_ARGUMENT, "twice");
  s.add_failure(
      "rfft-complex-refused", "a real transform of complex numbers",
      [](CaseBuilder& b) {
        complex_output(b, "y", b.add(op::rfft{.x = complex_input(b, "x", {3})}));
      },
      TENON_DTYPE_MISMATCH, "f32 or f64");
}

void order_rows(Suite& s) {
  s.add({.id = "fftfreq-known",
         .sentence = "frequencies of bins; that in the middle of an even number is negative",
         .dtypes = kFloats,
         .build =
             [](CaseBuilder& b) {
               const auto of = [&](const char* name, int64_t n, double d, bool onesided) {
                 b.output(name, b.add(op::fftfreq{
                                    .n = n, .d = d, .onesided = onesided, .dtype = b.dtype()}));
               };
               of("even", 4, 0.5, false);
               of("odd", 5, 0.2, false);
               of("real", 4, 0.25, true);
               of("real_odd", 5, -0.1, true);
               of("one", 1, 1, false);
               b.expect("even", {0, 0.5, -1, -0.5});
               b.expect("odd", {0, 1, 2, -2, -1});
               b.expect("real", {0, 1, 2});
               b.expect("real_odd", {0, -2, -4});
               b.expect("one", {0});
             },
         .tolerance = ulps(1)});
  s.add_failure(
      "fftfreq-spacing-refused", "no time between samples",
      [](CaseBuilder& b) { b.output("y", b.add(op::fftfreq{.n = 4, .d = 0})); },
      TENON_INVALID_ARGUMENT, "attribute d");
  for (const bool inverse : {false, true}) {
    const std::string name = inverse ? "ifftshift-" : "fftshift-";
    s.add({.id = name + "axes",
           .sentence = "bins of one axis or all change places",
           .dtypes = kFloats,
           .build =
               [=](CaseBuilder& b) {
                 const Value x =
                     b.input("x", {3, 4}, Fill::list({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}));
                 b.output("all", b.add(op::fftshift{.inverse = inverse, .x = x}));
                 b.output("rows", b.add(op::fftshift{.axes = {-2}, .inverse = inverse, .x = x}));
                 if (inverse) {
                   b.expect("all", {7, 8, 5, 6, 11, 12, 9, 10, 3, 4, 1, 2});
                   b.expect("rows", {5, 6, 7, 8, 9, 10, 11, 12, 1, 2, 3, 4});
                 } else {
                   b.expect("all", {11, 12, 9, 10, 3, 4, 1, 2, 7, 8, 5, 6});
                   b.expect("rows", {9, 10, 11, 12, 1, 2, 3, 4, 5, 6, 7, 8});
                 }
               },
           .tolerance = kExact,
           .gradient = true});
    s.add({.id = name + "complex",
           .sentence = "complex bins, a single one, and none",
           .dtypes = kParts,
           .build =
               [=](CaseBuilder& b) {
                 const auto of = [&](const char* name, const Dims& dims) {
                   const Value x = complex_input(b, std::string(name) + "_x", dims);
                   complex_output(b, name, b.add(op::fftshift{.inverse = inverse, .x = x}));
                 };
                 of("some", {2, 5});
                 of("single", {1});
                 of("number", {});
                 of("none", {3, 0});
               },
           .tolerance = kExact,
           .gradient = true});
  }
}

}  // namespace

void fft_cases(Suite& s) {
  s.floor({.joined = 350, .own_joined = 110});
  fft_rows(s);
  real_rows(s);
  fft_frame_rows(s);
  fft_conv_rows(s);
  order_rows(s);
}

}  // namespace tenon::conform
