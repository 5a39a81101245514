// SPDX-License-Identifier: Apache-2.0
// Products whose sums are long and whose results are few: the scratch stays small, every sum is
// whole. Of operands -1, 0 and 1 the sums are exact in f32, whatever their order.
#include <nlohmann/json.hpp>

#include "rig.hpp"

using namespace tenon;
using namespace tenon::test;

namespace {

constexpr int64_t kRows = 33, kCols = 20, kTerms = 700000;

int8_t third(uint64_t key, int64_t i) {
  uint64_t x = (static_cast<uint64_t>(i) + 1) * 0x9E3779B97F4A7C15ull + key;
  x = (x ^ (x >> 29)) * 0xBF58476D1CE4E5B9ull;
  return static_cast<int8_t>(static_cast<int>((x >> 33) % 3) - 1);
}

struct Numbers {
  std::vector<int8_t> a, b;       // [rows, terms], [cols, terms]
  std::vector<int32_t> products;  // [rows, cols]
};

const Numbers& numbers() {
  static const Numbers the = [] {
    Numbers n;
    n.a.resize(kRows * kTerms), n.b.resize(kCols * kTerms), n.products.resize(kRows * kCols);
    for (size_t i = 0; i < n.a.size(); ++i) n.a[i] = third(1, static_cast<int64_t>(i));
    for (size_t i = 0; i < n.b.size(); ++i) n.b[i] = third(2, static_cast<int64_t>(i));
    for (int64_t i = 0; i < kRows; ++i)
      for (int64_t j = 0; j < kCols; ++j) {
        int32_t sum = 0;
        for (int64_t k = 0; k < kTerms; ++k) sum += n.a[i * kTerms + k] * n.b[j * kTerms + k];
        n.products[i * kCols + j] = sum;
      }
    return n;
  }();
  return the;
}

template <class T>
std::vector<T> as(const std::vector<int8_t>& from, T minus, T zero, T one) {
  std::vector<T> to(from.size());
  for (size_t i = 0; i < to.size(); ++i) to[i] = from[i] < 0 ? minus : from[i] ? one : zero;
  return to;
}

// Runs a graph over a [rows, terms] and b [cols, terms], checks its scratch in f32, gives its
// output.
template <class T>
std::vector<T> run(Graph& g, tenon_dtype dtype, const std::vector<T>& a, const std::vector<T>& b) {
  Store store(runtime());
  const Executable executable(runtime(), g, store, {.device = "cpu:0", .allow_fallback = false});
  const auto report = nlohmann::json::parse(executable.report());
  // A tile unit, which f32 does not use, packs its operands whole.
  for (const auto& step : report["steps"])
    if (dtype == f32) CHECK(step["scratch"].get<uint64_t>() <= 32 << 20);
  Context context(executable);
  context.set("a", {dtype, {kRows, kTerms}}, a.data(), a.size() * sizeof(T));
  context.set("b", {dtype, {kCols, kTerms}}, b.data(), b.size() * sizeof(T));
  context.run();
  std::vector<T> y(kRows * kCols);
  context.get("y", y.data(), y.size() * sizeof(T));
  return y;
}

}  // namespace

TEST_SUITE("exec/long_sum") {
  TEST_CASE("matmul: long sums in f32 are whole, in little scratch") {
    Graph g;
    const Value a = g.input("a", {f32, {kRows, kTerms}}), b = g.input("b", {f32, {kCols, kTerms}});
    g.output("y", g.add(op::matmul{.trans_b = true, .a = a, .b = b}));
    const auto y =
        run<float>(g, f32, as<float>(numbers().a, -1, 0, 1), as<float>(numbers().b, -1, 0, 1));
    for (size_t i = 0; i < y.size(); ++i) CHECK(y[i] == static_cast<float>(numbers().products[i]));
  }

  TEST_CASE("linear: long sums of halves reach bias and activation whole") {
    for (const tenon_dtype dtype : {f16, bf16}) {
      const auto encode = [&](double v) { return dtype == f16 ? F16(v).bits : BF16(v).bits; };
      Graph g;
      const Value a = g.input("a", {dtype, {kRows, kTerms}}),
                  b = g.input("b", {dtype, {kCols, kTerms}});
      const std::vector<uint16_t> half(kCols, encode(0.5));
      const Value bias = g.constant({dtype, {kCols}}, half.data(), half.size() * 2);
      g.output(
          "y",
          g.add(op::linear{
              .trans_b = true, .alpha = 1.0 / 64, .act = "relu", .a = a, .b = b, .bias = bias}));
      const auto y =
          run<uint16_t>(g, dtype, as<uint16_t>(numbers().a, encode(-1), encode(0), encode(1)),
                        as<uint16_t>(numbers().b, encode(-1), encode(0), encode(1)));
      for (size_t i = 0; i < y.size(); ++i)
        CHECK(y[i] == encode(std::max(0.0, numbers().products[i] / 64.0 + 0.5)));
    }
  }
}
