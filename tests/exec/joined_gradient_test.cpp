// SPDX-License-Identifier: Apache-2.0
// Gradients through composites that fusion made, on data where what the forward pass saves has lost
// bits: the log-sum of scores far from zero, the statistics of a sum that is rounded.
#include <array>

#include "rig.hpp"

using namespace tenon;
using namespace tenon::test;

namespace {

std::vector<uint16_t> halves(tenon_dtype dtype, const std::vector<double>& values) {
  std::vector<uint16_t> out;
  for (const double v : values) out.push_back(dtype == bf16 ? BF16(v).bits : F16(v).bits);
  return out;
}
std::vector<double> numbers(tenon_dtype dtype, const std::vector<uint16_t>& bits) {
  std::vector<double> out;
  for (const uint16_t v : bits)
    out.push_back(dtype == bf16 ? float(BF16::from_bits(v)) : float(F16::from_bits(v)));
  return out;
}

// Outputs of a graph whose inputs and outputs are halves.
std::vector<std::vector<double>> run_halves(
    const Graph& g, tenon_dtype dtype, bool fuse,
    const std::vector<std::pair<std::vector<int64_t>, std::vector<double>>>& inputs,
    const std::vector<std::string>& outputs) {
  const Store store(runtime());
  const Executable executable(runtime(), g, store, {.device = "cpu:0", .fuse = fuse});
  Context context(executable);
  for (size_t k = 0; k < inputs.size(); ++k) {
    const std::vector<uint16_t> bits = halves(dtype, inputs[k].second);
    context.set("x" + std::to_string(k), {dtype, inputs[k].first}, bits.data(), 2 * bits.size());
  }
  context.run();
  std::vector<std::vector<double>> results;
  for (const std::string& name : outputs) {
    const TensorType t = context.output_type(name);
    if (t.dtype == f32) {
      const std::vector<float> values = context.get<float>(name);
      results.emplace_back(values.begin(), values.end());
      continue;
    }
    std::vector<uint16_t> bits(static_cast<size_t>(t.elements()));
    context.get(name, bits.data(), 2 * bits.size());
    results.push_back(numbers(dtype, bits));
  }
  return results;
}

}  // namespace

TEST_SUITE("exec/joined_gradient") {
  TEST_CASE("attention: a row whose keys a number far below zero hides has equal weights") {
    for (const float hidden : {-30.f, -1e3f, -1e4f, -1e9f, -3e38f})
      for (const bool fuse : {false, true}) {
        CAPTURE(hidden);
        CAPTURE(fuse);
        Graph g("hidden");
        const Value q = g.input("q", {f32, {1, 1, 1, 1}}), k = g.input("k", {f32, {1, 1, 2, 1}}),
                    v = g.input("v", {f32, {1, 1, 2, 1}}), mask = g.input("mask", {f32, {2}});
        const Value z = g.add(op::matmul{.trans_b = true, .a = q, .b = k});
        const Value s = g.add(op::binary{.kind = "add", .a = z, .b = mask});
        const Value o = g.add(op::matmul{.a = g.add(op::softmax{.x = s}), .b = v});
        const std::vector<Value> slopes =
            g.gradients(g.add(op::reduce{.kind = "sum", .x = o}), {q, k, v, mask});
        constexpr std::array kNames = {"dq", "dk", "dv", "dmask"};
        for (size_t i = 0; i < 4; ++i) g.output(kNames[i], slopes[i]);
        const Store store(runtime());
        const Executable executable(runtime(), g, store, {.device = "cpu:0", .fuse = fuse});
        CHECK((executable.report().find("attention_backward") != std::string::npos) == fuse);
        Context context(executable);
        context.set("q", {1, 1, 1, 1}, std::vector<float>{1});
        context.set("k", {1, 1, 2, 1}, std::vector<float>{1, 1});
        context.set("v", {1, 1, 2, 1}, std::vector<float>{1, 3});
        context.set("mask", std::vector<float>{hidden, hidden});
        context.run();
        const auto near = [&](const char* name, const std::vector<float>& expected) {
          CAPTURE(std::string(name));
          const std::vector<float> given = context.get<float>(name);
          REQUIRE(given.size() == expected.size());
          for (size_t i = 0; i < given.size(); ++i) CHECK(std::abs(given[i] - expected[i]) < 1e-6f);
        };
        near("dv", {0.5f, 0.5f});
        near("dq", {0});
        near("dk", {-0.5f, 0.5f});
        near("dmask", {-0.5f, 0.5f});
      }
  }

  TEST_CASE("residual norms: the gradient belongs to one sum, where halves round it") {
    for (const tenon_dtype dtype : {bf16, f16})
      for (const bool fuse : {false, true})
        for (const bool rms : {false, true}) {
          CAPTURE(dtype);
          CAPTURE(fuse);
          CAPTURE(rms);
          Graph g("rounded");
          const int64_t cols = rms ? 1 : 2;
          const Value x = g.input("x0", {dtype, {1, cols}}), r = g.input("x1", {dtype, {1, cols}}),
                      first = g.input("x2", {dtype, {1, cols}}),
                      gamma = g.input("x3", {dtype, {cols}});
          const Value sum = g.add(op::binary{.kind = "add", .a = x, .b = r});
          const Value y = rms ? Value(g.add(op::rms_norm{.eps = 0, .x = sum, .gamma = gamma}))
                              : Value(g.add(op::layer_norm{.x = sum, .gamma = gamma}));
          const Value loss = g.add(
              op::reduce{.kind = "sum", .x = g.add(op::binary{.kind = "mul", .a = y, .b = first})});
          g.output("dx", g.gradients(loss, {x})[0]);
          // f16 has more digits: a smaller part of 4 is rounded away.
          const double part = dtype == bf16 ? 1.0 / 128 : 1.0 / 1024;
          const std::vector<int64_t> dims = {1, cols};
          const std::vector<double> fours(static_cast<size_t>(cols), 4.0),
              parts(static_cast<size_t>(cols), part), ones(static_cast<size_t>(cols), 1.0);
          const std::vector<double> dx =
              run_halves(g, dtype, fuse,
                         {{dims, fours},
                          {dims, parts},
                          {dims, rms ? std::vector<double>{1} : std::vector<double>{1, 0}},
                          {{cols}, ones}},
                         {"dx"})[0];
          if (rms) {
            CHECK(std::abs(dx[0]) < 1e-6);
          } else {
            CHECK(std::abs(dx[0] - 158.11) < 0.5);
            CHECK(std::abs(dx[1] + 158.11) < 0.5);
          }
        }
  }

  TEST_CASE("residual norms: statistics that are asked for are those of the rounded sum") {
    for (const bool fuse : {false, true}) {
      CAPTURE(fuse);
      Graph g("statistics");
      const Value x = g.input("x0", {bf16, {1, 2}}), r = g.input("x1", {bf16, {1, 2}});
      const Value sum = g.add(op::binary{.kind = "add", .a = x, .b = r});
      const Node y = g.add(op::layer_norm{.x = sum, .want_mean = true, .want_inv_std = true});
      g.output("y", y[0]), g.output("mean", y[1]), g.output("inv_std", y[2]);
      const auto out = run_halves(g, bf16, fuse, {{{1, 2}, {4, 4}}, {{1, 2}, {1.0 / 128, 0}}},
                                  {"y", "mean", "inv_std"});
      CHECK(out[1][0] == 4);
      CHECK(std::abs(out[2][0] - 316.2278) < 1e-2);
    }
  }
}
