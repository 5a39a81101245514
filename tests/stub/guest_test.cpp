// SPDX-License-Identifier: Apache-2.0
// Kernel texts of another plugin on the cuda plugin: run step by step and captured, and refused.
#include <numeric>

#include "ops.hpp"
#include "rig.hpp"

using namespace tenon;
using namespace tenon::test;

namespace {

RuntimeOptions with_guest() {
  RuntimeOptions o = runtime_options();
  o.plugin_files.push_back(TENON_GUEST_PLUGIN);
  return o;
}

Graph graph_of(const std::string& what, int64_t count = 300) {
  Graph g;
  const Value x = g.input("x", {f32, {count}});
  g.output("y", g.add(guest::text{.what = what, .factor = -3, .x = x}, "scaled"));
  return g;
}

TEST_SUITE("stub/guest") {
  TEST_CASE("guest: a text of another plugin runs, in every execution mode") {
    {
      const Runtime runtime(with_guest());
      const Store store(runtime);
      for (const uint32_t mode :
           {TENON_EXEC_STREAM, TENON_EXEC_GRAPH, TENON_EXEC_EAGER, TENON_EXEC_MULTI_STREAM}) {
        CAPTURE(mode);
        const Executable exe(runtime, graph_of("good"), store,
                             {.device = "cuda:0", .allow_fallback = false, .exec_mode = mode});
        CHECK(has(exe.report(), "\"verdict\":\"native\""));
        Context context(exe);
        std::vector<float> x(300), want(300);
        std::iota(x.begin(), x.end(), -7.0f);
        for (size_t i = 0; i < x.size(); ++i) want[i] = -3 * x[i];
        for (int round = 0; round < 3; ++round) {
          context.set("x", {300}, x);
          context.run();
          CHECK(context.get<float>("y") == want);
        }
      }
      const Executable empty(runtime, graph_of("good", 0), store, {.device = "cuda:0"});
      Context context(empty);
      context.set("x", {0}, std::vector<float>{});
      context.run();
      CHECK(context.get<float>("y").empty());
    }
    check_clean();
  }

  TEST_CASE("guest: a description that is not valid refuses the node, and says why") {
    {
      const Runtime runtime(with_guest());
      const Store store(runtime);
      const std::pair<const char*, const char*> cases[] = {
          {"no threads", "threads: expected 1 to 1024, got 0"},
          {"threads", "threads: expected 1 to 1024, got 1025"},
          {"blocks", "blocks: expected 0 to 2147483647, got 2147483648"},
          {"negative", "a grid of -1 blocks"},
          {"blocks_y", "blocks_y: expected 1 to 65535, got 0"},
          {"blocks_z", "blocks_z: expected 1 to 65535, got 65536"},
          {"scalars", "scalar_count: expected 0 to 64, got 65"},
          {"no text", "it has no text or no entry"},
          {"no entry", "it has no text or no entry"},
          {"shared", "it needs 1073741824 bytes of shared memory"},
          {"refused", "attribute what=refused is not supported"},
      };
      for (const auto& [what, why] : cases) {
        CAPTURE(what);
        tenon_code code = TENON_OK;
        const std::string error = error_of(
            [&] { Executable(runtime, graph_of(what), store, {.device = "cuda:0"}); }, &code);
        CHECK(code == TENON_UNSUPPORTED);
        CHECK(has(error, "no device takes guest:text 'scaled'"));
        CHECK(has(error, std::string("cuda:0: ") +
                             (std::string(what) == "negative" || std::string(what) == "refused"
                                  ? ""
                                  : "kernel text of another plugin: ") +
                             why));
      }
      // The text is compiled later, so what is wrong with its entry is the run's failure.
      const std::pair<const char*, const char*> entries[] = {
          {"entry", "module_function"},
          {"more", "entry guest_scale: expected 6 parameters of 8 bytes"},
          {"fewer", "entry guest_scale: expected 4 parameters of 8 bytes"}};
      for (const auto& [what, why] : entries) {
        const Executable exe(runtime, graph_of(what), store, {.device = "cuda:0"});
        Context context(exe);
        context.set("x", {300}, std::vector<float>(300));
        CHECK(has(error_of([&] { context.run(); }), why));
      }
    }
    check_clean();
  }
}

}  // namespace
