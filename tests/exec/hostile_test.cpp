// SPDX-License-Identifier: Apache-2.0
// Each lie of the hostile plugin is refused with a message that names the plugin, or survived with
// the right values; the process goes on either way.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>

#include "rig.hpp"

using namespace tenon;
using namespace tenon::test;

namespace {

const Runtime& hostile() {
  static const Runtime the(
      {.plugin_dirs = {TENON_HOSTILE_PLUGINS}, .threads = 2, .use_environment = false});
  return the;
}

std::string id_of(const std::string& lie) {
  for (const DeviceEntry& d : hostile().devices())
    if (d.name == lie) return d.id;
  FAIL("there is no device '", lie, "'");
  return {};
}

// h = relu(x w) and the sums of its rows; sorted, what the hostile plugin has no kernel for.
struct Case {
  explicit Case(const std::string& device, bool sort = false, bool fallback = true)
      : store(hostile()), graph("g"), sorted(sort) {
    const Value x = graph.input("x", {f32, {2, 3}}), w = graph.weight("w", {f32, {3, 2}});
    const Value h =
        graph.add(op::unary{.kind = "relu", .x = graph.add(op::matmul{.a = x, .b = w})});
    const Value y = graph.add(op::reduce{.kind = "sum", .axes = {1}, .x = h}, "total");
    graph.output("y", sort ? graph.add(op::sort{.x = y}) : y);
    graph.output("h", h);
    store.set<float>(TENON_SPACE_WEIGHT, "w", {3, 2}, {1, 2, 3, 4, 5, -6});
    executable = std::make_unique<Executable>(
        hostile(), graph, store, ExecutableOptions{.device = device, .allow_fallback = fallback});
    context = std::make_unique<Context>(*executable);
    context->set<float>("x", {2, 3}, {1, 2, 3, 1, 0, 0});
  }
  bool right() {
    return context->get<float>("y") ==
               (sorted ? std::vector<float>{3, 22} : std::vector<float>{22, 3}) &&
           context->get<float>("h") == std::vector<float>{22, 0, 1, 2};
  }
  Store store;
  Graph graph;
  bool sorted;
  std::unique_ptr<Executable> executable;
  std::unique_ptr<Context> context;
};

// What must come of a lie: words of the message, or none where it does no harm.
struct Expectation {
  tenon_code code;
  std::vector<std::string> words;
};
const Expectation kSurvived{TENON_OK, {}};
Expectation lied(std::string words) { return {TENON_INTERNAL, {std::move(words)}}; }

const std::map<std::string, Expectation>& expectations() {
  static const std::map<std::string, Expectation> all = {
      {"honest", kSurvived},
      {"open throws", lied("device_open: threw an exception: an exception of the plugin's")},
      {"open gives nothing", lied("device_open: succeeded without a result")},
      {"open gives a made-up status",
       lied("device_open: returned a status that the host did not make")},
      {"buffer nothing", lied("buffer_create: succeeded without a result")},
      {"buffer throws", lied("buffer_create: threw an exception: an exception")},
      {"buffer crooked", lied("buffer_address: a buffer of ")},
      {"buffer without address", lied("gave no host address")},
      {"address throws", lied("buffer_address: threw an exception")},
      {"import info throws", kSurvived},  // these lie about memory of the app: below
      {"import alignment", kSurvived},
      {"import gives nothing", kSurvived},
      {"import throws", kSurvived},
      {"import without address", kSurvived},
      {"write throws a number", lied("buffer_write: threw an exception")},
      {"read throws", lied("buffer_read: threw an exception: an exception")},
      {"copy gives one status twice", {TENON_IO_ERROR, {"buffer_read: once"}}},
      {"everything given back throws", kSurvived},
      {"query throws", lied("query: threw an exception")},
      {"query nothing", lied("query: succeeded without a result")},
      {"query small", lied("query: the result is too small: 8 bytes")},
      {"query few", lied("verdicts for a graph of ")},
      {"query most", lied("query: gave 4294967295 verdicts")},
      {"query no verdicts", lied("verdicts, but gives none")},
      {"query stride", lied("query: verdicts are 12 bytes apart")},
      {"query cost", lied("query: the cost of node 0 is nan")},
      {"query verdict", kSurvived},  // not known: the cpu takes the node
      {"query group", kSurvived},
      {"query text", kSurvived},
      {"query refuses without a word", kSurvived},  // the cpu takes every node
      {"claims what it cannot", {TENON_UNSUPPORTED, {"compile: ", "was not claimed"}}},
      {"compile throws", lied("compile: threw an exception")},
      {"compile nothing", lied("compile: succeeded without a result")},
      {"compile refuses what was claimed",
       {TENON_UNSUPPORTED, {"compile: on second thoughts, no"}}},
      {"info throws", lied("program_info: threw an exception")},
      {"info nothing", lied("program_info: gave nothing")},
      {"info small", lied("program_info: the description is too small: 16 bytes")},
      {"info minus one steps", lied("program_info: says 4294967295 steps")},
      {"info minus one values", lied("program_info: says 4294967295 values")},
      {"info stride", lied("program_info: steps are 1 bytes apart")},
      {"value absurd", lied(" bytes, which makes 2^60 or more in all")},
      {"values absurd together", lied(" bytes, which makes 2^60 or more in all")},
      {"value small", lied("has 1 bytes, its type has ")},
      {"value alignment", lied("has alignment 1099511627776")},
      {"value source", lied("stands for value 1000000 of a graph of ")},
      {"step reads out of range", lied("reads value 1000000 of ")},
      {"step writes out of range", lied("writes value 1000000 of ")},
      {"step writes an input", lied(" of the graph is written, never read")},
      {"step of no node", lied("stands for node 1000000 of a graph of ")},
      {"step minus one reads", lied("reads 4294967295 values")},
      {"step scratch", lied(" wants 9223372036854775744 bytes of scratch")},
      {"step label", kSurvived},
      {"step view", lied("program_info: ")},
      {"instance throws", lied("instantiate: threw an exception")},
      {"instance nothing", lied("instantiate: succeeded without a result")},
      {"run throws", lied("run: threw an exception")},
      {"run does nothing", kSurvived},
      {"run fails in a step that is none", {TENON_INDEX_OUT_OF_RANGE, {"run: somewhere"}}},
      {"run fails with an unknown code", lied("run: a code of my own")},
      {"run fails with a terrible text", lied("run: (a text of ")},
      {"run gives a made-up status", lied("run: returned a status that the host did not make")},
      {"run gives a released status", lied("run: returned a status that the host did not make")},
      {"event is late for ever", kSurvived},
      {"event calls back twice", kSurvived},
      {"event calls back and fails", kSurvived},
      {"event query says nothing", kSurvived},
      {"event throws", lied("event_query: threw an exception: an event that throws")},
  };
  return all;
}

bool cpu_works() {
  Case honest("cpu:0");
  honest.context->run();
  return honest.right();
}

}  // namespace

TEST_SUITE("exec/hostile") {
  TEST_CASE("every lie: refused with the plugin's name, or survived, waited for or not") {
    size_t seen = 0;
    for (const DeviceEntry& device : hostile().devices()) {
      if (device.kind != "hostile") continue;
      ++seen;
      CAPTURE(device.name);
      const auto found = expectations().find(device.name);
      REQUIRE(found != expectations().end());
      Expectation expected = found->second;
      const bool late = device.name == "event is late for ever";
      for (const bool async : {false, true}) {
        CAPTURE(async);
        // An event that is asked by nobody cannot lie.
        if (!async && device.name == "event throws") continue;
        if (async && late) continue;  // below
        if (async && device.name == "copy gives one status twice")
          expected = lied("buffer_read: returned a status that the host did not make");
        tenon_code code = TENON_OK;
        const std::string text = error_of(
            [&] {
              Case c(device.id);
              if (async) {
                c.context->run_async();
                // Not by wait alone, which may run it in this thread and ask no event.
                while (!c.context->done())
                  std::this_thread::sleep_for(std::chrono::milliseconds(1));
                c.context->wait();
              } else {
                c.context->run();
              }
              const bool right = c.right();
              CHECK((right || device.name == "run does nothing"));
            },
            &code);
        if (expected.code == TENON_OK) {
          CHECK(text == "no error");
          continue;
        }
        CHECK_MESSAGE(code == expected.code, text);
        CHECK_MESSAGE(text.find("hostile") != std::string::npos, text);
        for (const std::string& word : expected.words)
          CHECK_MESSAGE(text.find(word) != std::string::npos, text);
        CHECK(std::none_of(text.begin(), text.end(),
                           [](char c) { return c == '\033' || c == '\a'; }));
      }
      CHECK(cpu_works());
    }
    CHECK(seen == expectations().size());
  }

  TEST_CASE("memory of the app: copied where info() lies, refused where import_buffer() does") {
    alignas(64) float x[] = {1, 2, 3, 1, 0, 0};
    const auto bound = [&](Case& c) { c.context->bind("x", {2, 3}, std::span<float>(x)); };
    for (const char* lie : {"honest", "import info throws", "import alignment"}) {
      CAPTURE(lie);
      Log log;
      Case c(id_of(lie));
      bound(c);
      c.context->run();
      CHECK(c.right());
      CHECK(log.says("imports no memory of the app") == (std::string_view(lie) != "honest"));
    }
    for (const auto& [lie, words] : std::map<std::string, std::string>{
             {"import gives nothing", "import_buffer: succeeded without a result"},
             {"import throws",
              "import_buffer: threw an exception: an exception of the plugin's"}}) {
      CAPTURE(lie);
      Case c(id_of(lie));
      CHECK(says(error_of([&] { bound(c); }), {"input 'x'", "plugin hostile", words}));
      c.context->run();  // with what was set before
      CHECK(c.right());
    }
    Case c(id_of("import without address"));
    bound(c);
    c.context->run();
    CHECK(c.right());
    CHECK(says(error_of([&] { c.context->output_dlpack("y"); }), {"plugin hostile", "gave null"}));
  }

  TEST_CASE("given back: what throws there is logged by name, and the rest is still given back") {
    Log log;
    {
      Case c(id_of("everything given back throws"));
      c.context->run();
      CHECK(c.right());
    }
    const auto errors = log.lines(3);
    for (const char* slot :
         {"instance_destroy", "program_destroy", "buffer_destroy", "device_close"}) {
      const std::string line = std::string("plugin hostile: ") + slot +
                               ": threw an exception: an exception of the plugin's";
      CHECK(std::count(errors.begin(), errors.end(), line) >= 1);
    }
  }

  TEST_CASE(
      "nodes that a plugin does not know: claimed, they are refused by compile; else they fall "
      "back") {
    tenon_code code = TENON_OK;
    const auto sorted = [&](const std::string& lie) { return Case(id_of(lie), true); };
    CHECK(says(error_of([&] { sorted("claims what it cannot"); }, &code),
               {"plugin hostile: compile: node ", " was not claimed: no kernel for op "}));
    CHECK(code == TENON_UNSUPPORTED);
    Case c = sorted("honest");
    c.context->run();
    CHECK(c.right());
  }

  TEST_CASE(
      "an event that does not come: its run stays under way, all else goes on, and it may come "
      "late") {
    Case held(id_of("event is late for ever"));
    held.context->run_async();
    for (int i = 0; i < 20; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      CHECK_FALSE(held.context->done());
      CHECK(cpu_works());
    }
    CHECK(says(error_of([&] { held.context->run_async(); }),
               {"context: a run is started while a run is under way"}));
    // The next context's run makes an event, and with it the device tells of the first.
    Case other(id_of("event is late for ever"));
    other.context->run_async();
    held.context->wait();
    CHECK(held.right());
    other.context->wait();
    CHECK(other.right());
  }

  TEST_CASE("a refusal without words: names the node where nobody else takes it") {
    tenon_code code = TENON_OK;
    CHECK(says(
        error_of([&] { const Case c(id_of("query refuses without a word"), false, false); }, &code),
        {"no device takes ", "unary ", "the plugin gave no reason"}));
    CHECK(code == TENON_UNSUPPORTED);
  }

  TEST_CASE("auto: a plugin whose device cannot be opened is passed over") {
    CHECK(says(error_of([] { Case c("hostile:999"); }), {"there is no device 'hostile:999'"}));
    Case c("auto");
    c.context->run();
    CHECK(c.right());
  }
}
