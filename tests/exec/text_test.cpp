// SPDX-License-Identifier: Apache-2.0
// The text form's example in core/ir/README.md is what its words say: it parses, comes back, runs
// and learns.
#include <fstream>
#include <iterator>
#include <string>

#include "rig.hpp"

using namespace tenon;
using namespace tenon::test;

namespace {

std::string example() {
  std::ifstream in(TENON_IR_README);
  const std::string all{std::istreambuf_iterator<char>(in), {}};
  const std::string begin = "```tng\n";
  const size_t from = all.find(begin), to = all.find("```", from + begin.size());
  REQUIRE(from != std::string::npos);
  REQUIRE(to != std::string::npos);
  CHECK(all.find(begin, to) == std::string::npos);
  return all.substr(from + begin.size(), to - from - begin.size());
}

}  // namespace

TEST_SUITE("exec/text") {
  TEST_CASE("example: it parses, and what is printed parses to the same") {
    const std::string printed = Graph::parse(example(), "README.md").print();
    CHECK(Graph::parse(printed, "again").print() == printed);
    for (const std::string part :
         {"symbols N", "weight w: f32[3] trainable", "(flat, _, steep) = layer_norm(x, _, w)",
          "\"squared error\"", "update seen = more"})
      CHECK_MESSAGE(printed.find(part) != std::string::npos, part, " in\n", printed);
  }

  TEST_CASE("example: it runs with two lengths, and each run is a step that lessens the loss") {
    Graph g = Graph::parse(example(), "README.md");
    Store store(runtime());
    store.set<float>(TENON_SPACE_WEIGHT, "w", {3}, {1, 0, -1});
    store.add_missing(g);
    const Executable step(runtime(), g, store, {.device = "cpu:0"});
    Context run(step);
    run.set<float>("x", {2, 3}, {1, 2, 3, 0, 1, 0});
    run.set<float>("t", {2}, {0, 1});
    run.run();
    // y = (-2, 0), its errors (-2, -1): half of d loss / d w is half of (-2 x0 - x1).
    CHECK(run.get_scalar<float>("loss") == doctest::Approx(2.5));
    const std::vector<float> steep = run.get<float>("steep");
    REQUIRE(steep.size() == 2);
    CHECK(steep[0] == doctest::Approx(1 / std::sqrt(2.0 / 3 + 1e-5)));
    CHECK(steep[1] == doctest::Approx(1 / std::sqrt(2.0 / 9 + 1e-5)));
    CHECK(store.get<float>(TENON_SPACE_WEIGHT, "w") == std::vector<float>{2, 2.5, 2});
    CHECK(store.get<int64_t>(TENON_SPACE_STATE, "seen") == std::vector<int64_t>{1});
    store.set<float>(TENON_SPACE_WEIGHT, "w", {3}, {1, 0, -1});
    run.set<float>("x", {3, 3}, {1, 0, 0, 0, 1, 0, 0, 0, 1});
    run.set<float>("t", {3}, {0, 0, 0});
    float last = INFINITY;
    for (int i = 0; i < 5; ++i) {
      run.run();
      const float loss = run.get_scalar<float>("loss");
      CHECK(loss < last);
      last = loss;
    }
    CHECK(store.get<int64_t>(TENON_SPACE_STATE, "seen") == std::vector<int64_t>{6});
  }
}
