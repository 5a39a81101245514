// SPDX-License-Identifier: Apache-2.0
// Early launch and the switch that turns it off. What kernels do before they wait is seen in
// unit.cuda.early and unit.cuda.ptx.
#include "rig.hpp"

using namespace tenon;
using namespace tenon::test;

namespace {

struct Launches {
  uint64_t early, plain;
};
// Those of a whole life of the graph, step by step, under a value of TENON_CUDA_EARLY_LAUNCH.
Launches launches(const char* value) {
  if (value) setenv("TENON_CUDA_EARLY_LAUNCH", value, 1);
  const uint64_t early = stub_calls("cuLaunchKernelEx"), plain = stub_calls("cuLaunchKernel");
  {
    const Runtime runtime(runtime_options());
    CHECK(whole_life(false, {.device = "cuda:0", .exec_mode = TENON_EXEC_STREAM}, runtime));
  }
  unsetenv("TENON_CUDA_EARLY_LAUNCH");
  check_clean();
  return {stub_calls("cuLaunchKernelEx") - early, stub_calls("cuLaunchKernel") - plain};
}

}  // namespace

TEST_SUITE("stub/early") {
  TEST_CASE("early launch: on where the device knows it, off by the switch, nothing else changes") {
    const Launches usual = launches(nullptr), off = launches("0"), on = launches("1");
    CHECK(usual.early > 0);
    CHECK(on.early == usual.early);
    CHECK(on.plain == usual.plain);
    CHECK(off.early == 0);
    CHECK(off.plain == usual.early + usual.plain);
    stub_set("major", 8);
    const Launches older = launches(nullptr);
    stub_set("major", 9);
    CHECK(older.early == 0);
    CHECK(older.plain > 0);
  }
}
