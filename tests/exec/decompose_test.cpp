// SPDX-License-Identifier: Apache-2.0
// Graphs in primitives: what is left in them, and that they compute the same.
#include <algorithm>
#include <regex>
#include <set>

#include "rig.hpp"

using namespace tenon;
using namespace tenon::test;

namespace {

std::set<std::string> primitives() {
  std::set<std::string> names;
  for (uint32_t i = 0; i < tenon_op_count(); ++i) {
    tenon_op_entry e{};
    e.struct_size = sizeof e;
    tenon::detail::check(tenon_op(i, &e));
    if (tenon::detail::string(e.level) == "primitive") names.insert(tenon::detail::string(e.name));
  }
  return names;
}

// The ops of a graph and its functions.
std::set<std::string> ops_of(const Graph& graph) {
  const std::string text = graph.print();
  const std::regex node(R"(= ([a-z_0-9]+)(/\d+)?\()");
  std::set<std::string> ops;
  for (std::sregex_iterator i(text.begin(), text.end(), node), end; i != end; ++i)
    ops.insert((*i)[1]);
  return ops;
}

}  // namespace

TEST_SUITE("exec/decompose") {
  TEST_CASE("a training in primitives: nothing else is left, names stay, losses are the same") {
    const Graph graph = lm::train_graph(small_model(), {.batch = kBatch});
    const Graph flat = graph.decompose();
    const std::set<std::string> known = primitives(), left = ops_of(flat);
    CHECK(known.size() > 20);
    CHECK(left.size() > 8);
    CHECK(std::ranges::includes(known, left));
    CHECK(!std::ranges::includes(known, ops_of(graph)));
    for (const uint32_t space : {TENON_SPACE_INPUT, TENON_SPACE_WEIGHT, TENON_SPACE_STATE}) {
      const auto a = graph.named(space), b = flat.named(space);
      REQUIRE(a.size() == b.size());
      for (size_t i = 0; i < a.size(); ++i) CHECK(a[i].name == b[i].name);
    }
    std::vector<std::string> outputs;
    for (const auto& [name, value] : flat.outputs()) outputs.push_back(name);
    std::vector<std::string> expected;
    for (const auto& [name, value] : graph.outputs()) expected.push_back(name);
    CHECK(outputs == expected);
    CHECK(std::ranges::count(outputs, "loss") == 1);

    Store first(runtime()), second(runtime());
    set_weights(first, small_model());
    set_weights(second, small_model());
    // What is printed is a graph.
    const std::string text = flat.print();
    Graph parsed = Graph::parse(text, "flat");
    CHECK(parsed.print() == text);
    const std::vector<float> losses =
        Trainer({.device = "template:0"}, first, small_model(), std::move(parsed)).steps(3);
    CHECK(furthest(losses, Trainer("template:0", second).steps(3)) < 1e-5);
  }

  TEST_CASE("functions and symbols: bodies are in primitives too, and symbols are numbers") {
    const Graph graph = Graph::parse(R"(graph { symbols N
      input x: f32[N,4]
      (c, ys) = scan([x]) {length=3, body=graph { symbols M input h: f32[M,4]
        s = softmax(h) {axis=1} output "0" = s output "1" = h }}
      output "c" = c })",
                                     "loop");
    const Graph flat = graph.decompose({{"N", 2}});
    CHECK(ops_of(graph).contains("softmax"));
    const std::set<std::string> left = ops_of(flat);
    CHECK(left.contains("scan"));
    CHECK(!left.contains("softmax"));
    CHECK(flat.type(flat.named(TENON_SPACE_INPUT)[0].value).dims == std::vector<int64_t>{2, 4});
    Store store(runtime());
    const auto result = [&](const Graph& g) {
      const Executable executable(runtime(), g, store, {.device = "cpu:0"});
      Context run(executable);
      run.set("x", {2, 4}, noise_of(1, 8));
      run.run();
      return run.get<float>("c");
    };
    CHECK(furthest(result(flat), result(graph)) < 1e-5);
    CHECK_THROWS_WITH_AS(graph.decompose(), doctest::Contains("'N'"), Error);
    CHECK_THROWS_WITH_AS(graph.decompose({{"N", 2}, {"N", 3}}), doctest::Contains("given twice"),
                         Error);
    CHECK_THROWS_WITH_AS(graph.decompose({{"N", 2}, {"K", 3}}), doctest::Contains("'K'"), Error);
    CHECK_THROWS_AS(graph.decompose({{"N", -2}}), Error);
  }
}
