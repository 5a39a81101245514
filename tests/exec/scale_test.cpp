// SPDX-License-Identifier: Apache-2.0
// Graphs of 100,000 nodes through everything: built, differentiated, fused, planned, compiled and
// run, in near-linear processor time. bench/plan_scale.py has the numbers.
#include <ctime>
#include <string>

#include "rig.hpp"

using namespace tenon;
using namespace tenon::test;

namespace {

constexpr int64_t kNodes = 100000;

struct Scale {
  Graph g{"scale"};
  Value x = g.weight("x", {f64, {4}});

  Value unary(const char* kind, Value v) { return g.add(op::unary{.kind = kind, .x = v}); }
  Value binary(const char* kind, Value a, Value b) {
    return g.add(op::binary{.kind = kind, .a = a, .b = b});
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
  while (level.size() > 1) {
    std::vector<Value> sums;
    for (size_t k = 0; k + 2 <= level.size(); k += 2)
      sums.push_back(s.binary("add", level[k], level[k + 1]));
    if (level.size() % 2) sums.push_back(level.back());
    level = std::move(sums);
  }
  return level[0];
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

// Four times the nodes take four times as long, with room for what grows with their logarithm,
// for caches and for a busy machine; a quadratic pass would take sixteen times.
void check_growth(Build build, std::pair<double, double> (*at)(double, int64_t), int64_t forward,
                  bool gradient) {
  const double quarter = seconds(build, at, forward / 4, gradient);
  const double whole = seconds(build, at, forward, gradient);
  CAPTURE(quarter);
  CAPTURE(whole);
  CHECK(whole < 9 * quarter);
}

}  // namespace

TEST_SUITE("exec/scale") {
  TEST_CASE("chain: 100,000 nodes") { check_growth(chain, chain_at, kNodes, false); }
  TEST_CASE("ladder: 100,000 nodes") { check_growth(ladder, ladder_at, kNodes, false); }
  TEST_CASE("fan: 100,000 nodes") { check_growth(fan, fan_at, kNodes, false); }
  // With what the gradient adds, some 100,000.
  TEST_CASE("ladder: forward and backward") { check_growth(ladder, ladder_at, kNodes / 6, true); }
}
