// SPDX-License-Identifier: Apache-2.0
// What a run reads, updates and gives, by value, on every kind of device; and what it says when
// something is wrong.
#include <fstream>
#include <nlohmann/json.hpp>

#include "rig.hpp"

using namespace tenon;
using namespace tenon::test;

namespace {

constexpr const char* kDevices[] = {"cpu:0", "template:0", "adversary:0"};
using Floats = std::vector<float>;

// A graph under construction, then one executable and one context of it on one device.
struct Rig {
  explicit Rig(const char* device) : device(device) {}
  const char* device;
  Graph g{"test"};
  Store store{runtime()};
  std::unique_ptr<Executable> executable;
  std::unique_ptr<Context> context;

  Value add(Value a, Value b, std::string_view name = {}) {
    return g.add(op::binary{.kind = "add", .a = a, .b = b}, name);
  }
  Value times(Value a, float b) {
    return g.add(op::binary{.kind = "mul", .a = a, .b = g.scalar(b)});
  }
  void state(const char* name, const Floats& values) {
    store.set(TENON_SPACE_STATE, name, {static_cast<int64_t>(values.size())}, values);
  }
  Floats state(const char* name) const { return store.get<float>(TENON_SPACE_STATE, name); }
  Context& ready() {
    if (!context) {
      executable =
          std::make_unique<Executable>(runtime(), g, store, ExecutableOptions{.device = device});
      context = std::make_unique<Context>(*executable);
    }
    return *context;
  }
};

}  // namespace

TEST_SUITE("exec/update") {
  TEST_CASE("update: the old value is what readers see, before and after it in the graph") {
    for (const char* device : kDevices) {
      CAPTURE(std::string(device));
      Rig r(device);
      const Value x = r.g.input("x", {f32, {3}}), s = r.g.state("s", {f32, {3}});
      const Value next = r.add(s, x);
      r.g.update(s, next);
      r.g.output("sum", r.add(s, next));              // old + new
      r.g.output("next", next);                       // state that also leaves
      r.g.output("old", s);                           // state as output
      r.g.output("late", r.times(r.times(s, 2), 5));  // reads the old value behind a chain
      r.state("s", {1, 2, 3});
      Context& run = r.ready();
      run.set("x", Floats{10, 20, 30});
      for (int i = 0; i < 3; ++i) {
        const float k = static_cast<float>(i);
        const Floats old = {1 + 10 * k, 2 + 20 * k, 3 + 30 * k},
                     now = {11 + 10 * k, 22 + 20 * k, 33 + 30 * k};
        run.run();
        for (size_t n = 0; n < 3; ++n) {
          CHECK(run.get<float>("sum")[n] == old[n] + now[n]);
          CHECK(run.get<float>("late")[n] == 10 * old[n]);
        }
        CHECK(run.get<float>("old") == old);
        CHECK(run.get<float>("next") == now);
        CHECK(r.state("s") == now);
      }
    }
  }

  TEST_CASE("update: two states are swapped") {
    for (const char* device : kDevices) {
      CAPTURE(std::string(device));
      Rig r(device);
      const Value a = r.g.state("a", {f32, {2}}), b = r.g.state("b", {f32, {2}});
      r.g.update(a, b);
      r.g.update(b, a);
      r.state("a", {1, 2});
      r.state("b", {3, 4});
      r.ready().run();
      CHECK(r.state("a") == Floats{3, 4});
      CHECK(r.state("b") == Floats{1, 2});
      r.ready().run();
      CHECK(r.state("a") == Floats{1, 2});
      CHECK(r.state("b") == Floats{3, 4});
    }
  }

  TEST_CASE("update: each of two states becomes a function of both old ones") {
    for (const char* device : kDevices) {
      CAPTURE(std::string(device));
      Rig r(device);
      const Value a = r.g.state("a", {f32, {2}}), b = r.g.state("b", {f32, {2}});
      r.g.update(a, r.add(a, b));
      r.g.update(b, r.add(r.times(a, 2), b));
      r.state("a", {1, 1});
      r.state("b", {10, 20});
      r.ready().run();
      CHECK(r.state("a") == Floats{11, 21});
      CHECK(r.state("b") == Floats{12, 22});
    }
  }

  TEST_CASE("update: one value goes to two targets, one of which it reads, and leaves too") {
    for (const char* device : kDevices) {
      CAPTURE(std::string(device));
      Rig r(device);
      const Value a = r.g.state("a", {f32, {2}}), b = r.g.state("b", {f32, {2}});
      const Value n = r.add(a, b);
      r.g.update(a, n);
      r.g.update(b, n);
      r.g.output("one", n);
      r.g.output("two", n);
      r.state("a", {1, 2});
      r.state("b", {3, 4});
      r.ready().run();
      r.ready().run();
      CHECK(r.state("a") == Floats{8, 12});
      CHECK(r.state("b") == Floats{8, 12});
      CHECK(r.ready().get<float>("one") == Floats{8, 12});
      CHECK(r.ready().get<float>("two") == Floats{8, 12});
    }
  }

  TEST_CASE("update: a transposed reader of the old value is not overwritten") {
    for (const char* device : kDevices) {
      CAPTURE(std::string(device));
      Rig r(device);
      const Value s = r.g.state("s", {f32, {2, 2}});
      const Value t = r.g.add(op::transpose{.x = s});
      const Value n = r.add(s, t);  // reads one storage in two orders
      r.g.update(s, n);
      r.g.output("t", t);
      r.store.set(TENON_SPACE_STATE, "s", {2, 2}, Floats{1, 2, 3, 4});
      r.ready().run();
      CHECK(r.state("s") == Floats{2, 5, 5, 8});
      CHECK(r.ready().get<float>("t") == Floats{1, 3, 2, 4});
    }
  }

  TEST_CASE("update: an input, a constant and a slice become state") {
    for (const char* device : kDevices) {
      CAPTURE(std::string(device));
      Rig r(device);
      const Value x = r.g.input("x", {f32, {4}});
      r.g.update(r.g.state("a", {f32, {4}}), x);
      r.g.update(r.g.state("b", {f32, {2}}), r.g.constant<float>({2}, {5, 6}));
      r.g.update(r.g.state("c", {f32, {2}}), r.g.add(op::narrow{.start = {1}, .len = {2}, .x = x}));
      r.store.add_missing(r.g);
      r.ready().set("x", Floats{1, 2, 3, 4});
      r.ready().run();
      CHECK(r.state("a") == Floats{1, 2, 3, 4});
      CHECK(r.state("b") == Floats{5, 6});
      CHECK(r.state("c") == Floats{2, 3});
    }
  }
}

TEST_SUITE("exec/value") {
  TEST_CASE("outputs: an intermediate leaves, and outputs survive a second context") {
    for (const char* device : kDevices) {
      CAPTURE(std::string(device));
      Rig r(device);
      const Value x = r.g.input("x", {f32, {4}});
      const Value h = r.g.add(op::unary{.kind = "neg", .x = x}, "hidden");
      r.g.output("h", h);
      r.g.output("y", r.g.add(op::reduce{.kind = "sum", .x = r.times(h, 3)}));
      Context& one = r.ready();
      Context two(*r.executable);
      one.set("x", Floats{1, 2, 3, 4});
      two.set("x", Floats{5, 6, 7, 8});
      one.run();
      two.run();
      CHECK(one.get<float>("h") == Floats{-1, -2, -3, -4});
      CHECK(two.get<float>("h") == Floats{-5, -6, -7, -8});
      CHECK(one.get<float>("y")[0] == -30);
      CHECK(two.get<float>("y")[0] == -78);
    }
  }

  TEST_CASE("outputs: asked for without a run that ended well, they are refused by name") {
    Rig r("template:0");
    const Value x = r.g.input("x", {f32, {3}});
    r.g.output("y", r.add(x, x));
    Context& run = r.ready();
    const auto refused = [&] {
      for (const auto& ask : {std::function<void()>([&] { run.output_type("y"); }),
                              std::function<void()>([&] { run.get<float>("y"); })}) {
        tenon_code code = TENON_OK;
        CHECK(says(error_of(ask, &code), {"output 'y'", "no run of this context has ended well"}));
        CHECK(code == TENON_INVALID_ARGUMENT);
      }
    };
    refused();
    error_of([&] { run.run(); });  // its input is not set
    refused();
    run.set("x", Floats{1, 2, 3});
    run.run();
    CHECK(run.output_type("y") == TensorType(f32, {3}));
    CHECK(run.get<float>("y") == Floats{2, 4, 6});
  }

  // The variance overflows. So did the distances from the first value, and the mean became -inf.
  TEST_CASE("layer_norm: the mean of numbers whose distances overflow is finite") {
    Rig r("cpu:0");
    const Value x = r.g.add(op::reshape{.shape = {2, 4}, .x = r.g.input("x", {f32, {8}})});
    const Node y = r.g.add(op::layer_norm{.x = x, .want_mean = true});
    r.g.output("y", y[0]);
    r.g.output("mean", y[1]);
    Context& run = r.ready();
    run.set("x", Floats{2.5e38F, -2e38F, 1e38F, -1e38F, -3e38F, 3e38F, 0, 1e38F});
    run.run();
    for (const float v : run.get<float>("y")) CHECK(v == 0);
    CHECK(run.get<float>("mean")[0] == doctest::Approx(1.25e37).epsilon(1e-6));
    CHECK(run.get<float>("mean")[1] == doctest::Approx(2.5e37).epsilon(1e-6));
  }

  TEST_CASE("tensors: scalars and empty ones pass") {
    for (const char* device : kDevices) {
      CAPTURE(std::string(device));
      Rig r(device);
      const Value x = r.g.input("x", {f32, {}}), none = r.g.input("none", {f32, {2, 0, 3}});
      r.g.output("scalar", r.times(x, 2));
      r.g.output("empty", r.times(none, 2));
      r.g.output("sum", r.g.add(op::reduce{.kind = "sum", .axes = {1}, .x = none}));
      r.g.output("same", none);
      const Value s = r.g.state("s", {f32, {0}});
      r.g.update(s, r.times(s, 2));
      r.store.add_missing(r.g);
      Context& run = r.ready();
      run.set("x", 4.0f);
      run.set("none", {2, 0, 3}, Floats{});
      run.run();
      CHECK(run.get_scalar<float>("scalar") == 8);
      CHECK(run.output_type("empty") == TensorType(f32, {2, 0, 3}));
      CHECK(run.get<float>("empty").empty());
      CHECK(run.get<float>("same").empty());
      CHECK(run.get<float>("sum") == Floats(6, 0.0f));
      CHECK(r.state("s").empty());
    }
  }

  TEST_CASE("weights: what is set between two runs counts in the second") {
    for (const char* device : kDevices) {
      CAPTURE(std::string(device));
      Rig r(device);
      const Value w = r.g.weight("w", {f32, {2}});
      r.g.output("y", r.times(w, 2));
      r.store.set(TENON_SPACE_WEIGHT, "w", {2}, Floats{1, 2});
      r.ready().run();
      CHECK(r.ready().get<float>("y") == Floats{2, 4});
      r.store.set(TENON_SPACE_WEIGHT, "w", {2}, Floats{3, 4});
      CHECK(r.ready().get<float>("y") == Floats{2, 4});
      r.ready().run();
      CHECK(r.ready().get<float>("y") == Floats{6, 8});
    }
  }

  TEST_CASE("symbols: each binding has its own plan, in one arena, in any order") {
    for (const char* device : kDevices) {
      CAPTURE(std::string(device));
      Rig r(device);
      const int64_t n = r.g.symbol("n"), m = r.g.symbol("m");
      const Value x = r.g.input("x", {f32, {n, m}}), y = r.g.input("y", {f32, {m}});
      const Value twice = r.times(r.add(x, y), 2);
      r.g.output("z", r.g.add(op::reduce{.kind = "sum", .axes = {1}, .x = r.add(twice, x)}));
      Context& run = r.ready();
      const std::pair<int64_t, int64_t> bindings[] = {{200, 300}, {2, 3},     {200, 300}, {3, 2},
                                                      {1, 1},     {200, 301}, {2, 3}};
      for (const auto& [rows, columns] : bindings) {
        CAPTURE(rows);
        CAPTURE(columns);
        Floats a(static_cast<size_t>(rows * columns)), b(static_cast<size_t>(columns));
        for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i % 17);
        for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(i % 5);
        run.set("x", {rows, columns}, a);
        run.set("y", {columns}, b);
        run.run();
        const Floats z = run.get<float>("z");
        REQUIRE(z.size() == static_cast<size_t>(rows));
        for (size_t i = 0; i < z.size(); ++i) {
          float sum = 0;
          for (size_t k = 0; k < b.size(); ++k) sum += 3 * a[i * b.size() + k] + 2 * b[k];
          CHECK(z[i] == sum);
        }
      }
      CHECK(says(r.executable->report({{"n", 2}, {"m", 3}}), {"\"memory\""}));
      run.set("x", {2, 3}, Floats(6, 1.0f));
      run.set("y", {4}, Floats(4, 1.0f));
      CHECK(says(error_of([&] { run.run(); }), {"m", "3", "4"}));
      CHECK(says(error_of([&] { run.set("x", {6}, Floats(6, 1.0f)); }), {"'x'"}));
      CHECK(says(error_of([&] { r.executable->report({{"n", 2}}); }), {"'m'"}));
      CHECK(says(error_of([&] { r.executable->report({{"n", 2}, {"m", 3}, {"k", 1}}); }), {"'k'"}));
    }
  }

  TEST_CASE("async: several runs in flight, each with its own answer") {
    for (const char* device : kDevices) {
      CAPTURE(std::string(device));
      Rig r(device);
      const Value x = r.g.input("x", {f32, {1000}}), count = r.g.state("count", {f32, {1}});
      r.g.output("y", r.times(r.add(x, x), 2));
      const Value next = r.add(count, r.g.constant<float>({1}, {1}));
      r.g.update(count, next);
      r.g.output("turn", next);
      r.state("count", {0});
      r.ready();
      std::vector<Context> runs;
      for (int i = 0; i < 8; ++i) runs.emplace_back(*r.executable);
      for (int round = 0; round < 5; ++round) {
        for (int i = 0; i < 8; ++i) {
          runs[static_cast<size_t>(i)].set("x", Floats(1000, static_cast<float>(i + round)));
          runs[static_cast<size_t>(i)].run_async();
        }
        for (int i = 7; i >= 0; --i) {
          Context& run = runs[static_cast<size_t>(i)];
          run.wait();
          CHECK(run.done());
          CHECK(run.get<float>("y") == Floats(1000, 4 * static_cast<float>(i + round)));
          CHECK(run.get<float>("turn")[0] ==
                static_cast<float>(8 * round + i + 1));  // in the order of the calls
        }
      }
      CHECK(r.state("count") == Floats{40});
    }
  }

  TEST_CASE("async: a context, its executable and its store may go while a run is under way") {
    for (const char* device : kDevices) {
      for (int i = 0; i < 5; ++i) {
        Rig r(device);
        const Value s = r.g.state("s", {f32, {5000}});
        r.g.update(s, r.times(r.add(s, s), 2));
        r.store.add_missing(r.g);
        r.ready().run_async();
        if (i % 2) r.executable = nullptr;
      }
    }
  }
}

TEST_SUITE("exec/failure") {
  TEST_CASE(
      "failure: a bad index names node, run and index; what it would have updated is undefined "
      "until set") {
    for (const char* device : kDevices) {
      CAPTURE(std::string(device));
      Rig r(device);
      const Value count = r.g.state("count", {f32, {2}}), other = r.g.state("other", {f32, {2}});
      const Value data = r.g.input("data", {f32, {5, 2}}), index = r.g.input("index", {i64, {3}});
      const Value next = r.add(count, r.g.constant<float>({2}, {1, 1}), "count.next");
      const Value rows = r.g.add(op::gather{.data = data, .indices = index}, "pick.rows");
      const Value sum = r.g.add(op::reduce{.kind = "sum", .axes = {0}, .x = rows});
      r.g.output("y", sum);
      r.g.output("z", r.add(other, sum));
      r.g.update(count, next);
      r.state("count", {0, 0});
      r.state("other", {1, 1});
      Context& run = r.ready();
      run.set("data", {5, 2}, Floats{1, 1, 2, 2, 3, 3, 4, 4, 5, 5});
      run.set("index", std::vector<int64_t>{0, 1, 4});
      run.run();
      CHECK(run.get<float>("y") == Floats{8, 8});
      run.set("index", std::vector<int64_t>{0, 1, 5});
      tenon_code code = TENON_OK;
      CHECK(says(error_of([&] { run.run(); }, &code), {"gather", "pick.rows", "run ", "5"}));
      CHECK(code == TENON_INDEX_OUT_OF_RANGE);
      CHECK(says(error_of([&] { run.get<float>("y"); }), {"'y'"}));
      // Undefined, by name; what was only read is not.
      CHECK(says(error_of([&] { r.state("count"); }, &code), {"count", "undefined", "pick.rows"}));
      CHECK(code == TENON_UNDEFINED_STATE);
      CHECK(r.state("other") == Floats{1, 1});
      run.set("index", std::vector<int64_t>{0, 1, 4});
      CHECK(says(error_of([&] { run.run(); }), {"count", "undefined"}));
      CHECK(says(error_of([&] { run.run(); }), {"count", "undefined", "pick.rows"}));
      r.state("count", {7, 8});
      run.run();
      CHECK(run.get<float>("y") == Floats{8, 8});
      CHECK(r.state("count") == Floats{8, 9});
      // Asynchronously: the wait tells, once.
      run.set("index", std::vector<int64_t>{-9, 1, 4});
      run.run_async();
      CHECK(says(error_of([&] { run.wait(); }, &code), {"pick.rows"}));
      CHECK(code == TENON_INDEX_OUT_OF_RANGE);
      CHECK_NOTHROW(run.wait());
      // What the messages say, as data.
      r.state("count", {7, 8});
      run.set("index", std::vector<int64_t>{0, 1, 5});
      try {
        run.run();
        FAIL_CHECK("not refused");
      } catch (const Error& e) {
        const FailurePlace& at = e.place();
        CHECK(at.node == "pick.rows");
        CHECK(at.op == "gather");
        CHECK(at.device == device);
        CHECK(at.run_id > 0);
        CHECK(at.index == 2);
        CHECK(!at.retryable);
        const nlohmann::json report = nlohmann::json::parse(r.executable->report());
        REQUIRE(at.step < report["steps"].size());
        CHECK(report["steps"][at.step]["node"] == "pick.rows");
      }
    }
  }

  TEST_CASE("inputs: missing, extra, misspelt, of wrong shape or dtype are named") {
    for (const char* device : {"cpu:0", "adversary:0"}) {
      CAPTURE(std::string(device));
      Rig r(device);
      const Value x = r.g.input("tokens", {f32, {2, 3}}), y = r.g.input("mask", {f32, {3}});
      r.g.output("z", r.add(x, y));
      Context& run = r.ready();
      CHECK(says(error_of([&] { run.run(); }), {"'tokens'", "'mask'"}));
      run.set("tokens", {2, 3}, Floats(6, 1.0f));
      CHECK(says(error_of([&] { run.run(); }), {"'mask'"}));
      CHECK(says(error_of([&] { run.set("maks", Floats(3, 1.0f)); }),
                 {"'maks'", "'mask'", "'tokens'"}));
      tenon_code code = TENON_OK;
      CHECK(says(error_of([&] { run.set("mask", Floats(4, 1.0f)); }, &code),
                 {"'mask'", "f32[3]", "f32[4]"}));
      CHECK(code == TENON_SHAPE_MISMATCH);
      CHECK(says(error_of([&] { run.set("mask", std::vector<int32_t>(3, 1)); }, &code),
                 {"'mask'", "f32", "i32"}));
      CHECK(code == TENON_DTYPE_MISMATCH);
      CHECK(says(error_of([&] { run.set("mask", {f32, {3}}, "", 0); }), {"'mask'", "12"}));
      run.set("mask", Floats(3, 2.0f));
      run.run();
      CHECK(run.get<float>("z") == Floats(6, 3.0f));
      CHECK(says(error_of([&] { run.get<float>("Z"); }), {"'Z'"}));
      float one = 0;
      CHECK(says(error_of([&] { run.get("z", &one, 4); }), {"'z'", "24", "4"}));
    }
  }

  TEST_CASE("inputs: one that no output needs may be left out") {
    const Graph graph = Graph::parse(R"(graph {
      symbols N, M
      input x: f32[N]
      input idle: f32[N]
      input far: f32[M]
      dead = unary(idle) {kind="exp"}
      y = unary(x) {kind="neg"}
      output "y" = y
    })",
                                     "idle");
    const auto run = [&](bool simplify, bool idle, bool far) -> std::string {
      Store store(runtime());
      const Executable executable(runtime(), graph, store,
                                  {.device = "cpu:0", .simplify = simplify});
      Context context(executable);
      try {
        for (int i = 0; i < 2; ++i) {  // and again, with other sizes
          const std::vector<float> x(static_cast<size_t>(3 + i), 2);
          context.set("x", {3 + i}, x);
          if (idle) context.set("idle", {3 + i}, x);
          if (far) context.set("far", {2}, std::vector<float>(2));
          context.run();
          CHECK(context.get<float>("y") == std::vector<float>(x.size(), -2));
        }
      } catch (const Error& e) {
        return e.what();
      }
      return {};
    };
    CHECK(run(true, true, true) == "");
    CHECK(run(true, false, true) == "");
    // It alone gives a symbol its number.
    CHECK(run(true, false, false).find("'M'") != std::string::npos);
    // Not simplified, the graph is run as it is.
    CHECK(run(false, false, true).find("input 'idle' is not set") != std::string::npos);
    CHECK(run(false, true, true) == "");
    // What comes later is no surprise for a context that has run without it.
    Store store(runtime());
    const Executable executable(runtime(), graph, store, {.device = "cpu:0"});
    Context context(executable);
    context.set("x", {3}, std::vector<float>(3, 1));
    context.set("far", {1}, std::vector<float>(1));
    context.run();
    context.set("idle", {3}, std::vector<float>(3, 5));
    context.run();
    context.set("idle", {4}, std::vector<float>(4, 5));
    CHECK_THROWS_WITH_AS(context.run(), doctest::Contains("N"), Error);
  }

  TEST_CASE("weights: missing, of wrong dtype or shape are named") {
    for (const char* device : {"cpu:0", "adversary:0"}) {
      CAPTURE(std::string(device));
      Rig r(device);
      r.g.output("y", r.times(r.g.weight("layer.w", {f32, {2}}), 2));
      CHECK(says(error_of([&] { r.ready().run(); }), {"weight", "'layer.w'"}));
      r.store.set(TENON_SPACE_WEIGHT, "layer.w", {2}, std::vector<double>{1, 2});
      CHECK(says(error_of([&] { r.ready().run(); }), {"'layer.w'", "f32[2]", "f64[2]"}));
      r.store.set(TENON_SPACE_WEIGHT, "layer.w", {3}, Floats{1, 2, 3});
      CHECK(says(error_of([&] { r.ready().run(); }), {"'layer.w'", "f32[2]", "f32[3]"}));
      r.store.set(TENON_SPACE_WEIGHT, "layer.w", {2}, Floats{1, 2});
      CHECK_NOTHROW(r.ready().run());
      CHECK(r.ready().get<float>("y") == Floats{2, 4});
    }
  }

  TEST_CASE("devices: an unknown one is named") {
    Rig r("quantum:3");
    r.g.output("y", r.times(r.g.input("x", {f32, {1}}), 2));
    CHECK(says(error_of([&] { r.ready(); }), {"quantum:3"}));
  }

  // The sanitizers keep freed memory for a while.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  TEST_CASE("symbols: growing sizes keep one working memory, that of the largest") {
    const auto resident = [] {
      std::ifstream statm("/proc/self/statm");
      int64_t pages = 0;
      statm >> pages >> pages;
      return pages * 4096;
    };
    Graph g("grows");
    const Value x = g.input("x", {f32, {g.symbol("n")}});
    const auto reversed = [&](Value v) {  // cannot be written over its operand
      return Value(g.add(op::cumsum{.reverse = true, .x = v}));
    };
    g.output("y", g.add(op::reduce{.kind = "max", .x = reversed(reversed(reversed(x)))}));
    const Store store(runtime());
    const Executable executable(runtime(), g, store, {.device = "cpu:0"});
    Context run(executable);
    const int64_t before = resident();
    constexpr int64_t kLargest = 4 << 20;
    for (int64_t k = 1; k <= 8; ++k) {
      const int64_t n = kLargest / 8 * k;
      run.set("x", {n}, Floats(static_cast<size_t>(n), 0.0f));
      run.run();
      CHECK(run.get_scalar<float>("y") == 0);
    }
    // Inputs stay per size: 1/8 to 8/8 of the largest, with the host's copy. The arena, twice the
    // largest, stands once.
    const int64_t inputs = 4 * (kLargest / 8 * 36 + kLargest), arena = 4 * 2 * kLargest;
    CHECK(resident() - before < inputs + 2 * arena);
  }
#endif
}
