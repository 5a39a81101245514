// SPDX-License-Identifier: Apache-2.0
// if, while, scan: types, refusals, binding of symbols in functions, costs.
#include "ops/control.hpp"

#include "evaluate.hpp"
#include "ir/text.hpp"
#include "rig.hpp"

using namespace tenon::core;

TEST_SUITE_BEGIN("ops/control");

namespace {

FunctionAttr function(std::string_view statements) {
  return std::make_shared<const Graph>(parse(cat("graph {", statements, "}"), "function"));
}
const auto kTwice = function(R"(symbols N
  input x: f32[N]
  y = binary(x, x) {kind="add"}
  output "y" = y)");
const auto kStep = function(R"(symbols N
  input c: f32[N] input x: f32[N]
  d = binary(c, x) {kind="add"}
  output "c" = d output "y" = x)");

}  // namespace

TEST_CASE("if, while, scan: types, with symbols of functions bound to the operands") {
  Rig r;
  const Value x = r(kF32, {3}), xs = r(kF32, {5, 3}), yes = r(kBool, {1, 1});
  CHECK(r.infer(op::if_{
            .then_branch = kTwice, .else_branch = kTwice, .cond = yes, .xs = {x}, .count_ys = 1}) ==
        "f32[3]");
  const op::scan scan{.body = kStep, .carry = {x}, .xs = {xs}, .count_ys = 2};
  CHECK(r.infer(scan, 0) == "f32[3]");
  CHECK(r.infer(scan, 1) == "f32[5,3]");
  const auto counts = function(R"(input n: i64[] output "n" = n output "m" = n)");
  CHECK(r.infer(op::scan{.body = counts, .length = 7, .carry = {r(kI64, {})}, .count_ys = 2}, 1) ==
        "i64[7]");
  const auto below = function(R"(input x: f32[3]
    s = reduce(x) {kind="sum"}
    const one: f32[] = {1}
    go = compare(s, one) {kind="lt"}
    output "go" = go)");
  CHECK(r.infer(op::while_{.cond = below, .body = kTwice, .carry = {x}, .count_ys = 1}) ==
        "f32[3]");
}

TEST_CASE("if, while, scan: refusals") {
  Rig r;
  const Value x = r(kF32, {3}), xs = r(kF32, {5, 3}), yes = r(kBool, {}), wide = r(kBool, {2});
  const auto branch = [&](FunctionAttr yes_branch, FunctionAttr no_branch, Value cond) {
    return op::if_{.then_branch = std::move(yes_branch),
                   .else_branch = std::move(no_branch),
                   .cond = cond,
                   .xs = {x},
                   .count_ys = 1};
  };
  r.refuses(branch(kTwice, kTwice, wide), Code::shape_mismatch,
            {"operand cond: expected a bool of one element, got bool[2]"});
  r.refuses(branch(kTwice, kTwice, x), Code::dtype_mismatch, {"operand cond"});
  r.refuses(branch(kTwice, nullptr, yes), Code::invalid_argument,
            {"attribute else_branch is required"});
  r.refuses(branch(kTwice,
                   function(R"(input x: f32[3] y = reshape(x) {shape=[3,1]} output "y" = y)"), yes),
            Code::shape_mismatch, {"function else_branch: output 0: expected f32[3]", "f32[3,1]"});
  r.refuses(branch(kTwice, kStep, yes), Code::invalid_argument,
            {"function else_branch: expected 1 inputs, one for each operand, got 2"});
  r.refuses(branch(kTwice, function(R"(input x: f32[4] output "y" = x)"), yes),
            Code::shape_mismatch, {"input 'x' is f32[4], its operand f32[3]"});
  r.refuses(branch(kTwice, function(R"(input x: f16[3] output "y" = x)"), yes),
            Code::dtype_mismatch, {"input 'x' is f16[3], its operand f32[3]"});
  r.refuses(branch(kTwice, function(R"(input x: f32[3] weight w: f32[3] output "y" = w)"), yes),
            Code::invalid_argument, {"neither weights nor state", "'w'"});
  r.refuses(branch(kTwice, function("input x: f32[3]"), yes), Code::invalid_argument,
            {"expected an output, got none"});
  r.refuses(op::scan{.body = kStep, .carry = {x}, .xs = {r(kF32, {5, 4})}, .count_ys = 2},
            Code::shape_mismatch, {"input 'x' is f32[N=3], its operand f32[4]"});
  r.refuses(op::scan{.body = kStep, .carry = {x}, .xs = {r(kF32, {})}, .count_ys = 2},
            Code::shape_mismatch, {"operand xs: entry 0", "rank 1 or more"});
  r.refuses(op::scan{.body = kStep, .length = 4, .carry = {x}, .xs = {xs}, .count_ys = 2},
            Code::shape_mismatch, {"expected a length of 4 along axis 0, got f32[5,3]"});
  r.refuses(op::scan{.body = kTwice, .carry = {x}, .count_ys = 1}, Code::invalid_argument,
            {"attribute length: is required"});
  r.refuses(op::scan{.body = kTwice, .length = -2, .carry = {x}, .count_ys = 1},
            Code::invalid_argument, {"attribute length", "-2"});
  r.refuses(op::scan{.body = kStep, .carry = {x}, .xs = {xs}, .count_ys = 3},
            Code::invalid_argument, {"got 3 outputs, its functions give 2"});
  r.refuses(op::scan{.body = function(R"(input a: i4[3] output "a" = a)"),
                     .xs = {r(TENON_DTYPE_I4, {2, 3})},
                     .count_ys = 1},
            Code::unsupported, {"do not fill whole bytes"});
  const auto other = function(R"(input x: f32[3] y = cast(x) {to=f16} output "y" = y)");
  r.refuses(op::while_{.cond = kTwice, .body = kTwice, .carry = {x}, .count_ys = 1},
            Code::dtype_mismatch, {"function cond: expected a bool of one element, got f32[3]"});
  const auto go = function(R"(input x: f32[3] s = reduce(x) {kind="sum"}
    b = compare(s, s) {kind="lt"} output "go" = b)");
  r.refuses(op::while_{.cond = go, .body = other, .carry = {x}, .count_ys = 1},
            Code::dtype_mismatch,
            {"function body: output 0: expected f32[3] as the carry before it, got f16[3]"});
  r.refuses(op::while_{.cond = go, .body = kTwice, .max_trip = -5, .carry = {x}, .count_ys = 1},
            Code::invalid_argument, {"attribute max_trip", "-5"});
}

TEST_CASE("scan: costs are those of its trips") {
  Graph g;
  const Value c = g.input("c", {kF32, {2, 3}}), w = g.input("w", {kF32, {3, 3}});
  const auto body = function(R"(input c: f32[2,3] input w: f32[3,3]
    d = matmul(c, w) output "d" = d)");
  const NodeId n =
      g.add(op::scan{.body = body, .length = 5, .carry = {c}, .captured = {w}, .count_ys = 1});
  CHECK(product_flops(g, g[n]) == 5 * 2 * 2 * 3 * 3);
  CHECK(least_bytes(g, g[n]) == 5 * 4 * (6 + 9 + 6));
}

TEST_CASE("text: nodes with functions come back from what is printed") {
  const char* const text = R"(graph "loop" {
  input c: f32[2]
  input xs: f32[4,2]
  (last, ys) = scan([c], [xs]) {body=graph {
    input c: f32[2]
    input x: f32[2]
    d = binary(c, x) {kind="add"}
    output "c" = d
    output "y" = x
  }, reverse=true}
  output "last" = last
  output "ys" = ys
})";
  const std::string printed = print(parse(text, "a"));
  CHECK(print(parse(printed, "b")) == printed);
  CHECK(printed.find("reverse=true") != std::string::npos);
}
