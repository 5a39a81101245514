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
