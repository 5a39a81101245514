// SPDX-License-Identifier: Apache-2.0
// Runs that are cancelled, and callbacks at their end.
#include <atomic>
#include <chrono>
#include <future>
#include <nlohmann/json.hpp>
#include <optional>

#include "rig.hpp"

using namespace tenon;
using namespace tenon::test;
using namespace std::chrono_literals;

namespace {

using Floats = std::vector<float>;

const char* const kDevices[] = {"cpu:0", "template:0", "adversary:0"};

// y = trips without end from the value x: it grows, and the condition never fails.
std::string endless(const std::string& declaration, const std::string& more = "") {
  return "graph {\n  " + declaration + R"(
  (y) = while([x]) {cond=graph {
    input x: f32[4]
    const never: f32[] = {-1e30}
    r = reduce(x) {kind="max", axes=[0]}
    go = compare(r, never) {kind="gt"}
    output "go" = go
  }, body=graph {
    input x: f32[4]
    const one: f32[] = {1}
    y = binary(x, one) {kind="add"}
    output "y" = y
  }}
  )" + more +
         "\n  output \"y\" = y\n}";
}
std::string endless_input() { return endless("input x: f32[4]"); }

// So many steps that cannot be joined that a run takes a while: products, one after the other.
std::string chain(int products) {
  std::string text = "graph {\n input x: f32[160,160]\n y0 = softmax(x)\n";
  for (int k = 0; k < products; ++k)
    text += " y" + std::to_string(k + 1) + " = matmul(y" + std::to_string(k) + ", x)\n";
  return text + " output \"y\" = y" + std::to_string(products) + "\n}";
}

struct Subject {
  Store store{runtime()};
  Executable executable;
  Context context;
  Subject(const std::string& device, const std::string& text)
      : Subject(ExecutableOptions{.device = device}, text) {}
  Subject(const ExecutableOptions& options, const std::string& text)
      : executable(runtime(), Graph::parse(text, "cancel"), store, options), context(executable) {}
};

// The failure of the run in flight.
tenon_code end_of(Context& context) {
  tenon_code code = TENON_OK;
  error_of([&] { context.wait(); }, &code);
  return code;
}

// Cancels runs of a chain at various times, until three have ended early. Each run ends whole or
// cancelled, and a run after them is as before.
void cancel_runs(Subject& s) {
  const Floats x(160 * 160, 1.0f / 160);
  s.context.set("x", {160, 160}, x);
  s.context.run();
  const Floats expected = s.context.get<float>("y");
  int cancelled = 0;
  for (int k = 0; k < 40 && cancelled < 3; ++k) {
    s.context.run_async();
    std::this_thread::sleep_for(std::chrono::microseconds(500 + 200 * k));
    s.context.cancel();
    const tenon_code code = end_of(s.context);
    CHECK((code == TENON_OK || code == TENON_CANCELLED));
    cancelled += code == TENON_CANCELLED;
    CHECK((code == TENON_OK) == (error_of([&] { s.context.get<float>("y"); }) == "no error"));
  }
  CHECK(cancelled == 3);
  s.context.run();
  CHECK(s.context.get<float>("y") == expected);
}

}  // namespace

TEST_CASE("cancel: a loop without end, from another thread") {
  for (const std::string device : kDevices) {
    CAPTURE(device);
    Subject s(device, endless_input());
    s.context.set("x", {4}, Floats{1, 2, 3, 4});
    for (int k = 0; k < 3; ++k) {
      s.context.run_async();
      std::this_thread::sleep_for(5ms);
      CHECK_FALSE(s.context.done());
      s.context.cancel();
      CHECK(end_of(s.context) == TENON_CANCELLED);
      // A run that waits in its caller's thread.
      std::thread other([&] {
        std::this_thread::sleep_for(10ms);
        s.context.cancel();
      });
      tenon_code code = TENON_OK;
      CHECK(says(error_of([&] { s.context.run(); }, &code), {"cancelled"}));
      CHECK(code == TENON_CANCELLED);
      other.join();
    }
  }
}

TEST_CASE("cancel: between the steps of one region") {
  for (const std::string device : {"cpu:0", "template:0"}) {
    CAPTURE(device);
    Subject s(device, chain(device == "cpu:0" ? 600 : 40));
    cancel_runs(s);
  }
}

TEST_CASE("cancel: between regions of two devices") {
  // Every product is on the other device than the one before it.
  Subject s(
      {.device = "cpu:0,template:0", .pins = {{"*[02468]", "cpu:0"}, {"*[13579]", "template:0"}}},
      chain(40));
  CHECK(nlohmann::json::parse(s.executable.report())["regions"].size() > 20);
  cancel_runs(s);
}

TEST_CASE("inputs that are set while a run is in flight are those of the next run") {
  const std::string text = R"(graph {
  input x: f32[4]
  input most: f32[]
  const two: f32[] = {2}
  y = binary(x, two) {kind="mul"}
  (last, _) = while([x, most]) {cond=graph {
    input x: f32[4]
    input most: f32[]
    r = reduce(x) {kind="max", axes=[0]}
    go = compare(r, most) {kind="lt"}
    output "go" = go
  }, body=graph {
    input x: f32[4]
    input most: f32[]
    const one: f32[] = {1}
    y = binary(x, one) {kind="add"}
    output "x" = y
    output "most" = most
  }}
  output "y" = y
  output "last" = last
})";
  for (const std::string device : kDevices) {
    CAPTURE(device);
    Subject s(device, text);
    s.context.set("x", {4}, Floats{1, 2, 3, 4});
    s.context.set("most", std::numeric_limits<float>::infinity());
    s.context.run_async();  // for ever
    CHECK_FALSE(s.context.done());
    s.context.set("x", {4}, Floats{9, 9, 9, 9});
    s.context.set("x", {4}, Floats{5, 6, 7, 8});  // the last one holds
    s.context.set("most", 10.f);
    CHECK(says(error_of([&] { s.context.set("x", {3}, Floats(3)); }), {"input 'x'", "f32[4]"}));
    CHECK(says(error_of([&] { s.context.set("z", {4}, Floats(4)); }), {"'z'"}));
    Floats memory = {1, 2, 3, 4};
    CHECK(
        says(error_of([&] { s.context.bind("x", {4}, std::span<float>(memory)); }), {"under way"}));
    CHECK_FALSE(s.context.done());
    s.context.cancel();
    CHECK(end_of(s.context) == TENON_CANCELLED);
    s.context.run();
    CHECK(s.context.get<float>("last") == Floats{7, 8, 9, 10});
    // What is set or bound after the run comes after what was set during it.
    s.context.set("most", std::numeric_limits<float>::infinity());
    s.context.run_async();
    s.context.set("x", {4}, Floats{0, 0, 0, 0});
    s.context.set("most", 3.f);
    s.context.cancel();
    CHECK(end_of(s.context) == TENON_CANCELLED);
    s.context.bind("x", {4}, std::span<float>(memory));
    s.context.set("most", 5.f);
    s.context.run();
    CHECK(s.context.get<float>("last") == Floats{2, 3, 4, 5});
    s.context.unbind("x");
    // Batch after batch: each is prepared while the one before may still run.
    s.context.set("most", 6.f);
    s.context.set("x", {4}, Floats(4, 0));
    for (int k = 0; k < 200; ++k) {
      s.context.run_async();
      s.context.set("x", {4}, Floats(4, static_cast<float>(k + 1)));
      s.context.wait();
      CHECK(s.context.get<float>("y")[3] == static_cast<float>(2 * k));
    }
  }
}

TEST_CASE("cancel: without a run in flight nothing happens") {
  Subject s("cpu:0", chain(2));
  s.context.cancel();
  s.context.set("x", {160, 160}, Floats(160 * 160, 1));
  s.context.run();
  s.context.cancel();
  s.context.run_async();
  CHECK(end_of(s.context) == TENON_OK);
  tenon_context_cancel(nullptr);
}

TEST_CASE("cancel: what a run would have updated is undefined; what had not begun, is not") {
  const std::string text = endless("state x: f32[4]", "update x = y");
  Store store(runtime());
  store.set(TENON_SPACE_STATE, "x", {4}, Floats{1, 2, 3, 4});
  const Executable forever(runtime(), Graph::parse(text, "endless"), store, {.device = "cpu:0"});
  const Executable next(runtime(),
                        Graph::parse(R"(graph {
    state x: f32[4]
    y = unary(x) {kind="neg"}
    update x = y
    output "y" = y
  })",
                                     "next"),
                        store, {.device = "cpu:0"});
  Context first(forever), second(next);
  first.run_async();
  second.run_async();  // behind the first
  std::this_thread::sleep_for(5ms);
  second.cancel();
  first.cancel();
  CHECK(end_of(first) == TENON_CANCELLED);
  CHECK(end_of(second) == TENON_CANCELLED);
  tenon_code code = TENON_OK;
  CHECK(says(error_of([&] { second.run(); }, &code), {"'x'", "cancelled"}));
  CHECK(code == TENON_UNDEFINED_STATE);
  store.set(TENON_SPACE_STATE, "x", {4}, Floats{1, 2, 3, 4});
  second.run();
  CHECK(second.get<float>("y") == Floats{-1, -2, -3, -4});
  // Cancelled in line, behind a run that ends well: x is what that run left.
  const Executable slow(runtime(),
                        Graph::parse(R"(graph {
    state x: f32[4]
    input n: i64[]
    const zero: i64[] = {0}
    (y, _) = while([x, zero], [n]) {cond=graph {
      input x: f32[4]
      input k: i64[]
      input n: i64[]
      go = compare(k, n) {kind="lt"}
      output "go" = go
    }, body=graph {
      input x: f32[4]
      input k: i64[]
      input n: i64[]
      const one: i64[] = {1}
      y = unary(x) {kind="neg"}
      m = binary(k, one) {kind="add"}
      output "y" = y
      output "k" = m
    }}
    update x = y
  })",
                                     "slow"),
                        store, {.device = "cpu:0"});
  Context before(slow);
  before.set("n", int64_t{40000});
  before.run_async();
  second.run_async();
  second.cancel();
  CHECK(end_of(second) == TENON_CANCELLED);
  CHECK(end_of(before) == TENON_OK);
  second.run();
  CHECK(second.get<float>("y") == Floats{1, 2, 3, 4});
}

TEST_CASE("on_end: once per asynchronous run, before anybody else learns of the end") {
  for (const std::string device : kDevices) {
    CAPTURE(device);
    Subject s(device, chain(3));
    s.context.set("x", {160, 160}, Floats(160 * 160, 1.0f / 160));
    std::atomic<int> calls{0};
    std::atomic<tenon_code> last{TENON_INTERNAL};
    s.context.on_end([&](tenon_code code) {
      last = code;
      ++calls;
    });
    for (int k = 1; k <= 50; ++k) {
      s.context.run_async();
      if (k % 3 == 0)
        while (!s.context.done()) std::this_thread::yield();
      s.context.wait();
      REQUIRE(calls == k);
      REQUIRE(last == TENON_OK);
    }
    s.context.run();  // not asynchronous
    CHECK(calls == 50);
    // Without a wait: the callback tells.
    std::promise<tenon_code> ended;
    s.context.on_end([&](tenon_code code) { ended.set_value(code); });
    s.context.run_async();
    CHECK(ended.get_future().get() == TENON_OK);
    s.context.wait();
    s.context.on_end({});
    s.context.run_async();
    s.context.wait();
    CHECK(calls == 50);
  }
}

TEST_CASE("on_end: failures have their code") {
  for (const std::string device : kDevices) {
    CAPTURE(device);
    Subject s(device, R"(graph {
      input x: f32[4]
      input i: i32[1]
      y = gather(x, i)
      output "y" = y
    })");
    s.context.set("x", {4}, Floats(4, 1));
    std::atomic<tenon_code> last{TENON_INTERNAL};
    s.context.on_end([&](tenon_code code) { last = code; });
    for (const int32_t index : {7, 3}) {
      s.context.set("i", {1}, std::vector<int32_t>{index});
      s.context.run_async();
      CHECK(end_of(s.context) == (index == 7 ? TENON_INDEX_OUT_OF_RANGE : TENON_OK));
      CHECK(last == (index == 7 ? TENON_INDEX_OUT_OF_RANGE : TENON_OK));
    }
    Subject loop(device, endless_input());
    loop.context.set("x", {4}, Floats(4, 1));
    loop.context.on_end([&](tenon_code code) { last = code; });
    loop.context.run_async();
    std::this_thread::sleep_for(2ms);
    loop.context.cancel();
    CHECK(end_of(loop.context) == TENON_CANCELLED);
    CHECK(last == TENON_CANCELLED);
    // While a run is in flight, the callback stays.
    loop.context.run_async();
    CHECK(says(error_of([&] { loop.context.on_end({}); }), {"while a run is under way"}));
    loop.context.cancel();
    CHECK(end_of(loop.context) == TENON_CANCELLED);
  }
}
