// SPDX-License-Identifier: Apache-2.0
// Arithmetic and movement of tensors that are known while a model is translated.
#include <limits>

#include "import/onnx/known_ops.hpp"
#include "onnx_rig.hpp"

namespace tenon::core::onnx {
namespace {

constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();

Known i64s(Ints values) { return known_vector(std::move(values)); }

TEST_SUITE("import/onnx/known") {
  TEST_CASE("integers: wrap, divide and take remainders as tenon's ops") {
    CHECK(known_binary("add", i64s({std::numeric_limits<int64_t>::max()}), i64s({1}))->ints[0] ==
          kLowest);
    CHECK(known_binary("div", i64s({-7, 7, kLowest, 5}), i64s({2, -2, -1, 0}))->ints ==
          Ints{-3, -3, kLowest, -1});
    CHECK(known_binary("mod", i64s({-7, 7, kLowest, 5}), i64s({3, -3, -1, 0}))->ints ==
          Ints{2, -2, 0, 5});
    CHECK(known_binary("fmod", i64s({-7, 7}), i64s({3, -3}))->ints == Ints{-1, 1});
    CHECK(known_binary("pow", i64s({2, -1, 3}), i64s({10, -3, -1}))->ints == Ints{1024, -1, 0});
  }
  TEST_CASE("integers: a narrow dtype wraps, an unsigned one compares as such") {
    const Known a = known_ints(kU8, {2}, {250, 1}), b = known_ints(kU8, {2}, {10, 2});
    CHECK(known_binary("add", a, b)->ints == Ints{4, 3});
    CHECK(known_binary("sub", b, a)->ints == Ints{16, 1});
    const Known big = known_ints(kU64, {1}, {-1}), one = known_ints(kU64, {1}, {1});
    CHECK(known_binary("max", big, one)->ints[0] == -1);
    CHECK(known_compare("gt", big, one)->ints[0] == 1);
    CHECK(big.number(0) == 18446744073709551615.0);
  }
  TEST_CASE("floats: each result is rounded to the dtype") {
    const Known third = *known_binary("div", known_full(kF32, {1}, 1), known_full(kF32, {1}, 3));
    CHECK(third.reals[0] == static_cast<double>(1.0f / 3.0f));
    CHECK(known_full(kF16, {1}, 1.0 / 3).reals[0] == 0.333251953125);
  }
  TEST_CASE("cast: truncates, saturates, wraps integers") {
    const Known x =
        known_reals(kF32, {4}, {-1.9, 300, -1e30, std::numeric_limits<double>::quiet_NaN()});
    CHECK(known_cast(x, kU8).ints == Ints{0, 255, 0, 0});
    CHECK(known_cast(x, kI32).ints == Ints{-1, 300, -2147483648, 0});
    CHECK(known_cast(i64s({300, -1}), kU8).ints == Ints{44, 255});
    CHECK(known_cast(i64s({0, 7}), kBool).ints == Ints{0, 1});
  }
  TEST_CASE("movement: broadcast, transpose, slices with steps") {
    const Known m = known_ints(kI64, {2, 3}, {0, 1, 2, 3, 4, 5});
    CHECK(known_transpose(m, {1, 0}).ints == Ints{0, 3, 1, 4, 2, 5});
    CHECK(known_narrow(m, {0, 2}, {2, 2}, {1, -2}).ints == Ints{2, 0, 5, 3});
    CHECK(known_expand(known_ints(kI64, {2, 1}, {7, 8}), {2, 2}).ints == Ints{7, 7, 8, 8});
    const Known row = known_ints(kI64, {1, 3}, {9, 9, 9});
    const Known* parts[] = {&m, &row};
    CHECK(known_concat(parts, 0).dims == Ints{3, 3});
    CHECK(known_gather(m, i64s({-1, 0}), 1).ints == Ints{2, 0, 5, 3});
    CHECK_THROWS_AS(known_gather(m, i64s({3}), 1), Error);
  }
  TEST_CASE("reductions and places") {
    const Known m = known_ints(kI64, {2, 3}, {4, 0, 2, 0, 5, 1});
    CHECK(known_reduce("sum", m, {1}, false)->ints == Ints{6, 6});
    CHECK(known_reduce("max", m, {0}, true)->ints == Ints{4, 5, 2});
    CHECK(known_reduce("min", m, {0, 1}, false)->ints == Ints{0});
    CHECK(known_reduce("prod", m, {1}, false)->ints == Ints{0, 0});
    CHECK(known_non_zero(m).ints == Ints{0, 0, 1, 1, 0, 2, 1, 2});
  }
  TEST_CASE("content: bytes and back, for each width") {
    for (const DType t : {kI8, kU16, kI32, kU64, kBool, kF16, kBF16, kF32, kF64}) {
      const Known x = known_full(t, {3}, 1);
      const Known y = known_from(t, {3}, content_of(x));
      CHECK(y.ints == x.ints);
      CHECK(y.reals == x.reals);
    }
    CHECK_THROWS_AS(known_from(kI32, {3}, Bytes(11)), Error);
  }
  TEST_CASE("sizes: an overflow is an error, a dim of 0 is not") {
    CHECK_THROWS_AS(count_of(Ints{int64_t{1} << 40, int64_t{1} << 40}), Error);
    CHECK(count_of(Ints{int64_t{1} << 40, 0, int64_t{1} << 40}) == 0);
    CHECK_FALSE(fits(Ints{int64_t{1} << 40, int64_t{1} << 40}));
  }
}

}  // namespace
}  // namespace tenon::core::onnx
