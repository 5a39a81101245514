// SPDX-License-Identifier: Apache-2.0
// Random numbers, dropout and sample: types and refusals.
#include <limits>

#include "rig.hpp"

using namespace tenon::core;

TEST_SUITE_BEGIN("ops/random");

TEST_CASE("random_bits, random_uniform, random_normal: a shape from rng") {
  Rig r;
  const Value rng = r(kI64, {2});
  CHECK(r.infer(op::random_bits{.shape = {2, 3}, .rng = rng}) == "u32[2,3]");
  CHECK(r.infer(op::random_bits{.rng = rng}) == "u32[]");
  CHECK(r.infer(op::random_uniform{.shape = {0}, .rng = rng}) == "f32[0]");
  CHECK(r.infer(op::random_normal{.shape = {3}, .dtype = kF64, .rng = rng}) == "f64[3]");
  r.refuses(op::random_bits{.shape = {2}, .rng = r(kI64, {3})}, Code::shape_mismatch,
            {"rng", "[2]", "i64[3]"});
  r.refuses(op::random_bits{.shape = {2}, .rng = r(kI32, {2})}, Code::dtype_mismatch,
            {"rng", "i64", "i32[2]"});
  r.refuses(op::random_bits{.shape = {-2}, .rng = rng}, Code::invalid_argument, {"shape", "-2"});
  r.refuses(op::random_uniform{.shape = {2}, .dtype = kBF16, .rng = rng}, Code::unsupported,
            {"dtype", "bf16"});
  r.refuses(op::random_normal{.shape = {2}, .dtype = kI32, .rng = rng}, Code::dtype_mismatch,
            {"dtype", "i32"});
}

TEST_CASE("dropout: p in [0, 1)") {
  Rig r;
  const Value x = r(kBF16, {2, 3}), rng = r(kI64, {2});
  CHECK(r.infer(op::dropout{.p = 0, .x = x, .rng = rng}) == "bf16[2,3]");
  for (const double p : {1.0, -0.1, std::numeric_limits<double>::quiet_NaN()})
    r.refuses(op::dropout{.p = p, .x = x, .rng = rng}, Code::invalid_argument,
              {"attribute p", "[0, 1)"});
  r.refuses(op::dropout{.x = r(kI32, {2}), .rng = rng}, Code::dtype_mismatch, {"operand x"});
}

TEST_CASE("sample: one id a row") {
  Rig r;
  const Value logits = r(kF16, {4, 9}), rng = r(kI64, {2});
  CHECK(r.infer(op::sample{.logits = logits, .rng = rng}) == "i64[4]");
  CHECK(r.infer(op::sample{.logits = logits, .rng = rng, .want_logprob = true}, 1) == "f32[4]");
  CHECK(r.infer(op::sample{.top_p = -1, .logits = r(kF32, {0, 0}), .rng = rng}) == "i64[0]");
  const Code bad = Code::invalid_argument;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  r.refuses(op::sample{.temperature = -1, .logits = logits, .rng = rng}, bad,
            {"temperature", "-1"});
  r.refuses(op::sample{.temperature = nan, .logits = logits, .rng = rng}, bad, {"temperature"});
  r.refuses(op::sample{.top_k = -1, .logits = logits, .rng = rng}, bad, {"top_k", "-1"});
  r.refuses(op::sample{.top_p = nan, .logits = logits, .rng = rng}, bad, {"top_p"});
  r.refuses(op::sample{.min_p = 1.5, .logits = logits, .rng = rng}, bad, {"min_p", "1.5"});
  r.refuses(op::sample{.logits = r(kF32, {2, 0}), .rng = rng}, Code::shape_mismatch,
            {"logits", "f32[2,0]"});
  r.refuses(op::sample{.logits = r(kF32, {2}), .rng = rng}, Code::shape_mismatch,
            {"logits", "rank 2"});
  r.refuses(op::sample{.logits = r(kI32, {2, 3}), .rng = rng}, Code::dtype_mismatch, {"logits"});
}

TEST_SUITE_END();
