// SPDX-License-Identifier: Apache-2.0
// What the cuda plugin makes one node of. Only its report is asked for: nothing runs, no code is
// generated.
#include "exec/forms.hpp"

#include "rig.hpp"

using namespace tenon;
using namespace tenon::test;

namespace {

void check_form(const Form& form, const std::vector<Reported>& nodes) {
  for (const char* dtype : {"f32", "bf16"}) {
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
        "not joined into batch_linear: no kernel for op tenon.batch_linear version 1";
    check_form(projections(), {{"matmul", ""}, {"matmul", ""}, {"matmul", why}});
    check_clean();
  }
}
