// SPDX-License-Identifier: Apache-2.0
// The template plugin against values worked out by hand: it is the oracle of the conformance kit,
// so nothing else judges it. Here: elementwise, cast, matmul, reduce, with their edges.
#include <doctest/doctest.h>

#include "template_eval.hpp"

namespace tenon::test {

namespace {
template <class T>
std::vector<T> binary(const std::string& kind, const std::vector<T>& a, const std::vector<T>& b) {
  return eval_as<T>("binary", {line(a), line(b)}, {static_cast<int64_t>(a.size())},
                    {{"kind", kind}});
}
Doubles unary(const std::string& kind, const Doubles& x) {
  return eval_as<double>("unary", {line(x)}, {static_cast<int64_t>(x.size())}, {{"kind", kind}});
}
double reduce(const std::string& kind, const Doubles& x) {
  return eval_as<double>("reduce", {line(x)}, {}, {{"kind", kind}}).at(0);
}
template <class To, class From>
std::vector<To> cast(const std::vector<From>& x, tenon_dtype to = kDtype<To>,
                     tenon_dtype from = kDtype<From>) {
  return eval_as<To>("cast", {line(x, from)}, {static_cast<int64_t>(x.size())}, {{"to", to}}, to);
}

}  // namespace

TEST_SUITE("abi/template/elementwise") {
  TEST_CASE("binary: floats follow IEEE, and NaN is never swallowed") {
    CHECK(same(binary<double>("max", {1, kNan, 2, -1}, {2, 1, kNan, -3}), {2, kNan, kNan, -1}));
    CHECK(same(binary<double>("min", {1, kNan, 2}, {2, 1, kNan}), {1, kNan, kNan}));
    CHECK(same(binary<double>("div", {1, -1, 0}, {0, 0, 0}), {kInf, -kInf, kNan}));
    CHECK(same(binary<double>("pow", {kNan, 1, -8, -2}, {0, kNan, 1.0 / 3, 3}), {1, 1, kNan, -8}));
    CHECK(same(binary<double>("mod", {5.5, -5.5, 5.5, -6}, {2, 2, -2, 2}), {1.5, 0.5, -0.5, -0.0}));
    CHECK(same(binary<double>("fmod", {5.5, -5.5, 5.5}, {2, 2, -2}), {1.5, -1.5, 1.5}));
    CHECK(near(binary<double>("atan2", {1}, {-1})[0], 2.356194490192345));
  }

  TEST_CASE("binary: integers wrap and have no undefined case") {
    using I8 = std::vector<int8_t>;
    CHECK(binary<int8_t>("add", {127, -128}, {1, -1}) == I8{-128, 127});
    CHECK(binary<int8_t>("mul", {64, -128}, {4, -1}) == I8{0, -128});
    CHECK(binary<int8_t>("div", {7, -7, 5, -128}, {2, 2, 0, -1}) == I8{3, -3, -1, -128});
    CHECK(binary<uint8_t>("div", {7, 9}, {0, 2}) == std::vector<uint8_t>{255, 4});
    CHECK(binary<int8_t>("mod", {7, -7, 7, 5, -128}, {3, 3, -3, 0, -1}) == I8{1, 2, -2, 5, 0});
    CHECK(binary<int8_t>("fmod", {7, -7, 7, 5, -128}, {3, 3, -3, 0, -1}) == I8{1, -1, 1, 5, 0});
    CHECK(binary<int8_t>("pow", {2, 3, -1, -1, 1, 5, 0, -2}, {3, 5, -3, -2, -9, -1, 0, 7}) ==
          I8{8, -13, -1, 1, 1, 0, 1, -128});
    CHECK(binary<int64_t>("sub", {INT64_MIN}, {1}) == Ints{INT64_MAX});
    const auto flags = eval_as<uint8_t>("binary",
                                        {line<uint8_t>({0, 0, 1, 1}, TENON_DTYPE_BOOL),
                                         line<uint8_t>({0, 1, 0, 1}, TENON_DTYPE_BOOL)},
                                        {4}, {{"kind", "max"}}, TENON_DTYPE_BOOL);
    CHECK(flags == std::vector<uint8_t>{0, 1, 1, 1});
  }

  TEST_CASE("binary: operands broadcast as in NumPy") {
    const auto y = eval_as<double>(
        "binary", {tensor<double>({2, 1}, {10, 20}), tensor<double>({3}, {1, 2, 3})}, {2, 3},
        {{"kind", "sub"}});
    CHECK(y == Doubles{9, 8, 7, 19, 18, 17});
  }

  TEST_CASE("compare: with a NaN everything is false but ne, and zeros are equal") {
    const auto compare = [](const std::string& kind) {
      return eval_as<uint8_t>("compare",
                              {line<double>({kNan, -0.0, 1, 2}), line<double>({kNan, 0.0, 2, 1})},
                              {4}, {{"kind", kind}}, TENON_DTYPE_BOOL);
    };
    using Flags = std::vector<uint8_t>;
    CHECK(compare("eq") == Flags{0, 1, 0, 0});
    CHECK(compare("ne") == Flags{1, 0, 1, 1});
    CHECK(compare("lt") == Flags{0, 0, 1, 0});
    CHECK(compare("le") == Flags{0, 1, 1, 0});
    CHECK(compare("gt") == Flags{0, 0, 0, 1});
    CHECK(compare("ge") == Flags{0, 1, 0, 1});
    CHECK(eval_as<uint8_t>("compare",
                           {line<int64_t>({(1ll << 53) + 1}), line<int64_t>({1ll << 53})}, {1},
                           {{"kind", "eq"}}, TENON_DTYPE_BOOL) == Flags{0});
  }

  TEST_CASE("logical: xor and not") {
    const Tensor a = line<uint8_t>({0, 0, 1, 1}, TENON_DTYPE_BOOL),
                 b = line<uint8_t>({0, 1, 0, 1}, TENON_DTYPE_BOOL);
    CHECK(eval_as<uint8_t>("logical", {a, b}, {4}, {{"kind", "xor"}}, TENON_DTYPE_BOOL) ==
          std::vector<uint8_t>{0, 1, 1, 0});
    CHECK(eval_as<uint8_t>("logical", {a}, {4}, {{"kind", "not"}}, TENON_DTYPE_BOOL) ==
          std::vector<uint8_t>{1, 1, 0, 0});
  }

  TEST_CASE("unary: values and edges") {
    CHECK(same(unary("round", {2.5, -0.5, 3.5, kNan}), {2, -0.0, 4, kNan}));
    CHECK(same(unary("sign", {-3, 0, 2, kNan}), {-1, 0, 1, kNan}));
    CHECK(same(unary("log", {0, -1, 1}), {-kInf, kNan, 0}));
    CHECK(same(unary("rsqrt", {4, -1}), {0.5, kNan}));
    CHECK(same(unary("sqrt", {2.25, -1}), {1.5, kNan}));
    CHECK(near(unary("erfc", {5})[0], 1.5374597944280349e-12));
    CHECK(near(unary("expm1", {1e-10})[0], 1.00000000005e-10));
    CHECK(near(unary("log1p", {1e-10})[0], 9.9999999995e-11));
    CHECK(near(unary("sin", {1e22})[0], -0.8522008497671888));
    CHECK(same(unary("tanh", {kInf, -kInf}), {1, -1}));
    CHECK(eval_as<int8_t>("unary", {line<int8_t>({-128, -5, 5})}, {3}, {{"kind", "abs"}}) ==
          std::vector<int8_t>{-128, 5, 5});
    CHECK(eval_as<uint8_t>("unary", {line<double>({1, kNan, kInf})}, {3}, {{"kind", "is_inf"}},
                           TENON_DTYPE_BOOL) == std::vector<uint8_t>{0, 0, 1});
  }

  TEST_CASE("where: the branch not taken does not leak, and all three broadcast") {
    const auto y = eval_as<double>("where",
                                   {tensor<uint8_t>({2, 1}, {1, 0}, TENON_DTYPE_BOOL),
                                    tensor<double>({2}, {1, kNan}), tensor<double>({}, {7})},
                                   {2, 2});
    CHECK(same(y, {1, kNan, 7, 7}));
  }
}

TEST_SUITE("abi/template/cast") {
  TEST_CASE("to integers: towards zero, saturating, NaN is 0") {
    CHECK(cast<int8_t, double>({-1.9, 1.9, 300, -kInf, kNan, 127.5, -128.9}) ==
          std::vector<int8_t>{-1, 1, 127, -128, 0, 127, -128});
    CHECK(cast<uint8_t, double>({-1, 255.9, 256}) == std::vector<uint8_t>{0, 255, 255});
    CHECK(cast<int64_t, double>({9.3e18, -9.3e18}) == Ints{INT64_MAX, INT64_MIN});
    CHECK(cast<int8_t, int32_t>({300, -129}) == std::vector<int8_t>{44, 127});
  }

  TEST_CASE("to bool: NaN is true, -0 is false") {
    CHECK(cast<uint8_t, double>({kNan, -0.0, 0.1}, TENON_DTYPE_BOOL) ==
          std::vector<uint8_t>{1, 0, 1});
    CHECK(same(cast<double, uint8_t>({0, 1}, kF64, TENON_DTYPE_BOOL), {0, 1}));
  }

  TEST_CASE("to f16: half to even, subnormals, overflow, NaN") {
    const Doubles x{1,
                    -2,
                    65504,
                    65519.99,
                    65520,
                    kInf,
                    1 + 1.0 / 2048,
                    1 + 3.0 / 2048,
                    std::ldexp(1, -24),
                    std::ldexp(1, -25),
                    std::ldexp(1.0001, -25),
                    std::ldexp(1023.5, -24),
                    -0.0};
    CHECK(cast<uint16_t, double>(x, TENON_DTYPE_F16) ==
          std::vector<uint16_t>{0x3C00, 0xC000, 0x7BFF, 0x7BFF, 0x7C00, 0x7C00, 0x3C00, 0x3C02,
                                0x0001, 0x0000, 0x0001, 0x0400, 0x8000});
    CHECK((cast<uint16_t, double>({kNan}, TENON_DTYPE_F16)[0] & 0x7E00) == 0x7E00);
    CHECK(same(
        cast<double, uint16_t>({0x3C01, 0x0001, 0xFC00, 0x7E00, 0x8000}, kF64, TENON_DTYPE_F16),
        {1 + 1.0 / 1024, std::ldexp(1, -24), -kInf, kNan, -0.0}));
  }

  TEST_CASE("to f16: every f16 survives the way through f64") {
    std::vector<uint16_t> all;
    for (int bits = 0; bits < 0x10000; ++bits)
      if ((bits & 0x7C00) != 0x7C00 || (bits & 0x3FF) == 0)
        all.push_back(static_cast<uint16_t>(bits));
    CHECK(cast<uint16_t, double>(cast<double, uint16_t>(all, kF64, TENON_DTYPE_F16),
                                 TENON_DTYPE_F16) == all);
    CHECK(cast<uint16_t, double>(cast<double, uint16_t>(all, kF64, TENON_DTYPE_BF16),
                                 TENON_DTYPE_BF16) == all);
  }

  TEST_CASE("to bf16: one rounding, from f64 and from wide integers") {
    CHECK(cast<uint16_t, double>({1, 1 + 1.0 / 256, 1 + 3.0 / 256, 3.4e38, 3.3895e38, 1e-40},
                                 TENON_DTYPE_BF16) ==
          std::vector<uint16_t>{0x3F80, 0x3F80, 0x3F82, 0x7F80, 0x7F7F, 0x0001});
    // Just above the middle between two bf16 by one part in 2^62: rounding to f64 first would make
    // it a tie.
    CHECK(cast<uint16_t, int64_t>({(1ll << 62) + (1ll << 54) + 1}, TENON_DTYPE_BF16) ==
          std::vector<uint16_t>{0x5E81});
    CHECK(cast<float, int64_t>({(1ll << 24) + 1, (1ll << 24) + 3}) ==
          std::vector<float>{16777216, 16777220});
  }
}

TEST_SUITE("abi/template/matmul") {
  TEST_CASE("matmul: transposed operands and alpha") {
    const Doubles expected{2 * 58, 2 * 64, 2 * 139, 2 * 154};
    const Tensor a = tensor<double>({2, 3}, {1, 2, 3, 4, 5, 6}),
                 at = tensor<double>({3, 2}, {1, 4, 2, 5, 3, 6});
    const Tensor b = tensor<double>({3, 2}, {7, 8, 9, 10, 11, 12}),
                 bt = tensor<double>({2, 3}, {7, 9, 11, 8, 10, 12});
    CHECK(eval_as<double>("matmul", {a, b}, {2, 2}, {{"alpha", 2.0}}) == expected);
    CHECK(eval_as<double>("matmul", {at, bt}, {2, 2},
                          {{"alpha", 2.0}, {"trans_a", true}, {"trans_b", true}}) == expected);
  }

  TEST_CASE("matmul: rank 1 operands and broadcast batches") {
    const Tensor v = tensor<double>({2}, {1, 10}), m = tensor<double>({2, 2}, {1, 2, 3, 4});
    CHECK(eval_as<double>("matmul", {v, m}, {2}) == Doubles{31, 42});
    CHECK(eval_as<double>("matmul", {m, v}, {2}) == Doubles{21, 43});
    CHECK(eval_as<double>("matmul", {v, v}, {}) == Doubles{101});
    const Tensor a = tensor<double>({2, 1, 1, 2}, {1, 0, 0, 1}),
                 b = tensor<double>({2, 2, 1}, {1, 2, 3, 4});
    CHECK(eval_as<double>("matmul", {a, b}, {2, 2, 1, 1}) == Doubles{1, 3, 2, 4});
    CHECK(eval_as<double>("matmul", {v, tensor<double>({2, 2, 1}, {1, 2, 3, 4})}, {2, 1}) ==
          Doubles{21, 43});
  }

  TEST_CASE("matmul: no K gives zeros, zero times infinity is NaN") {
    CHECK(eval_as<double>("matmul", {tensor<double>({1, 0}, {}), tensor<double>({0, 2}, {})},
                          {1, 2}) == Doubles{0, 0});
    CHECK(same(
        eval_as<double>(
            "matmul", {tensor<double>({1, 2}, {0, 1}), tensor<double>({2, 1}, {kInf, 1})}, {1, 1}),
        {kNan}));
  }

  TEST_CASE("matmul: bytes are exact in i32, halves can come out in f32") {
    CHECK(eval_as<int32_t>(
              "matmul", {tensor<int8_t>({1, 2}, {-128, 127}), tensor<uint8_t>({2, 1}, {255, 255})},
              {1, 1}, {{"out_dtype", TENON_DTYPE_I32}}) == std::vector<int32_t>{-255});
    const Tensor half = tensor<uint16_t>({1, 2}, {0x3C00, 0x1400}, TENON_DTYPE_F16);  // 1, 2^-10
    CHECK(eval_as<float>("matmul", {half, half}, {1, 1},
                         {{"out_dtype", TENON_DTYPE_F32}, {"trans_b", true}}) ==
          std::vector<float>{1 + std::ldexp(1.0f, -20)});
  }
}

TEST_SUITE("abi/template/reduce") {
  TEST_CASE("reduce: every kind over three numbers") {
    const Doubles x{3, -4, 0.5};
    CHECK(reduce("sum", x) == -0.5);
    CHECK(near(reduce("mean", x), -0.5 / 3));
    CHECK(reduce("max", x) == 3);
    CHECK(reduce("min", x) == -4);
    CHECK(reduce("prod", x) == -6);
    CHECK(reduce("sum_square", x) == 25.25);
    CHECK(reduce("l1", x) == 7.5);
    CHECK(near(reduce("l2", x), 5.024937810560445));
    CHECK(near(reduce("logsumexp", x), 3.079732087672557));
  }

  TEST_CASE("reduce: identities over nothing") {
    const auto empty = [](const std::string& kind) {
      return eval_as<double>("reduce", {tensor<double>({0, 1}, {})}, {1},
                             {{"kind", kind}, {"axes", Ints{0}}});
    };
    CHECK(empty("sum") == Doubles{0});
    CHECK(same(empty("mean"), {kNan}));
    CHECK(empty("prod") == Doubles{1});
    CHECK(empty("max") == Doubles{-kInf});
    CHECK(empty("min") == Doubles{kInf});
    CHECK(empty("logsumexp") == Doubles{-kInf});
    CHECK(empty("l2") == Doubles{0});
    CHECK(eval_as<int8_t>("reduce", {tensor<int8_t>({0}, {})}, {}, {{"kind", "max"}}) ==
          std::vector<int8_t>{-128});
    CHECK(eval_as<uint8_t>("reduce", {tensor<uint8_t>({0}, {}, TENON_DTYPE_BOOL)}, {},
                           {{"kind", "all"}}, TENON_DTYPE_BOOL) == std::vector<uint8_t>{1});
  }

  TEST_CASE("reduce: NaN and infinities") {
    CHECK(std::isnan(reduce("max", {1, kNan, 2})));
    CHECK(std::isnan(reduce("min", {kNan, 1})));
    CHECK(reduce("logsumexp", {-kInf, -kInf}) == -kInf);
    CHECK(reduce("logsumexp", {kInf, 1}) == kInf);
    CHECK(near(reduce("logsumexp", {1000, 1000}), 1000.6931471805599));
    CHECK(reduce("sum", {1e16, 1, 1, -1e16}) == 2);
  }

  TEST_CASE("reduce: axes apart, negative, kept, none") {
    const Tensor x = tensor<double>({2, 3, 2}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
    CHECK(eval_as<double>("reduce", {x}, {3}, {{"kind", "sum"}, {"axes", Ints{0, -1}}}) ==
          Doubles{18, 26, 34});
    CHECK(eval_as<double>("reduce", {x}, {2, 1, 2},
                          {{"kind", "max"}, {"axes", Ints{1}}, {"keepdims", true}}) ==
          Doubles{5, 6, 11, 12});
    CHECK(eval_as<double>("reduce", {x}, {}, {{"kind", "sum"}}) == Doubles{78});
    CHECK(eval_as<double>("reduce", {tensor<double>({2}, {3, -4})}, {2},
                          {{"kind", "sum_square"}, {"noop_with_empty_axes", true}}) ==
          Doubles{9, 16});
  }

  TEST_CASE("reduce: integers wrap, their mean truncates") {
    CHECK(eval_as<int8_t>("reduce", {line<int8_t>({100, 100})}, {}, {{"kind", "sum"}}) ==
          std::vector<int8_t>{-56});
    CHECK(eval_as<int8_t>("reduce", {line<int8_t>({100, 101})}, {}, {{"kind", "mean"}}) ==
          std::vector<int8_t>{100});
    CHECK(eval_as<int8_t>("reduce", {line<int8_t>({-3, -4})}, {}, {{"kind", "mean"}}) ==
          std::vector<int8_t>{-3});
    CHECK(eval_as<int8_t>("reduce", {line<int8_t>({-128, 1})}, {}, {{"kind", "l1"}}) ==
          std::vector<int8_t>{-127});
    CHECK(eval_as<uint8_t>("reduce", {line<int32_t>({0, 3})}, {}, {{"kind", "any"}},
                           TENON_DTYPE_BOOL) == std::vector<uint8_t>{1});
  }
}

}  // namespace tenon::test
