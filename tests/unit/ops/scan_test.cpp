// SPDX-License-Identifier: Apache-2.0
// cumsum: types and refusals.
#include "rig.hpp"

using namespace tenon::core;

TEST_SUITE_BEGIN("ops/scan");

TEST_CASE("cumsum: floats and integers along any axis") {
  Rig r;
  CHECK(r.infer(op::cumsum{.axis = 0, .x = r(kF16, {2, 5})}) == "f16[2,5]");
  CHECK(r.infer(op::cumsum{.x = r(kU32, {0})}) == "u32[0]");
  r.refuses(op::cumsum{.x = r(kBool, {2})}, Code::dtype_mismatch, {"operand x", "bool[2]"});
  r.refuses(op::cumsum{.axis = -3, .x = r(kF16, {2, 5})}, Code::invalid_argument, {"axis -3"});
}

TEST_SUITE_END();
