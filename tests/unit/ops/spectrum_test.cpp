// SPDX-License-Identifier: Apache-2.0
// welch_psd, spectrum_peaks, welch_peaks: shapes, refusals, costs. Values and gradients:
// sdk/conformance/cases/spectrum.cpp.
#include "ops/cost.hpp"
#include "rig.hpp"

using namespace tenon::core;

TEST_SUITE_BEGIN("ops/spectrum");

TEST_CASE("welch_psd: shapes and refusals") {
  Rig r;
  using Psd = op::welch_psd;
  const Value x = r(kF32, {2, 1000});
  CHECK(r.infer(Psd{.x = x}) == "f32[2,129]");
  CHECK(r.infer(Psd{.nperseg = 10, .nfft = 15, .x = r(kF64, {0, 10})}) == "f64[0,8]");
  CHECK(r.infer(Psd{.nperseg = 10, .onesided = false, .x = x}) == "f32[2,10]");
  r.refuses(Psd{.x = r(kF16, {2, 1000})}, Code::dtype_mismatch, {"operand x", "f16"});
  r.refuses(Psd{.x = r(kF32, {1000})}, Code::shape_mismatch, {"operand x", "rank 2"});
  r.refuses(Psd{.nperseg = 1001, .x = x}, Code::invalid_argument,
            {"attribute nperseg", "f32[2,1000]", "given 1001"});
  r.refuses(Psd{.nperseg = 0, .x = x}, Code::invalid_argument, {"attribute nperseg", "got 0"});
  r.refuses(Psd{.noverlap = 256, .x = x}, Code::invalid_argument,
            {"attribute noverlap", "255", "given 256"});
  r.refuses(Psd{.noverlap = -2, .x = x}, Code::invalid_argument, {"noverlap", "given -2"});
  r.refuses(Psd{.nfft = 255, .x = x}, Code::invalid_argument, {"attribute nfft", "256", "255"});
  r.refuses(Psd{.fs = 0, .x = x}, Code::invalid_argument, {"attribute fs", "given 0"});
  r.refuses(Psd{.detrend = "cubic", .x = x}, Code::invalid_argument,
            {"detrend", "constant none linear"});
  r.refuses(Psd{.x = x, .window = r(kF32, {255})}, Code::shape_mismatch,
            {"operand window", "[256]", "[255]"});
  r.refuses(Psd{.x = x, .window = r(kF64, {256})}, Code::dtype_mismatch, {"operand window"});
}

TEST_CASE("spectrum_peaks: shapes and refusals") {
  Rig r;
  using Peaks = op::spectrum_peaks;
  const Value x = r(kF32, {3, 9});
  CHECK(r.infer(Peaks{.k = 20, .x = x}) == "i32[3,20]");
  CHECK(r.infer(Peaks{.k = 20, .x = x}, 1) == "f32[3,20]");
  CHECK(r.infer(Peaks{.k = 20, .x = x}, 2) == "i32[3]");
  CHECK(r.infer(Peaks{.x = r(TENON_DTYPE_C128, {3, 4, 9})}, 1) == "f64[3,1]");
  r.refuses(Peaks{.x = r(kF32, {9})}, Code::shape_mismatch, {"operand x", "rank 2"});
  r.refuses(Peaks{.x = r(TENON_DTYPE_C64, {3, 9})}, Code::shape_mismatch, {"rank 3"});
  r.refuses(Peaks{.x = r(TENON_DTYPE_C64, {3, 0, 9})}, Code::invalid_argument,
            {"operand x", "segment"});
  r.refuses(Peaks{.x = r(kI32, {3, 9})}, Code::dtype_mismatch, {"operand x", "i32"});
  r.refuses(Peaks{.k = 0, .x = x}, Code::invalid_argument, {"attribute k", "given 0"});
  r.refuses(Peaks{.k = 10, .select = "top_bins", .x = x}, Code::invalid_argument,
            {"attribute k", "9", "given 10"});
  r.refuses(Peaks{.select = "top_bins", .height = 1, .x = x}, Code::invalid_argument,
            {"attribute select", "local_maxima"});
  r.refuses(Peaks{.min_distance = 0, .x = x}, Code::invalid_argument, {"min_distance", "given 0"});
  r.refuses(Peaks{.prominence = -1, .x = x}, Code::invalid_argument, {"prominence", "given -1"});
}

TEST_CASE("welch_peaks: shapes, refusals; costs of both") {
  Rig r;
  using Peaks = op::welch_peaks;
  const Value x = r(kF64, {3, 640});
  CHECK(r.infer(Peaks{.k = 2, .x = x}) == "i32[3,2]");
  CHECK(r.infer(Peaks{.k = 2, .x = x}, 1) == "f64[3,2]");
  r.refuses(Peaks{.nperseg = 641, .x = x}, Code::invalid_argument, {"attribute nperseg"});
  r.refuses(Peaks{.nperseg = 16, .k = 10, .select = "top_bins", .x = x}, Code::invalid_argument,
            {"attribute k", "9"});
  Graph g;
  const Value y = g.input("y", {kF32, {3, 640}});
  CHECK(product_flops(g, g[g.add(op::welch_psd{.x = y})]) == 3 * 4 * 256 * 23.0);
  CHECK(product_flops(g, g[g.add(Peaks{.x = y})]) == 3 * 4 * 256 * 23.0);
}

TEST_SUITE_END();
