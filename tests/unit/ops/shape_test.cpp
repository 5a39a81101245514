// SPDX-License-Identifier: Apache-2.0
// narrow, concat, transpose, expand, reshape, pad and iota: shapes and refusals.
#include "rig.hpp"

using namespace tenon::core;

TEST_SUITE_BEGIN("ops/shape");

TEST_CASE("narrow: lists default to the whole axis, steps may be negative") {
  Rig r;
  const Value x = r(kF32, {5, 7});
  CHECK(r.infer(op::narrow{.x = x}) == "f32[5,7]");
  CHECK(r.infer(op::narrow{.start = {1, 2}, .x = x}) == "f32[4,5]");
  CHECK(r.infer(op::narrow{.start = {1, 0}, .len = {2, 7}, .step = {3, 1}, .x = x}) == "f32[2,7]");
  CHECK(r.infer(op::narrow{.start = {4, 6}, .step = {-2, -1}, .x = x}) == "f32[3,7]");
  CHECK(r.infer(op::narrow{.start = {5, 0}, .len = {0, 1}, .x = x}) == "f32[0,1]");
  CHECK(r.infer(op::narrow{.x = r(kBool, {0})}) == "bool[0]");
}

TEST_CASE("narrow: an index outside the axis is refused, never clamped") {
  Rig r;
  const Value x = r(kF32, {5, 7});
  const Code bad = Code::invalid_argument;
  r.refuses(op::narrow{.start = {0, 3}, .len = {5, 5}, .x = x}, bad,
            {"len", "axis 1", "[0, 4]", "5"});
  r.refuses(op::narrow{.start = {-1, 0}, .x = x}, bad, {"start", "axis 0", "-1"});
  r.refuses(op::narrow{.start = {6, 0}, .len = {0, 0}, .x = x}, bad, {"start", "[0, 5]"});
  r.refuses(op::narrow{.start = {2, 0}, .len = {4, 1}, .step = {-1, 1}, .x = x}, bad, {"[0, 3]"});
  r.refuses(op::narrow{.len = {-1, 1}, .x = x}, bad, {"len", "-1"});
  r.refuses(op::narrow{.step = {0, 1}, .x = x}, bad, {"step", "axis 0"});
  r.refuses(op::narrow{.start = {0}, .x = x}, bad, {"start", "one entry per axis, 2", "1"});
  r.refuses(op::narrow{.start = {1, 0}, .len = {2, 1}, .step = {INT64_MAX, 1}, .x = x}, bad,
            {"[0, 1]"});
  r.refuses(op::narrow{.start = {4, 0}, .len = {2, 1}, .step = {INT64_MIN, 1}, .x = x}, bad,
            {"[0, 1]"});
}

TEST_CASE("concat: joins one axis, empty parts allowed") {
  Rig r;
  const Value a = r(kI8, {2, 3}), b = r(kI8, {2, 0}), c = r(kI8, {2, 4});
  CHECK(r.infer(op::concat{.axis = -1, .xs = {a, b, c}}) == "i8[2,7]");
  r.refuses(op::concat{.axis = 0, .xs = {a, c}}, Code::shape_mismatch,
            {"xs[1]", "[2,3]", "i8[2,4]"});
  r.refuses(op::concat{.axis = 1, .xs = {a, r(kI8, {0})}}, Code::shape_mismatch,
            {"xs[1]", "i8[0]"});
  r.refuses(op::concat{.axis = 1, .xs = {a, r(kU8, {2, 3})}}, Code::dtype_mismatch,
            {"xs[1]", "i8", "u8"});
  r.refuses(op::concat{.axis = 2, .xs = {a}}, Code::invalid_argument, {"axis 2"});
  r.refuses(op::concat{.axis = 0, .xs = {r(kI8, {})}}, Code::invalid_argument, {"axis 0"});
  r.refuses(op::concat{.axis = 1, .xs = std::vector<Value>(1025, a)}, Code::invalid_argument,
            {"1025"});
}

TEST_CASE("transpose: permutes, reversed by default") {
  Rig r;
  const Value x = r(kF16, {2, 3, 4});
  CHECK(r.infer(op::transpose{.x = x}) == "f16[4,3,2]");
  CHECK(r.infer(op::transpose{.perm = {1, 2, 0}, .x = x}) == "f16[3,4,2]");
  CHECK(r.infer(op::transpose{.x = r(kF16, {})}) == "f16[]");
  for (const Ints& perm :
       {Ints{0, 1}, Ints{0, 1, 1}, Ints{0, 1, 3}, Ints{0, 1, -1}, Ints{0, 1, 2, 2}})
    r.refuses(op::transpose{.perm = perm, .x = x}, Code::invalid_argument, {"perm", "permutation"});
}

TEST_CASE("expand: broadcasts either way, -1 keeps a dim") {
  Rig r;
  const Value x = r(kF32, {3, 1});
  CHECK(r.infer(op::expand{.shape = {2, 3, 4}, .x = x}) == "f32[2,3,4]");
  CHECK(r.infer(op::expand{.shape = {-1, 5}, .x = x}) == "f32[3,5]");
  CHECK(r.infer(op::expand{.shape = {1, 4}, .x = x}) == "f32[3,4]");
  CHECK(r.infer(op::expand{.shape = {0}, .x = x}) == "f32[3,0]");
  CHECK(r.infer(op::expand{.x = x}) == "f32[3,1]");
  r.refuses(op::expand{.shape = {4, 4}, .x = x}, Code::shape_mismatch,
            {"operand x", "4", "axis 0", "f32[3,1]"});
  r.refuses(op::expand{.shape = {-1, 3, 1}, .x = x}, Code::invalid_argument, {"dim 0", "-1"});
  r.refuses(op::expand{.shape = {3, -2}, .x = x}, Code::invalid_argument, {"-2"});
  r.refuses(op::expand{.shape = Ints(9, 1), .x = x}, Code::unsupported, {"8", "9"});
  r.refuses(op::expand{.shape = {INT64_C(1) << 40, 3, INT64_C(1) << 40}, .x = x},
            Code::invalid_argument, {"overflows"});
}

TEST_CASE("reshape: 0 copies, -1 is inferred, the count is kept") {
  Rig r;
  const Value x = r(kF32, {2, 3, 4}), none = r(kF32, {0, 3});
  CHECK(r.infer(op::reshape{.shape = {0, -1}, .x = x}) == "f32[2,12]");
  CHECK(r.infer(op::reshape{.shape = {24}, .x = x}) == "f32[24]");
  CHECK(r.infer(op::reshape{.x = r(kF32, {1, 1})}) == "f32[]");
  CHECK(r.infer(op::reshape{.shape = {5, 0}, .allow_zero = true, .x = none}) == "f32[5,0]");
  CHECK(r.infer(op::reshape{.shape = {-1, 3}, .x = none}) == "f32[0,3]");
  r.refuses(op::reshape{.shape = {5, 5}, .x = x}, Code::shape_mismatch, {"25", "f32[2,3,4]"});
  r.refuses(op::reshape{.shape = {5, -1}, .x = x}, Code::shape_mismatch, {"f32[2,3,4]"});
  r.refuses(op::reshape{.shape = {-1, -1}, .x = x}, Code::invalid_argument, {"at most one -1"});
  r.refuses(op::reshape{.shape = {-1, 0}, .allow_zero = true, .x = none}, Code::invalid_argument,
            {"-1"});
  r.refuses(op::reshape{.shape = {24, 1, 1, 0}, .x = x}, Code::invalid_argument, {"dim 3"});
  r.refuses(op::reshape{.shape = {INT64_C(1) << 40, INT64_C(1) << 40}, .x = x},
            Code::invalid_argument, {"overflows"});
}

TEST_CASE("pad: each mode has its limit") {
  Rig r;
  const Value x = r(kF32, {3, 4}), none = r(kF32, {0});
  const auto pad = [&](Ints before, Ints after, std::string mode) {
    return op::pad{.before = before, .after = after, .mode = mode, .x = x};
  };
  CHECK(r.infer(pad({1, 0}, {2, 5}, "constant")) == "f32[6,9]");
  CHECK(r.infer(pad({2, 3}, {2, 3}, "reflect")) == "f32[7,10]");
  CHECK(r.infer(pad({3, 4}, {3, 0}, "symmetric")) == "f32[9,8]");
  CHECK(r.infer(pad({9, 0}, {}, "edge")) == "f32[12,4]");
  CHECK(r.infer(op::pad{.mode = "reflect", .x = none}) == "f32[0]");
  CHECK(r.infer(op::pad{.before = {2}, .x = none}) == "f32[2]");
  const Code bad = Code::invalid_argument;
  r.refuses(pad({3, 0}, {}, "reflect"), bad, {"before", "axis 0", "reflect", "[0, 2]", "3"});
  r.refuses(pad({}, {0, 5}, "symmetric"), bad, {"after", "axis 1", "symmetric", "[0, 4]", "5"});
  r.refuses(op::pad{.before = {1}, .mode = "edge", .x = none}, bad, {"before", "[0, 0]"});
  r.refuses(pad({-1, 0}, {}, "constant"), bad, {"before", "-1"});
  r.refuses(pad({1}, {}, "constant"), bad, {"before", "one entry per axis"});
  r.refuses(pad({}, {}, "wrap"), bad, {"mode", "wrap"});
}

TEST_CASE("iota: any number dtype, integers want integral start and step") {
  Rig r;
  CHECK(r.infer(op::iota{.shape = {2, 3}, .axis = -1}) == "i64[2,3]");
  CHECK(r.infer(op::iota{.shape = {4}, .dtype = kBF16, .start = 0.5, .step = -0.25}) == "bf16[4]");
  r.refuses(op::iota{.shape = {4}, .step = 0.5}, Code::invalid_argument, {"step", "i64", "0.5"});
  r.refuses(op::iota{.shape = {4}, .dtype = kBool}, Code::dtype_mismatch, {"bool"});
  r.refuses(op::iota{.shape = {4}, .axis = 1}, Code::invalid_argument, {"axis 1"});
  r.refuses(op::iota{.shape = {-4}}, Code::invalid_argument, {"-4"});
}

TEST_SUITE_END();
