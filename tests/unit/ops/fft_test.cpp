// SPDX-License-Identifier: Apache-2.0
// fft, rfft, irfft, stft, istft, fft_conv1d, fftfreq, fftshift: shapes, refusals, costs.
#include "ops/cost.hpp"
#include "rig.hpp"

using namespace tenon::core;

TEST_SUITE_BEGIN("ops/fft");

namespace {
constexpr DType kC64 = TENON_DTYPE_C64, kC128 = TENON_DTYPE_C128;
}

TEST_CASE("fft: shapes and refusals") {
  Rig r;
  const Value x = r(kC64, {2, 6, 5});
  CHECK(r.infer(op::fft{.x = x}) == "c64[2,6,5]");
  CHECK(r.infer(op::fft{.axes = {0, -2}, .n = {3, 10}, .x = x}) == "c64[3,10,5]");
  CHECK(r.infer(op::fft{.x = r(kC128, {0, 4})}) == "c128[0,4]");
  r.refuses(op::fft{.x = r(kF32, {4})}, Code::dtype_mismatch, {"operand x", "f32[4]"});
  r.refuses(op::fft{.x = r(kC64, {})}, Code::shape_mismatch, {"rank >= 1"});
  r.refuses(op::fft{.axes = {3}, .x = x}, Code::invalid_argument, {"axis 3"});
  r.refuses(op::fft{.axes = {1, -2}, .x = x}, Code::invalid_argument, {"axis 1", "twice"});
  r.refuses(op::fft{.n = {3, 4}, .x = x}, Code::invalid_argument, {"attribute n", "[3,4]"});
  r.refuses(op::fft{.n = {0}, .x = x}, Code::invalid_argument, {"attribute n", "got 0"});
  r.refuses(op::fft{.n = {int64_t{1} << 40}, .x = x}, Code::invalid_argument, {"attribute n"});
  r.refuses(op::fft{.x = r(kC64, {3, 0})}, Code::invalid_argument, {"operand x: axis 1", "got 0"});
  r.refuses(op::fft{.norm = "none", .x = x}, Code::invalid_argument, {"norm", "ortho"});
}

TEST_CASE("rfft, irfft: shapes and refusals") {
  Rig r;
  CHECK(r.infer(op::rfft{.x = r(kF32, {3, 10})}) == "c64[3,6]");
  CHECK(r.infer(op::rfft{.x = r(kF64, {3, 9})}) == "c128[3,5]");
  CHECK(r.infer(op::rfft{.axis = 0, .n = 7, .x = r(kF32, {3, 10})}) == "c64[4,10]");
  CHECK(r.infer(op::irfft{.x = r(kC64, {3, 6})}) == "f32[3,10]");
  CHECK(r.infer(op::irfft{.n = 11, .x = r(kC128, {3, 6})}) == "f64[3,11]");
  r.refuses(op::rfft{.x = r(kF16, {4})}, Code::dtype_mismatch, {"f32 or f64", "f16[4]"});
  r.refuses(op::rfft{.n = -1, .x = r(kF32, {4})}, Code::invalid_argument, {"attribute n", "-1"});
  r.refuses(op::rfft{.x = r(kF32, {4, 0})}, Code::invalid_argument, {"axis 1"});
  r.refuses(op::irfft{.x = r(kC64, {3, 1})}, Code::invalid_argument,
            {"attribute n, by default 2 (bins - 1)", "got 0"});
  r.refuses(op::irfft{.x = r(kF32, {3})}, Code::dtype_mismatch, {"c64 or c128"});
}

TEST_CASE("stft, istft: shapes and refusals") {
  Rig r;
  const Value x = r(kF32, {2, 100});
  CHECK(r.infer(op::stft{.n_fft = 16, .x = x}) == "c64[2,9,26]");
  CHECK(r.infer(op::stft{.n_fft = 16, .hop = 5, .center = false, .onesided = false, .x = x}) ==
        "c64[2,16,17]");
  CHECK(r.infer(op::istft{.n_fft = 16, .x = r(kC64, {2, 9, 26})}) == "f32[2,100]");
  CHECK(r.infer(op::istft{.n_fft = 16, .length = 90, .x = r(kC64, {2, 9, 26})}) == "f32[2,90]");
  r.refuses(op::stft{.x = x}, Code::invalid_argument, {"n_fft"});
  r.refuses(op::stft{.n_fft = 16, .x = r(kF32, {100})}, Code::shape_mismatch, {"rank 2"});
  r.refuses(op::stft{.n_fft = 200, .x = x}, Code::invalid_argument, {"reflect", "100"});
  r.refuses(op::stft{.n_fft = 200, .center = false, .x = x}, Code::invalid_argument,
            {"frame of 200"});
  r.refuses(op::stft{.n_fft = 16, .hop = -1, .x = x}, Code::invalid_argument, {"hop"});
  r.refuses(op::stft{.n_fft = 16, .win_length = 20, .x = x}, Code::invalid_argument,
            {"win_length"});
  r.refuses(op::stft{.n_fft = 16, .x = x, .window = r(kF32, {15})}, Code::shape_mismatch,
            {"window", "[16]"});
  r.refuses(op::stft{.n_fft = 16, .x = x, .window = r(kF64, {16})}, Code::dtype_mismatch,
            {"window"});
  r.refuses(op::istft{.n_fft = 16, .x = r(kC64, {2, 8, 26})}, Code::shape_mismatch, {"9 bins"});
  r.refuses(op::istft{.n_fft = 16, .x = r(kC64, {2, 9, 0})}, Code::invalid_argument, {"frame"});
}

TEST_CASE("fft_conv1d: shapes and refusals") {
  Rig r;
  const Value x = r(kF32, {3, 1, 10}), w = r(kF32, {2, 4});
  CHECK(r.infer(op::fft_conv1d{.x = x, .w = w}) == "f32[3,2,13]");
  CHECK(r.infer(op::fft_conv1d{.mode = "same", .x = x, .w = w}) == "f32[3,2,10]");
  CHECK(r.infer(op::fft_conv1d{.mode = "valid", .x = x, .w = w}) == "f32[3,2,7]");
  CHECK(r.infer(op::fft_conv1d{.mode = "valid", .x = w, .w = x}) == "f32[3,2,7]");
  CHECK(r.infer(op::fft_conv1d{.x = r(kC128, {5}), .w = r(kC128, {0, 1})}) == "c128[0,5]");
  r.refuses(op::fft_conv1d{.x = x, .w = r(kF64, {4})}, Code::dtype_mismatch, {"w", "f64[4]"});
  r.refuses(op::fft_conv1d{.x = r(kI32, {4}), .w = r(kI32, {4})}, Code::dtype_mismatch,
            {"f32 or f64", "i32[4]"});
  r.refuses(op::fft_conv1d{.x = x, .w = r(kF32, {})}, Code::shape_mismatch,
            {"operand w", "rank >= 1"});
  r.refuses(op::fft_conv1d{.x = x, .w = r(kF32, {2, 0})}, Code::invalid_argument,
            {"operand w: last axis", "got 0"});
  r.refuses(op::fft_conv1d{.x = x, .w = r(kF32, {4, 1, 4})}, Code::shape_mismatch, {"fft_conv1d"});
  r.refuses(op::fft_conv1d{.mode = "wrap", .x = x, .w = w}, Code::invalid_argument, {"mode"});
}

TEST_CASE("fftfreq, fftshift: shapes and refusals") {
  Rig r;
  CHECK(r.infer(op::fftfreq{.n = 7}) == "f32[7]");
  CHECK(r.infer(op::fftfreq{.n = 7, .onesided = true, .dtype = kF64}) == "f64[4]");
  r.refuses(op::fftfreq{}, Code::invalid_argument, {"attribute n", "got 0"});
  r.refuses(op::fftfreq{.n = 4, .d = 0}, Code::invalid_argument, {"attribute d", "other than 0"});
  r.refuses(op::fftfreq{.n = 4, .dtype = kI32}, Code::dtype_mismatch, {"dtype", "i32"});
  const Value x = r(kI32, {2, 3});
  CHECK(r.infer(op::fftshift{.x = x}) == "i32[2,3]");
  CHECK(r.infer(op::fftshift{.x = r(kC64, {})}) == "c64[]");
  r.refuses(op::fftshift{.axes = {2}, .x = x}, Code::invalid_argument, {"axis 2"});
  r.refuses(op::fftshift{.axes = {1, -1}, .x = x}, Code::invalid_argument, {"axis 1", "twice"});
}

TEST_CASE("costs: 5 n log2 n for complex numbers, half of it for real ones") {
  Graph g;
  const Value x = g.input("x", {kC64, {3, 1024}}), y = g.input("y", {kF32, {3, 1024}});
  CHECK(product_flops(g, g[g.add(op::fft{.x = x})]) == 3 * 5 * 1024 * 10.0);
  CHECK(product_flops(g, g[g.add(op::rfft{.x = y})]) == 3 * 5 * 1024 * 10.0 / 2);
  CHECK(least_bytes(g, g[g.add(op::fft{.x = x})]) == 2 * 3 * 1024 * 8.0);
  // Lengths 1000 and 25 make 1024: three rows of x, one of w, three of y.
  const Value z = g.input("z", {kF32, {3, 1000}}), w = g.input("w", {kF32, {25}});
  CHECK(product_flops(g, g[g.add(op::fft_conv1d{.x = z, .w = w})]) == 7 * 5 * 1024 * 10.0 / 2);
}

TEST_SUITE_END();
