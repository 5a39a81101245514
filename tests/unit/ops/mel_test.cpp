// SPDX-License-Identifier: Apache-2.0
// mel_filterbank, log_mel, log_mel_backward, log_mel_spectrogram: shapes, refusals, costs. Values
// and gradients: sdk/conformance/cases/mel.cpp.
#include "ops/cost.hpp"
#include "rig.hpp"

using namespace tenon::core;

TEST_SUITE_BEGIN("ops/mel");

TEST_CASE("mel_filterbank: shapes and refusals") {
  Rig r;
  using Bank = op::mel_filterbank;
  CHECK(r.infer(Bank{}) == "f32[80,201]");
  CHECK(r.infer(Bank{.n_fft = 511, .n_mels = 3, .dtype = kF64}) == "f64[3,256]");
  r.refuses(Bank{.sr = 0}, Code::invalid_argument, {"attribute sr", "given 0"});
  r.refuses(Bank{.n_fft = 0}, Code::invalid_argument, {"attribute n_fft"});
  r.refuses(Bank{.n_mels = 0}, Code::invalid_argument, {"attribute n_mels", "given 0"});
  r.refuses(Bank{.n_mels = int64_t{1} << 40}, Code::invalid_argument, {"attribute n_mels"});
  r.refuses(Bank{.fmin = -1}, Code::invalid_argument, {"attribute fmin", "given -1"});
  r.refuses(Bank{.fmin = 9000}, Code::invalid_argument, {"attribute fmax", "9000", "8000"});
  r.refuses(Bank{.fmax = 8001}, Code::invalid_argument, {"attribute fmax", "8000", "got 8001"});
  r.refuses(Bank{.scale = "bark"}, Code::invalid_argument, {"scale", "slaney htk"});
  r.refuses(Bank{.dtype = kI32}, Code::dtype_mismatch, {"dtype", "i32"});
}

TEST_CASE("log_mel, log_mel_backward: shapes and refusals") {
  Rig r;
  using Tail = op::log_mel;
  const Value x = r(kF32, {2, 7, 5}), w = r(kF32, {3, 7});
  const Value z = r(TENON_DTYPE_C128, {2, 7, 5});
  CHECK(r.infer(Tail{.x = x, .w = w}) == "f32[2,3,5]");
  CHECK(r.infer(Tail{.x = z, .w = r(kF64, {3, 7})}) == "f64[2,3,5]");
  r.refuses(Tail{.x = x, .w = r(kF32, {3, 8})}, Code::shape_mismatch,
            {"operand w", "[3,7]", "[3,8]"});
  r.refuses(Tail{.x = x, .w = r(kF64, {3, 7})}, Code::dtype_mismatch, {"operand w", "f32"});
  r.refuses(Tail{.x = r(kF16, {2, 7, 5}), .w = w}, Code::dtype_mismatch, {"operand x", "f16"});
  r.refuses(Tail{.x = r(kF32, {7, 5}), .w = w}, Code::shape_mismatch, {"operand x", "rank 3"});
  r.refuses(Tail{.floor = -1, .x = x, .w = w}, Code::invalid_argument,
            {"attribute floor", "given -1"});
  r.refuses(Tail{.log = "log2", .x = x, .w = w}, Code::invalid_argument, {"log", "log10 log"});
  r.refuses(Tail{.max_scope = "row", .x = x, .w = w}, Code::invalid_argument,
            {"max_scope", "example tensor frame"});
  using Backward = op::log_mel_backward;
  const Value dy = r(kF32, {2, 3, 5});
  CHECK(r.infer(Backward{.dy = dy, .x = x, .w = w}) == "f32[2,7,5]");
  CHECK(r.infer(Backward{.dy = dy, .x = x, .w = w, .want_dw = true}, 1) == "f32[3,7]");
  CHECK(r.infer(Backward{.dy = r(kF64, {2, 3, 5}), .x = z, .w = r(kF64, {3, 7})}) == "c128[2,7,5]");
  r.refuses(Backward{.dy = x, .x = x, .w = w}, Code::shape_mismatch, {"operand dy", "[2,3,5]"});
}

TEST_CASE("log_mel_spectrogram: shapes and refusals") {
  Rig r;
  using Sound = op::log_mel_spectrogram;
  const Value x = r(kF32, {2, 480000});
  CHECK(r.infer(Sound{.x = x}) == "f32[2,80,3000]");
  CHECK(r.infer(Sound{.drop_last = false, .x = x}) == "f32[2,80,3001]");
  CHECK(r.infer(Sound{.n_mels = 128, .center = false, .x = r(kF64, {1, 1000})}) == "f64[1,128,3]");
  r.refuses(Sound{.x = r(kF32, {1, 200})}, Code::invalid_argument, {"operand x", "reflect"});
  r.refuses(Sound{.hop = 0, .x = x}, Code::invalid_argument, {"attribute hop", "given 0"});
  r.refuses(Sound{.fmax = 1e5, .x = x}, Code::invalid_argument, {"attribute fmax"});
  r.refuses(Sound{.x = r(kF16, {1, 1000})}, Code::dtype_mismatch, {"operand x", "f16"});
  r.refuses(Sound{.x = x, .window = r(kF32, {399})}, Code::shape_mismatch,
            {"operand window", "[400]"});
  r.refuses(Sound{.dynamic_range = -1, .x = x}, Code::invalid_argument, {"dynamic_range"});
}

TEST_CASE("costs: transforms of frames, two filters for each bin") {
  Graph g;
  const Value x = g.input("x", {kF32, {1, 1024 * 3}});
  const NodeId n = g.add(op::log_mel_spectrogram{.n_fft = 1024, .hop = 1024, .x = x});
  CHECK(product_flops(g, g[n]) == 3 * 1024 * 28.0);
  const Value p = g.input("p", {kF32, {2, 7, 5}}), w = g.input("w", {kF32, {3, 7}});
  CHECK(product_flops(g, g[g.add(op::log_mel{.x = p, .w = w})]) == 2 * 2 * 7 * 5 * 3.0);
}

TEST_SUITE_END();
