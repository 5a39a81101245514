// SPDX-License-Identifier: Apache-2.0
// Graphs of 100,000 nodes through everything: built, differentiated, fused, planned, compiled and
// run, in near-linear processor time. bench/plan_scale.py has the numbers.
#include <ctime>
#include <map>
#include <string>

#include "rig.hpp"

using namespace tenon;
using namespace tenon::test;

namespace {

constexpr int64_t kNodes = 100000;

// Shape of the products: the cpu plugin packs the weights of such.
constexpr int64_t kRows = 16, kColumns = 8;

struct Scale {
  Graph g{"scale"};
  Value x = g.weight("x", {f64, {4}});
  std::map<std::string, double> diagonals{};  // weights of kColumns x kColumns

  Value unary(const char* kind, Value v) { return g.add(op::unary{.kind = kind, .x = v}); }
  Value binary(const char* kind, Value a, Value b) {
    return g.add(op::binary{.kind = kind, .a = a, .b = b});
  }
  Value product(Value rows, double factor) {
    const std::string name = "m" + std::to_string(diagonals.size());
    diagonals[name] = factor;
    const Value m = g.weight(name, {f64, {kColumns, kColumns}}, false);
    return g.add(op::matmul{.a = rows, .b = m});
  }
  // kRows rows, each x twice, and x of such rows.
  Value rows() {
    const Value two = g.add(op::concat{.axis = 0, .xs = {x, x}});
    return g.add(op::expand{.shape = {kRows, kColumns}, .x = two});
  }
  Value first_row(Value rows) {
    const Value row = g.add(op::narrow{.start = {0, 0}, .len = {1, 4}, .x = rows});
    return g.add(op::reshape{.shape = {4}, .x = row});
  }
  Value sum(std::vector<Value> level) {
    while (level.size() > 1) {
      std::vector<Value> sums;
      for (size_t k = 0; k + 2 <= level.size(); k += 2)
        sums.push_back(binary("add", level[k], level[k + 1]));
      if (level.size() % 2) sums.push_back(level.back());
      level = std::move(sums);
    }
    return level[0];
  }
};

using Build = Value (*)(Scale&, int64_t);

Value chain(Scale& s, int64_t n) {
  Value v = s.x;
  for (int64_t i = 0; i < n; ++i) v = s.unary("tanh", v);
  return v;
}
Value ladder(Scale& s, int64_t n) {
  Value v = s.x;
  for (int64_t i = 0; i + 3 <= n; i += 3)
    v = s.binary("mul", s.unary("tanh", v), s.unary("cos", v));
  return v;
}
// A sum, as a tree, of n / 2 values that one value makes.
Value fan(Scale& s, int64_t n) {
  std::vector<Value> level;
  for (int64_t i = 0; i < n / 2; ++i)
    level.push_back(s.binary("mul", s.x, s.g.scalar(1 + static_cast<double>(i))));
  return s.sum(std::move(level));
}
// Products one after the other, each with a weight of its own, every eighth with an activation.
Value product_chain(Scale& s, int64_t n) {
  Value v = s.rows();
  for (int64_t i = 0; i < n * 8 / 9; ++i) {
    v = s.product(v, 1);
    if (i % 8 == 0) v = s.unary("relu", v);
  }
  return s.first_row(v);
}
// A sum of products of one value, each with a weight of its own.
Value product_fan(Scale& s, int64_t n) {
  const Value rows = s.rows();
  std::vector<Value> products;
  for (int64_t i = 0; i < n / 2; ++i)
    products.push_back(s.product(rows, static_cast<double>(i % 3)));
  return s.first_row(s.sum(std::move(products)));
}
// A sum of activations of one product.
Value activation_fan(Scale& s, int64_t n) {
  const Value y = s.product(s.rows(), 1);
  std::vector<Value> level;
  for (int64_t i = 0; i < n / 2; ++i)
    level.push_back(s.g.add(
        op::unary{.kind = "leaky_relu", .alpha = 0x1p-20 * static_cast<double>(i), .x = y}));
  return s.first_row(s.sum(std::move(level)));
}

// The same by hand: value and slope at x.
std::pair<double, double> chain_at(double x, int64_t n) {
  double slope = 1;
  for (int64_t i = 0; i < n; ++i) x = std::tanh(x), slope *= 1 - x * x;
  return {x, slope};
}
std::pair<double, double> ladder_at(double x, int64_t n) {
  double slope = 1;
  for (int64_t i = 0; i + 3 <= n; i += 3) {
    const double t = std::tanh(x), c = std::cos(x);
    slope *= (1 - t * t) * c - t * std::sin(x);
    x = t * c;
  }
  return {x, slope};
}
std::pair<double, double> fan_at(double x, int64_t n) {
  const double factors = static_cast<double>(n / 2) * static_cast<double>(n / 2 + 1) / 2;
  return {x * factors, factors};
}

// Products: no test asks for their slopes.
std::pair<double, double> product_chain_at(double x, int64_t) { return {std::max(x, 0.0), 0}; }
std::pair<double, double> product_fan_at(double x, int64_t n) {
  double factors = 0;
  for (int64_t i = 0; i < n / 2; ++i) factors += static_cast<double>(i % 3);
  return {x * factors, 0};
}
std::pair<double, double> activation_fan_at(double x, int64_t n) {
  const auto count = static_cast<double>(n / 2);
  return {x * (x > 0 ? count : 0x1p-20 * count * (count - 1) / 2), 0};
}

// Compiles and runs; processor seconds of this thread, which plans.
double seconds(Build build, std::pair<double, double> (*at)(double, int64_t), int64_t forward,
               bool gradient) {
  const auto now = [] {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  };
  const double begin = now();
  Scale s;
  const Value y = build(s, forward);
  s.g.output("y", y);
  if (gradient)
    s.g.output("slope", s.g.gradients(s.g.add(op::reduce{.kind = "sum", .x = y}), {s.x})[0]);
  const std::vector<double> x = {0.3, -0.7, 1.1, 0};
  Store store(runtime());
  store.set(TENON_SPACE_WEIGHT, "x", {4}, x);
  for (const auto& [name, factor] : s.diagonals) {
    std::vector<double> m(kColumns * kColumns);
    for (size_t i = 0; i < kColumns; ++i) m[i * kColumns + i] = factor;
    store.set(TENON_SPACE_WEIGHT, name, {kColumns, kColumns}, m);
  }
  const Executable executable(runtime(), s.g, store, {.device = "cpu:0", .allow_fallback = false});
  Context run(executable);
  run.run();
  const double end = now();
  const auto values = run.get<double>("y");
  for (size_t i = 0; i < x.size(); ++i)
    CHECK(values[i] == doctest::Approx(at(x[i], forward).first).epsilon(1e-9));
  if (gradient) {
    const auto slopes = run.get<double>("slope");
    for (size_t i = 0; i < x.size(); ++i)
      CHECK(slopes[i] == doctest::Approx(at(x[i], forward).second).epsilon(1e-7));
  }
  return end - begin;
}

// Sixteen times the nodes take sixteen times as long, up to 35 times with what grows with their
// logarithm and with caches that no longer hold them. A quadratic pass takes 256 times, and shows
// even where it is a third of the time. A busy machine may spoil one measurement, not three.
void check_growth(Build build, std::pair<double, double> (*at)(double, int64_t), int64_t forward,
                  bool gradient) {
  constexpr double kMost = 45;
  double growth = 0;
  for (int tries = 0; tries < 3; ++tries) {
    const double part = seconds(build, at, forward / 16, gradient);
    growth = seconds(build, at, forward, gradient) / part;
    if (growth < kMost) break;
  }
  CHECK(growth < kMost);
}

}  // namespace

TEST_SUITE("exec/scale") {
  TEST_CASE("chain: 100,000 nodes") { check_growth(chain, chain_at, kNodes, false); }
  TEST_CASE("ladder: 100,000 nodes") { check_growth(ladder, ladder_at, kNodes, false); }
  TEST_CASE("fan: 100,000 nodes") { check_growth(fan, fan_at, kNodes, false); }
  TEST_CASE("products: a chain of 100,000 nodes") {
    check_growth(product_chain, product_chain_at, kNodes, false);
  }
  TEST_CASE("products: a fan of 100,000 nodes") {
    check_growth(product_fan, product_fan_at, kNodes, false);
  }
  TEST_CASE("products: one, and a fan of 100,000 activations") {
    check_growth(activation_fan, activation_fan_at, kNodes, false);
  }
  // With what the gradient adds, some 100,000.
  TEST_CASE("ladder: forward and backward") { check_growth(ladder, ladder_at, kNodes / 6, true); }
}
