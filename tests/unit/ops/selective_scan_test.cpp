// SPDX-License-Identifier: Apache-2.0
// selective_scan: types, refusals, costs and the loops that it becomes. Values and gradients:
// sdk/conformance/cases/selective_scan.cpp and tests/peers/scans.py.
#include "ir/text.hpp"
#include "ops/cost.hpp"
#include "ops/lower.hpp"
#include "rig.hpp"

using namespace tenon::core;

TEST_SUITE_BEGIN("ops/selective_scan");

namespace {

// B = 2, D = 6, L = 5, N = 4, G = 3.
op::selective_scan full(Rig& r, DType t, DType wide) {
  return {.u = r(t, {2, 6, 5}),
          .dt = r(t, {2, 6, 5}),
          .a = r(wide, {6, 4}),
          .b = r(t, {2, 3, 4, 5}),
          .c = r(t, {2, 3, 4, 5}),
          .d = r(wide, {6}),
          .z = r(t, {2, 6, 5}),
          .dt_bias = r(wide, {6}),
          .h0 = r(wide, {2, 6, 4}),
          .want_h_last = true};
}

}  // namespace

TEST_CASE("selective_scan: types") {
  Rig r;
  const op::selective_scan n = full(r, kBF16, kF32);
  CHECK(r.infer(n) == "bf16[2,6,5]");
  CHECK(r.infer(n, 1) == "f32[2,6,4]");
  op::selective_scan rows{.layout = "bld",
                          .u = r(kF64, {2, 5, 6}),
                          .dt = r(kF64, {2, 5, 6}),
                          .a = r(kF64, {6, 4}),
                          .b = r(kF64, {2, 5, 4}),
                          .c = r(kF64, {2, 5, 4})};
  CHECK(r.infer(rows) == "f64[2,5,6]");
  op::selective_scan_backward back{.dy = n.u,
                                   .u = n.u,
                                   .dt = n.dt,
                                   .a = n.a,
                                   .b = n.b,
                                   .c = n.c,
                                   .d = n.d,
                                   .z = n.z,
                                   .dt_bias = n.dt_bias};
  back.want_du = back.want_ddt = back.want_da = back.want_db = back.want_dc = true;
  back.want_dd = back.want_dz = back.want_ddt_bias = back.want_dh0 = true;
  const char* const types[] = {"bf16[2,6,5]",   "bf16[2,6,5]",   "f32[6,4]",
                               "bf16[2,3,4,5]", "bf16[2,3,4,5]", "f32[6]",
                               "bf16[2,6,5]",   "f32[6]",        "f32[2,6,4]"};
  for (size_t k = 0; k < std::size(types); ++k) CHECK(r.infer(back, k) == types[k]);
}

TEST_CASE("selective_scan: refusals") {
  Rig r;
  const op::selective_scan good = full(r, kF32, kF32);
  const auto refuses = [&](auto change, Code code, std::initializer_list<std::string_view> words) {
    op::selective_scan n = good;
    change(n);
    r.refuses(n, code, words);
  };
  refuses([&](auto& n) { n.u = r(kI32, {2, 6, 5}); }, Code::dtype_mismatch, {"operand u", "i32"});
  refuses([&](auto& n) { n.u = r(kF32, {6, 5}); }, Code::shape_mismatch, {"operand u", "rank 3"});
  refuses([&](auto& n) { n.layout = "ldb"; }, Code::invalid_argument,
          {"attribute layout", "bdl bld", "ldb"});
  refuses(
      [&](auto& n) {
        n.dt = r(kF32, {2, 6, 4});
      },
      Code::shape_mismatch, {"operand dt", "[2,6,5]", "[2,6,4]"});
  refuses(
      [&](auto& n) {
        n.dt = r(kF16, {2, 6, 5});
      },
      Code::dtype_mismatch, {"operand dt", "f32", "f16"});
  refuses(
      [&](auto& n) {
        n.a = r(kF32, {4, 6});
      },
      Code::shape_mismatch, {"operand a", "[6,6]", "[4,6]"});
  refuses(
      [&](auto& n) {
        n.a = r(kF16, {6, 4});
      },
      Code::dtype_mismatch, {"operand a", "f32", "f16"});
  refuses(
      [&](auto& n) {
        n.a = r(TENON_DTYPE_C64, {6, 4});
      },
      Code::unsupported, {"operand a", "real", "c64"});
  refuses(
      [&](auto& n) {
        n.a = r(kF32, {6, 0});
      },
      Code::shape_mismatch, {"operand a", "at least one state", "[6,0]"});
  refuses(
      [&](auto& n) {
        n.b = r(kF32, {2, 4, 4, 5});
      },
      Code::shape_mismatch, {"operand b", "divides the 6 channels", "got 4"});
  refuses(
      [&](auto& n) {
        n.b = r(kF32, {2, 0, 4, 5});
      },
      Code::shape_mismatch, {"operand b", "got 0"});
  refuses(
      [&](auto& n) {
        n.b = r(kF32, {4, 5});
      },
      Code::shape_mismatch, {"operand b", "rank 3 or 4"});
  refuses(
      [&](auto& n) {
        n.c = r(kF32, {2, 1, 4, 5});
      },
      Code::shape_mismatch, {"operand c", "[2,3,4,5]", "[2,1,4,5]"});
  refuses([&](auto& n) { n.d = r(kF32, {5}); }, Code::shape_mismatch, {"operand d", "[6]", "[5]"});
  refuses([&](auto& n) { n.z = r(kF32, {2, 5, 6}); }, Code::shape_mismatch, {"operand z"});
  refuses([&](auto& n) { n.dt_bias = r(kF64, {6}); }, Code::dtype_mismatch,
          {"operand dt_bias", "f32", "f64"});
  refuses(
      [&](auto& n) {
        n.h0 = r(kF32, {2, 4, 6});
      },
      Code::shape_mismatch, {"operand h0", "[2,6,4]", "[2,4,6]"});
  op::selective_scan_backward back{
      .dy = good.u, .u = good.u, .dt = good.dt, .a = good.a, .b = good.b, .c = good.c};
  back.want_dz = true;
  r.refuses(back, Code::invalid_argument, {"output dz", "operand z", "none"});
  back.want_dz = false, back.want_du = true, back.dh_last = r(kF32, {2, 6, 5});
  r.refuses(back, Code::shape_mismatch, {"operand dh_last", "[2,6,4]", "[2,6,5]"});
  back.dh_last = {}, back.dy = r(kF32, {2, 6, 4});
  r.refuses(back, Code::shape_mismatch, {"operand dy", "[2,6,5]", "[2,6,4]"});
}

TEST_CASE("selective_scan: costs grow with the states of all steps") {
  Rig r;
  const NodeId n = r.graph.add(full(r, kBF16, kF32));
  CHECK(product_flops(r.graph, r.graph[n]) == 7 * 2 * 6 * 5 * 4);
  CHECK(least_bytes(r.graph, r.graph[n]) == 2 * (4 * 60 + 2 * 120) + 4 * (24 + 6 + 6 + 2 * 48));
}

TEST_CASE("selective_scan: becomes a scan, whose state is in f32") {
  Rig r;
  const NodeInfo node = r.graph[r.graph.add(full(r, kBF16, kF32))];
  Builder b(r.graph);
  std::vector<Value> made;
  REQUIRE(lower_into(b, node, made));
  CHECK(b.type(made[0]).text() == "bf16[2,6,5]");
  CHECK(b.type(made[1]).text() == "f32[2,6,4]");
  r.graph.output("y", made[0]);
  const std::string text = print(r.graph);
  CAPTURE(text);
  const size_t first = text.find("= scan(");
  CHECK(first != std::string::npos);
  CHECK(text.find("= scan(", first + 1) == std::string::npos);
  CHECK(text.find(": f32[2,3,2,4]") != std::string::npos);
}

TEST_SUITE_END();
