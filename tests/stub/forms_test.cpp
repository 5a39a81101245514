// SPDX-License-Identifier: Apache-2.0
// What the cuda plugin makes one node of. Only its report is asked for: nothing runs, no code is
// generated.
#include "exec/forms.hpp"

#include "rig.hpp"

using namespace tenon;
using namespace tenon::test;

namespace {

void check_form(const Form& form, const std::vector<Reported>& nodes,
                std::initializer_list<const char*> dtypes = {"f32", "bf16"}) {
  for (const char* dtype : dtypes) {
    CAPTURE(std::string(form.name));
    CAPTURE(std::string(dtype));
    const Store store(shared_runtime());
    check_nodes(Executable(shared_runtime(), form.graph(dtype), store,
                           {.device = "cuda:0", .allow_fallback = false}),
                nodes);
  }
}

}  // namespace

TEST_SUITE("stub/forms") {
  TEST_CASE("forms: each is one node of its op") {
    for (const Form& form : forms()) check_form(form, one_node(form));
    check_form(sum_over_columns(), one_node(sum_over_columns()));
    check_clean();
  }

  TEST_CASE("forms: projections of one value stay apart, for lanes") {
    const std::string why =
        "not joined into batch_linear: no kernel does all in one launch: one product after the "
        "other is as fast";
    check_form(projections(), {{"matmul", ""}, {"matmul", ""}, {"matmul", why}});
    check_clean();
  }

  TEST_CASE("forms: few rows times weights stored row by row are one launch") {
    const Form few{"q, k and v of few rows",
                   R"(
    input x: T[5,16]
    weight wq: T[8,16]
    weight wk: T[4,16]
    weight wv: T[4,16]
    q = matmul(x, wq) {trans_b=true, f32_precision="tf32"}
    k = matmul(x, wk) {trans_b=true, f32_precision="tf32"}
    v = matmul(x, wv) {trans_b=true, f32_precision="tf32"})",
                   {"q", "k", "v"},
                   "batch_linear",
                   "joined: matmul + matmul + matmul"};
    check_form(few, one_node(few), {"f32"});
    check_clean();
  }

  TEST_CASE("forms: dequantized products are those of integers") {
    const std::string operands = R"(
    const sx: f32[] = {0.01}
    const zx: u8[] = {100}
    const sw: f32[] = {0.02}
    const sb: f32[] = {0.0002}
    const sy: f32[] = {0.05}
    const zy: i8[] = {7}
    x = dequantize(q, sx, zx)
    f = dequantize(w, sw)
    c = dequantize(b, sb) {axis=0})";
    const std::string conv = R"(
    input q: u8[2,20,6,5]
    weight w: i8[24,10,3,3]
    weight b: i32[24])" + operands +
                             R"(
    z = conv(x, f, c) {pads=[1,1,1,1], groups=2, act="relu"}
    y = quantize(z, sy, zy))";
    const std::string depthwise = R"(
    input q: u8[2,24,6,5]
    weight w: i8[24,1,3,3]
    weight b: i32[24])" + operands +
                                  R"(
    z = conv(x, f, c) {groups=24}
    y = quantize(z, sy, zy))";
    const std::string linear = R"(
    input q: u8[7,20]
    weight w: i8[20,24]
    weight b: i32[24])" + operands +
                               R"(
    z = linear(x, f, c)
    y = quantize(z, sy, zy))";
    for (const Form& form :
         {Form{"conv", conv.c_str(), {"y"}, "qconv", "joined: conv + quantize"},
          Form{"depthwise conv", depthwise.c_str(), {"y"}, "qconv", "joined: conv + quantize"},
          Form{"linear", linear.c_str(), {"y"}, "qmatmul", "joined: linear + quantize"}})
      check_form(form, one_node(form), {"f32"});
    check_clean();
  }

  // One text and entry serves both; softmax of 1000 keeps 32 KB, of 300 less than 10.
  TEST_CASE("forms: kernels that share an entry keep the shared memory that each asked for") {
    struct Softmax {
      Store store{shared_runtime()};
      Executable executable;
      Context context;
      int64_t columns;
      explicit Softmax(int64_t n)
          : executable(
                shared_runtime(),
                Graph::parse("graph {\n input x: f32[8," + std::to_string(n) +
                                 "]\n y = softmax(x)\n output \"y\" = y\n}",
                             "softmax"),
                store,
                {.device = "cuda:0", .allow_fallback = false, .exec_mode = TENON_EXEC_STREAM}),
            context(executable),
            columns(n) {}
      void run() {
        context.set("x", {8, columns}, numbers(1, 8 * columns));
        context.run();
      }
    };
    Softmax wide(1000), narrow(300);
    CHECK_NOTHROW(wide.run());
    CHECK_NOTHROW(narrow.run());
    CHECK_NOTHROW(wide.run());
    stub_not_emulated();  // what softmax computes
  }
}
