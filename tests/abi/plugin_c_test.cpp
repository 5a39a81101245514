// SPDX-License-Identifier: Apache-2.0
// The backend in plain C: what it claims runs right, what it does not is refused with a reason.
#include <doctest/doctest.h>

#include "fake_host.hpp"

namespace tenon::test {

namespace {
using Floats = std::vector<float>;
constexpr tenon_dtype kF32 = TENON_DTYPE_F32;

const Plugin& plugin() {
  static Plugin* p = new Plugin(TENON_C_PLUGIN);
  return *p;
}
}  // namespace

TEST_SUITE("abi/plugin_c") {
  TEST_CASE("run: matmul, add, mul and neg in one program") {
    BlobBuilder b;
    const Shape m{kF32, {2, 2}};
    const uint32_t x = b.input(m), w = b.input(m, TENON_SPACE_WEIGHT);
    const uint32_t p = b.node("matmul", {x, w}, {m}, {{"trans_b", true}, {"alpha", 0.5}});
    const uint32_t s = b.node("binary", {p, x}, {m}, {{"kind", "add"}});
    const uint32_t q = b.node("binary", {s, s}, {m}, {{"kind", "mul"}});
    b.output(b.node("unary", {q}, {m}, {{"kind", "neg"}}));
    b.output(w);
    // x wT = {{17, 23}, {39, 53}}
    const std::vector<Bytes> out =
        plugin().run(b, {bytes_of(Floats{1, 2, 3, 4}), bytes_of(Floats{5, 6, 7, 8})});
    CHECK(list_of<float>(out[0]) ==
          Floats{-9.5f * 9.5f, -13.5f * 13.5f, -22.5f * 22.5f, -30.5f * 30.5f});
    CHECK(list_of<float>(out[1]) == Floats{5, 6, 7, 8});
  }

  TEST_CASE("query: refusals say why") {
    BlobBuilder b;
    const uint32_t x = b.input({kF32, {2, 3}}), row = b.input({kF32, {3}}),
                   d = b.input({TENON_DTYPE_F64, {2}});
    b.node("softmax", {x}, {{kF32, {2, 3}}});
    b.node("binary", {x, row}, {{kF32, {2, 3}}}, {{"kind", "add"}});
    b.node("binary", {x, x}, {{kF32, {2, 3}}}, {{"kind", "div"}});
    b.node("binary", {d, d}, {{TENON_DTYPE_F64, {2}}}, {{"kind", "add"}});
    b.node("matmul", {x, row}, {{kF32, {2}}});
    b.node("unary", {x}, {{kF32, {2, 3}}}, {{"kind", "neg"}, {"scale", 2.0}});
    b.node("unary", {x, x}, {{kF32, {2, 3}}}, {{"kind", "neg"}});
    b.node("binary", {x}, {{kF32, {2, 3}}}, {{"kind", "add"}});
    b.node("unary", {x}, {{kF32, {2, 3}}}, {{"kind", "neg"}});
    const std::vector<Verdict> v = plugin().query(b);
    CHECK(v[0].text == "no kernel for op softmax");
    CHECK(v[1].reason == TENON_REASON_SHAPE);
    CHECK(v[2].text == "not taken: kind=div");
    CHECK(v[3].reason == TENON_REASON_DTYPE);
    CHECK(v[4].text == "only a product of two matrices is taken");
    CHECK(v[5].text == "attribute not known: scale");
    CHECK(v[6].reason == TENON_REASON_UNKNOWN);
    CHECK(v[7].text == "an operand is missing");
    CHECK(v[8].native);
  }

  TEST_CASE("instantiate: slots that are missing or too small are refused") {
    BlobBuilder b;
    const uint32_t x = b.input({kF32, {4}});
    b.output(b.node("unary", {x}, {{kF32, {4}}}, {{"kind", "neg"}}));
    Bound missing(plugin(), b), small(plugin(), b);
    missing.slot(missing.find(x, false)).buffer = nullptr;
    CHECK(missing.instantiate().code == TENON_INVALID_ARGUMENT);
    small.slot(small.find(x, false)).offset = 1;
    CHECK(small.instantiate().code == TENON_INVALID_ARGUMENT);
    CHECK(live_statuses() == 0);
  }
}

}  // namespace tenon::test
