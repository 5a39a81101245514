// SPDX-License-Identifier: Apache-2.0
// The template plugin against values worked out by hand: order, random, index and shape ops, with
// their edges.
#include <doctest/doctest.h>

#include "template_eval.hpp"

namespace tenon::test {

TEST_SUITE("abi/template/order") {
  TEST_CASE("sort: NaN is the greatest, equals keep their order both ways") {
    const Tensor x = line<double>({2, kNan, -0.0, 0.0, -1, 2});
    const auto up = eval("sort", {x}, {{kF64, {6}}, {kI64, {6}}});
    CHECK(same(list_of<double>(up[0]), {-1, -0.0, 0.0, 2, 2, kNan}));
    CHECK(list_of<int64_t>(up[1]) == Ints{4, 2, 3, 0, 5, 1});
    const auto down = eval("sort", {x}, {{kF64, {6}}, {kI64, {6}}}, {{"descending", true}});
    CHECK(same(list_of<double>(down[0]), {kNan, 2, 2, -0.0, 0.0, -1}));
    CHECK(list_of<int64_t>(down[1]) == Ints{1, 0, 5, 2, 3, 4});
  }

  TEST_CASE("sort: another axis") {
    const auto y = eval("sort", {tensor<int32_t>({3, 2}, {5, 1, 3, 2, 4, 0})},
                        {{TENON_DTYPE_I32, {3, 2}}, {kI64, {3, 2}}}, {{"axis", int64_t{0}}});
    CHECK(list_of<int32_t>(y[0]) == std::vector<int32_t>{3, 0, 4, 1, 5, 2});
    CHECK(list_of<int64_t>(y[1]) == Ints{1, 2, 2, 0, 0, 1});
  }

  TEST_CASE("cumsum: exclusive, reverse, other axes, NaN from where it stands") {
    const Tensor x = tensor<double>({2, 3}, {1, 2, 3, 4, 5, 6});
    CHECK(eval_as<double>("cumsum", {x}, {2, 3}) == Doubles{1, 3, 6, 4, 9, 15});
    CHECK(eval_as<double>("cumsum", {x}, {2, 3}, {{"exclusive", true}}) ==
          Doubles{0, 1, 3, 0, 4, 9});
    CHECK(eval_as<double>("cumsum", {x}, {2, 3}, {{"reverse", true}}) ==
          Doubles{6, 5, 3, 15, 11, 6});
    CHECK(eval_as<double>("cumsum", {x}, {2, 3}, {{"axis", int64_t{0}}}) ==
          Doubles{1, 2, 3, 5, 7, 9});
    CHECK(same(eval_as<double>("cumsum", {line<double>({1, -kInf, kInf, 1})}, {4}),
               {1, -kInf, kNan, kNan}));
    CHECK(eval_as<int8_t>("cumsum", {line<int8_t>({100, 100})}, {2}) ==
          std::vector<int8_t>{100, -56});
  }
}

TEST_SUITE("abi/template/random") {
  TEST_CASE("random_bits: the published Philox vector of zeros") {
    const auto bits =
        eval_as<uint32_t>("random_bits", {line<int64_t>({0, 0})}, {4}, {{"shape", Ints{4}}});
    CHECK(bits == std::vector<uint32_t>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  }

  // The key and offset of the published vector of pi's digits; its block number is no output of a
  // tensor, so this one is block 1, from a reference implementation that gives the published
  // vectors.
  TEST_CASE("random_bits: seed and offset of 64 bits, a second block that is cut short") {
    const auto bits =
        eval_as<uint32_t>("random_bits", {line<int64_t>({2999170649027065890, 247824715720788526})},
                          {7}, {{"shape", Ints{7}}});
    CHECK(std::vector<uint32_t>(bits.begin() + 4, bits.end()) ==
          std::vector<uint32_t>{0x314ddb4b, 0xab83527, 0x9fc3cabe});
  }
}

TEST_SUITE("abi/template/index") {
  TEST_CASE("gather: negative indices, 2-D indices, another axis") {
    const Tensor x = tensor<double>({2, 3}, {1, 2, 3, 4, 5, 6});
    CHECK(eval_as<double>("gather", {x, line<int64_t>({-1, 0})}, {2, 3}) ==
          Doubles{4, 5, 6, 1, 2, 3});
    CHECK(eval_as<double>("gather", {x, tensor<int32_t>({2, 2}, {0, -1, 1, 1})}, {2, 2, 2},
                          {{"axis", int64_t{1}}}) == Doubles{1, 3, 2, 2, 4, 6, 5, 5});
  }

  TEST_CASE("gather: out of range is an error, clamped, or reads zeros") {
    const Tensor x = line<double>({1, 2, 3}), i = line<int64_t>({3, -4, 0});
    CHECK(problem_of("gather", {x, i}, {kF64, {3}}, {}).code == TENON_INDEX_OUT_OF_RANGE);
    CHECK(eval_as<double>("gather", {x, i}, {3}, {{"oob", "clamp"}}) == Doubles{3, 1, 1});
    CHECK(eval_as<double>("gather", {x, i}, {3}, {{"oob", "skip"}}) == Doubles{0, 0, 1});
    CHECK(problem_of("gather", {line<double>({}), i}, {kF64, {3}}, {{"oob", "clamp"}}).code ==
          TENON_INDEX_OUT_OF_RANGE);
  }

  TEST_CASE("scatter: the last of equal indices wins, skipped ones are dropped") {
    const Tensor base = line<double>({1, 2, 3}), i = line<int64_t>({-1, 2, 7}),
                 u = line<double>({10, 20, 30});
    CHECK(eval_as<double>("scatter", {base, i, u}, {3}, {{"oob", "skip"}}) == Doubles{1, 2, 20});
    CHECK(problem_of("scatter", {base, i, u}, {kF64, {3}}, {}).index == 2);
  }

  TEST_CASE("scatter_add: duplicates accumulate, on a base or on zeros, halves round once") {
    const Tensor i = line<int64_t>({1, 1, -1}), u = line<double>({1, 2, 4});
    CHECK(eval_as<double>("scatter_add", {u, i, kAbsent}, {3}, {{"dim", int64_t{3}}}) ==
          Doubles{0, 3, 4});
    CHECK(eval_as<double>("scatter_add", {u, i, line<double>({5, 5, 5})}, {3}) == Doubles{5, 8, 9});
    CHECK(eval_as<int8_t>("scatter_add", {line<int8_t>({100, 100}), line<int64_t>({0, 0})}, {1},
                          {{"dim", int64_t{1}}}) == std::vector<int8_t>{-56});
    // 2048 + 1 + 1 in f16 is 2050 when it is rounded once, 2048 when each sum is.
    CHECK(eval_as<uint16_t>(
              "scatter_add",
              {line<uint16_t>({0x6800, 0x3C00, 0x3C00}, TENON_DTYPE_F16), line<int32_t>({0, 0, 0})},
              {1}, {{"dim", int64_t{1}}}, TENON_DTYPE_F16) == std::vector<uint16_t>{0x6801});
    const auto rows = eval_as<double>(
        "scatter_add", {tensor<double>({2, 2}, {1, 2, 3, 4}), tensor<int64_t>({2}, {0, 0})}, {2, 1},
        {{"axis", int64_t{1}}, {"dim", int64_t{1}}});
    CHECK(rows == Doubles{3, 7});
  }

  TEST_CASE(
      "dynamic_slice and dynamic_update_slice: blocks, range and clamping; negative is out of "
      "range") {
    const Tensor x = tensor<double>({3, 3}, {0, 1, 2, 3, 4, 5, 6, 7, 8});
    const std::vector<Attr> size{{"size", Ints{2, 2}}},
        clamp{{"size", Ints{2, 2}}, {"oob", "clamp"}};
    CHECK(eval_as<double>("dynamic_slice", {x, line<int64_t>({1, 0})}, {2, 2}, size) ==
          Doubles{3, 4, 6, 7});
    CHECK(eval_as<double>("dynamic_slice", {x, line<int64_t>({9, -1})}, {2, 2}, clamp) ==
          Doubles{3, 4, 6, 7});
    CHECK(problem_of("dynamic_slice", {x, line<int64_t>({-1, 0})}, {kF64, {2, 2}}, size).code ==
          TENON_INDEX_OUT_OF_RANGE);
    const Tensor u = tensor<double>({1, 2}, {-1, -2});
    CHECK(eval_as<double>("dynamic_update_slice", {x, u, line<int32_t>({2, 1})}, {3, 3}) ==
          Doubles{0, 1, 2, 3, 4, 5, 6, -1, -2});
    CHECK(problem_of("dynamic_update_slice", {x, u, line<int32_t>({2, 2})}, {kF64, {3, 3}}, {})
              .index == 1);
    CHECK(eval_as<double>("dynamic_update_slice", {x, u, line<int32_t>({2, 2})}, {3, 3},
                          {{"oob", "clamp"}}) == Doubles{0, 1, 2, 3, 4, 5, 6, -1, -2});
  }
}

TEST_SUITE("abi/template/shape") {
  TEST_CASE("concat: along an axis, empty pieces too") {
    const Tensor a = tensor<double>({2, 1}, {1, 2}), b = tensor<double>({2, 0}, {}),
                 c = tensor<double>({2, 2}, {3, 4, 5, 6});
    CHECK(eval_as<double>("concat", {a, b, c}, {2, 3}, {{"axis", int64_t{-1}}}) ==
          Doubles{1, 3, 4, 2, 5, 6});
  }

  TEST_CASE("pad: constant, edge, reflect, symmetric") {
    const auto pad = [](const std::string& mode, int64_t before, int64_t after) {
      return eval_as<double>(
          "pad", {line<double>({1, 2, 3})}, {3 + before + after},
          {{"before", Ints{before}}, {"after", Ints{after}}, {"mode", mode}, {"value", 9.0}});
    };
    CHECK(pad("constant", 1, 2) == Doubles{9, 1, 2, 3, 9, 9});
    CHECK(pad("edge", 2, 1) == Doubles{1, 1, 1, 2, 3, 3});
    CHECK(pad("reflect", 2, 2) == Doubles{3, 2, 1, 2, 3, 2, 1});
    CHECK(pad("symmetric", 3, 2) == Doubles{3, 2, 1, 1, 2, 3, 3, 2});
    const auto two = eval_as<double>("pad", {tensor<double>({1, 2}, {1, 2})}, {2, 3},
                                     {{"before", Ints{1, 0}}, {"after", Ints{0, 1}}});
    CHECK(two == Doubles{0, 0, 0, 1, 2, 0});
    CHECK(eval_as<double>("pad", {tensor<double>({1, 2}, {1, 2})}, {2, 3},
                          {{"before", Ints{1, 1}}}) == Doubles{0, 0, 0, 0, 1, 2});
    CHECK(eval_as<double>("pad", {tensor<double>({1, 2}, {1, 2})}, {1, 3},
                          {{"after", Ints{0, 1}}}) == Doubles{1, 2, 0});
  }

  TEST_CASE("iota: floats are rounded once, integers wrap") {
    CHECK(eval_as<double>("iota", {}, {2, 2},
                          {{"shape", Ints{2, 2}},
                           {"axis", int64_t{1}},
                           {"dtype", kF64},
                           {"start", 1.0},
                           {"step", 0.5}}) == Doubles{1, 1.5, 1, 1.5});
    CHECK(eval_as<int64_t>("iota", {}, {3}, {{"shape", Ints{3}}, {"start", 5.0}, {"step", -3.0}}) ==
          Ints{5, 2, -1});
    CHECK(eval_as<int8_t>("iota", {}, {2},
                          {{"shape", Ints{2}}, {"dtype", TENON_DTYPE_I8}, {"start", 127.0}}) ==
          std::vector<int8_t>{127, -128});
  }

  TEST_CASE("views: transpose, expand, narrow with a negative step, reshape") {
    const Tensor x = tensor<double>({2, 3}, {1, 2, 3, 4, 5, 6});
    CHECK(eval_as<double>("transpose", {x}, {3, 2}) == Doubles{1, 4, 2, 5, 3, 6});
    CHECK(eval_as<double>("expand", {tensor<double>({2, 1}, {1, 2})}, {2, 2, 2},
                          {{"shape", Ints{2, 2, 2}}}) == Doubles{1, 1, 2, 2, 1, 1, 2, 2});
    CHECK(eval_as<double>("narrow", {x}, {2, 2},
                          {{"start", Ints{1, 2}}, {"len", Ints{2, 2}}, {"step", Ints{-1, -2}}}) ==
          Doubles{6, 4, 3, 1});
    CHECK(eval_as<double>("reshape", {x}, {3, 2}, {{"shape", Ints{3, 2}}}) ==
          Doubles{1, 2, 3, 4, 5, 6});
  }
}

}  // namespace tenon::test
