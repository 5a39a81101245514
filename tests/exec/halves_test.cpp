// SPDX-License-Identifier: Apache-2.0
// Half weights beside f32 activations, and what is computed of weights once: the same numbers as
// with casts in the run, on every device, also when weights are set anew or updated elsewhere.
#include <bit>
#include <nlohmann/json.hpp>

#include "rig.hpp"

using namespace tenon;
using namespace tenon::test;

namespace {

using nlohmann::json;

// Numbers that a bf16 holds, and so f16 too: sixteenths below 8.
std::vector<double> numbers(int64_t count, uint64_t key) {
  std::vector<double> out;
  for (int64_t i = 0; i < count; ++i)
    out.push_back(std::round(64 * noise(key, static_cast<uint64_t>(i))) / 16);
  return out;
}
std::vector<uint16_t> halves(tenon_dtype dtype, const std::vector<double>& numbers) {
  std::vector<uint16_t> out;
  for (const double v : numbers) {
    const uint32_t bits = std::bit_cast<uint32_t>(static_cast<float>(v));
    if (dtype == bf16) {
      out.push_back(static_cast<uint16_t>(bits >> 16));
    } else {
      const uint32_t exponent = (bits >> 23 & 0xFF) - 112;
      out.push_back(static_cast<uint16_t>(
          v == 0 ? 0 : (bits >> 16 & 0x8000) | exponent << 10 | (bits >> 13 & 0x3FF)));
    }
  }
  return out;
}
void set(Store& store, const std::string& name, tenon_dtype dtype, std::vector<int64_t> dims,
         const std::vector<double>& values) {
  const std::vector<uint16_t> bits = halves(dtype, values);
  store.set(TENON_SPACE_WEIGHT, name, {dtype, std::move(dims)}, bits.data(), 2 * bits.size());
}

std::vector<float> product(const std::vector<double>& x, const std::vector<double>& w, int64_t rows,
                           int64_t terms, int64_t columns) {
  std::vector<float> y;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < terms; ++k)
        sum += x[static_cast<size_t>(i * terms + k)] * w[static_cast<size_t>(k * columns + j)];
      y.push_back(static_cast<float>(sum));
    }
  return y;
}
std::vector<float> floats(const std::vector<double>& v) { return {v.begin(), v.end()}; }

size_t steps(const Executable& executable, std::string_view label) {
  size_t count = 0;
  const json report = json::parse(executable.report());
  for (const json& s : report["steps"]) count += s["label"].get<std::string>().starts_with(label);
  return count;
}

constexpr const char* kDevices[] = {"cpu:0", "template:0", "adversary:0", "fused:0", "lanes:0"};

}  // namespace

TEST_SUITE("exec/halves") {
  TEST_CASE("product: f32 by halves, with the casts in the graph or without") {
    // All sums are exact in f32, whatever their order.
    for (const auto& [rows, terms, columns] :
         {std::array<int64_t, 3>{1, 40, 70}, {3, 9, 5}, {20, 33, 17}, {70, 64, 130}})
      for (const char* device : kDevices)
        for (const tenon_dtype dtype : {bf16, f16})
          for (const bool cast : {false, true})
            for (const bool fuse : {false, true}) {
              CAPTURE(device);
              CAPTURE(rows);
              CAPTURE(cast);
              CAPTURE(fuse);
              Graph g("halves");
              Store store(runtime());
              const Value x = g.input("x", {f32, {rows, terms}});
              Value w = g.weight("w", {dtype, {terms, columns}}, false);
              if (cast) w = g.add(op::cast{.to = f32, .x = w});
              g.output("y", g.add(op::matmul{.a = x, .b = w}));
              const auto in = numbers(rows * terms, 1), weight = numbers(terms * columns, 2),
                         other = numbers(terms * columns, 3);
              set(store, "w", dtype, {terms, columns}, weight);
              const Executable executable(runtime(), g, store, {.device = device, .fuse = fuse});
              CHECK(steps(executable, "cast") == 0);
              Context run(executable);
              run.set("x", {rows, terms}, floats(in));
              run.run();
              CHECK(run.get<float>("y") == product(in, weight, rows, terms, columns));
              set(store, "w", dtype, {terms, columns}, other);
              run.run();
              CHECK(run.get<float>("y") == product(in, other, rows, terms, columns));
            }
  }

  TEST_CASE("product: gradients have the dtypes of their operands") {
    for (const char* device : {"cpu:0", "template:0"}) {
      Graph g("gradients");
      Store store(runtime());
      const Value x = g.input("x", {f32, {2, 3}}), w = g.weight("w", {bf16, {3, 2}});
      const Value loss = g.add(op::reduce{.kind = "sum", .x = g.add(op::matmul{.a = x, .b = w})});
      const auto d = g.gradients(loss, {x, w});
      g.output("dx", d[0]);
      g.output("dw", g.add(op::cast{.to = f32, .x = d[1]}));
      set(store, "w", bf16, {3, 2}, {1, 2, 3, 4, 5, 6});
      const Executable executable(runtime(), g, store, {.device = device});
      Context run(executable);
      run.set<float>("x", {2, 3}, {1, 2, 3, 4, 5, 6});
      run.run();
      CHECK(run.get<float>("dx") == std::vector<float>{3, 7, 11, 3, 7, 11});
      CHECK(run.get<float>("dw") == std::vector<float>{5, 5, 7, 7, 9, 9});
    }
  }

  TEST_CASE("hoisted: a chain on a weight runs when it is set, and no later") {
    for (const char* device : kDevices) {
      CAPTURE(device);
      const Graph g = Graph::parse(R"(graph {
        input x: f32[4,3] weight w: bf16[3,4] const half: f32[] = {0.5}
        t = transpose(w) {perm=[1,0]} c = cast(t) {to=f32} m = binary(c, half) {kind="mul"}
        y = binary(x, m) {kind="add"} output "y" = y })",
                                   "chain");
      Store store(runtime());
      const auto expected = [](const std::vector<double>& x, const std::vector<double>& w) {
        std::vector<float> y;
        for (size_t i = 0; i < 4; ++i)
          for (size_t j = 0; j < 3; ++j)
            y.push_back(static_cast<float>(x[i * 3 + j] + w[j * 4 + i] / 2));
        return y;
      };
      const auto x = numbers(12, 1), first = numbers(12, 2), second = numbers(12, 3);
      set(store, "w", bf16, {3, 4}, first);
      const Executable executable(runtime(), g, store, {.device = device});
      CHECK(json::parse(executable.report())["steps"].size() == 1);
      const Executable plain(runtime(), g, store, {.device = device, .simplify = false});
      CHECK(steps(plain, "cast") == 1);
      Context run(executable), other(executable), slow(plain);
      for (Context* c : {&run, &other, &slow}) {
        c->set("x", {4, 3}, floats(x));
        for (int i = 0; i < 2; ++i) {
          c->run();
          CHECK(c->get<float>("y") == expected(x, first));
        }
      }
      set(store, "w", bf16, {3, 4}, second);
      for (Context* c : {&run, &other, &slow}) {
        c->run();
        CHECK(c->get<float>("y") == expected(x, second));
      }
    }
  }

  TEST_CASE("hoisted: a weight that another executable trains") {
    for (const char* device : kDevices) {
      CAPTURE(device);
      const Graph read = Graph::parse(R"(graph { input x: f32[8] weight w: bf16[8]
        c = cast(w) {to=f32} y = binary(x, c) {kind="mul"} output "y" = y })",
                                      "read");
      const Graph train = Graph::parse(R"(graph { weight w: bf16[8] const one: bf16[] = {1}
        n = binary(w, one) {kind="add"} update w = n })",
                                       "train");
      Store store(runtime());
      set(store, "w", bf16, {8}, {0, 1, 2, 3, 4, 5, 6, 7});
      const Executable reads(runtime(), read, store, {.device = device}),
          trains(runtime(), train, store, {.device = device});
      Context look(reads), step(trains);
      look.set<float>("x", {8}, std::vector<float>(8, 2));
      for (int i = 0; i < 4; ++i) {
        look.run();
        std::vector<float> expected;
        for (int k = 0; k < 8; ++k) expected.push_back(static_cast<float>(2 * (k + i)));
        CHECK(look.get<float>("y") == expected);
        step.run();
      }
    }
  }
}
