// SPDX-License-Identifier: Apache-2.0
// Runs where the system creates no thread, or no more than the first. Nothing hangs or aborts.
#include <pthread.h>

#include <memory>

#include "rig.hpp"

using namespace tenon;
using namespace tenon::test;

namespace {

// While it lives, no thread can be created in this process: the stack of a new one would be larger
// than the address space. Unlike a limit of processes, this binds root too.
class NoNewThreads {
 public:
  NoNewThreads() {
    REQUIRE(pthread_getattr_default_np(&before_) == 0);
    pthread_attr_t huge;
    REQUIRE(pthread_attr_init(&huge) == 0);
    REQUIRE(pthread_attr_setstacksize(&huge, size_t{1} << 56) == 0);
    REQUIRE(pthread_setattr_default_np(&huge) == 0);
    pthread_attr_destroy(&huge);
    pthread_t none;
    REQUIRE(pthread_create(
                &none, nullptr, [](void*) -> void* { return nullptr; }, nullptr) != 0);
  }
  ~NoNewThreads() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }
  NoNewThreads(const NoNewThreads&) = delete;
  NoNewThreads& operator=(const NoNewThreads&) = delete;

 private:
  pthread_attr_t before_;
};

constexpr std::string_view kNone = "the system makes no thread for them";

// Each has its own workers, none of which has been created yet.
Runtime fresh() {
  return Runtime({.plugin_dirs = {TENON_TEST_PLUGINS}, .threads = 1, .use_environment = false});
}

// total += x, n times. Updates a state, so that runs wait for each other.
Graph counter(int n) {
  Graph g("counter");
  const Value x = g.input("x", {f32, {4}}), total = g.state("total", {f32, {4}});
  Value sum = total;
  for (int i = 0; i < n; ++i) sum = g.add(op::binary{.kind = "add", .a = sum, .b = x});
  g.update(total, sum);
  g.output("sum", sum);
  return g;
}

// Regions of the adversary and of the cpu alternate: the adversary refuses rsqrt. y is all ones.
Graph chain(int links) {
  Graph g("chain");
  Value y = g.input("x", {f32, {4}});
  for (int i = 0; i < links; ++i) {
    y = g.add(op::unary{.kind = "rsqrt", .x = y});
    y = g.add(op::binary{.kind = "mul", .a = y, .b = y});
  }
  g.output("y", y);
  return g;
}

const std::vector<float> kOnes(4, 1);

// The streams of a context are created in its first run, and the adversary's are threads. This run
// fails after that, before a worker is needed.
void create_streams(const Runtime& runtime, Context& context) {
  runtime.set_fault({.device = "adversary", .calls = TENON_FAULT_INSTANTIATE});
  CHECK_THROWS_AS(context.run(), Error);
  runtime.lift_fault();
}

// A run of one region without streams needs a single worker, once.
void create_one_worker(const Runtime& runtime) {
  const Store store(runtime);
  const Executable executable(runtime, chain(1), store, {.device = "cpu:0"});
  Context context(executable);
  context.set("x", kOnes);
  context.run_async();
  context.wait();
}

}  // namespace

TEST_SUITE("exec/few_threads") {
  TEST_CASE("no thread: run_async fails by name, and run computes") {
    for (const char* device : {"cpu:0", "adversary:0"}) {
      CAPTURE(std::string(device));
      const Runtime runtime = fresh();
      Store store(runtime);
      const Graph g = counter(1);
      store.add_missing(g);
      const Executable executable(runtime, g, store, {.device = device});
      Context first(executable), second(executable);
      first.set("x", kOnes);
      second.set("x", kOnes);
      second.run();
      {
        const NoNewThreads none;
        tenon_code code = TENON_OK;
        CHECK(says(error_of([&] { second.run_async(); }, &code), {kNone, "ulimit -u"}));
        CHECK(code == TENON_OUT_OF_MEMORY);
        second.run();  // does not wait for the run that failed
      }
      second.run_async();  // tries again
      second.wait();
      CHECK(second.get<float>("sum") == std::vector<float>(4, 3));
    }
  }

  TEST_CASE("no thread: the caller does a run of several regions alone") {
    constexpr int kLinks = 40;
    const Log log;
    const Runtime runtime = fresh();
    Store store(runtime);
    const Executable executable(runtime, chain(kLinks), store,
                                {.device = "adversary:0", .fuse = false});
    REQUIRE(says(executable.report(), {"\"device\":\"adversary:0\"", "\"device\":\"cpu:0\""}));
    Context context(executable);
    context.set("x", kOnes);
    create_streams(runtime, context);
    const NoNewThreads none;
    for (int i = 0; i < 3; ++i) {
      context.run();
      CHECK(context.get<float>("y") == kOnes);
    }
    CHECK(log.says("by the calling thread"));
  }

  TEST_CASE("no thread: a failure in a run of several regions reaches the caller") {
    const Runtime runtime = fresh();
    Store store(runtime);
    const Executable executable(runtime, chain(4), store, {.device = "adversary:0", .fuse = false});
    Context context(executable);
    context.set("x", kOnes);
    create_streams(runtime, context);
    const NoNewThreads none;
    for (const uint32_t calls : {TENON_FAULT_RUN, TENON_FAULT_WAIT}) {
      CAPTURE(calls);
      runtime.set_fault({.device = "adversary", .calls = calls, .nth = 2});
      CHECK_THROWS_AS(context.run(), Error);
      runtime.lift_fault();
      context.run();
      CHECK(context.get<float>("y") == kOnes);
    }
  }

  TEST_CASE("one thread: it does all runs, and what is destroyed waits for them") {
    constexpr int kContexts = 24;  // more than there may be workers
    for (const char* device : {"cpu:0", "adversary:0"}) {
      CAPTURE(std::string(device));
      auto runtime = std::make_unique<Runtime>(fresh());
      auto store = std::make_unique<Store>(*runtime);
      const Graph update = counter(3), alone = chain(3);
      store->add_missing(update);
      auto counts = std::make_unique<Executable>(*runtime, update, *store,
                                                 ExecutableOptions{.device = device});
      auto chains = std::make_unique<Executable>(
          *runtime, alone, *store, ExecutableOptions{.device = device, .fuse = false});
      std::vector<std::unique_ptr<Context>> contexts;
      for (int i = 0; i < kContexts; ++i) {
        contexts.push_back(std::make_unique<Context>(i % 2 ? *chains : *counts));
        contexts.back()->set("x", kOnes);
        if (device != std::string("cpu:0")) create_streams(*runtime, *contexts.back());
      }
      create_one_worker(*runtime);
      {
        const NoNewThreads none;
        for (const auto& context : contexts) context->run_async();
        for (size_t i = 0; i < contexts.size(); i += 4) contexts[i]->wait();
        for (const auto& context : contexts) context->wait();
        CHECK(contexts[1]->get<float>("y") == kOnes);
        CHECK(store->get<float>(TENON_SPACE_STATE, "total") ==
              std::vector<float>(4, 3 * kContexts / 2));
        for (const auto& context : contexts) context->run_async();
        runtime = nullptr;  // the contexts keep what they need
        counts = nullptr;
        chains = nullptr;
        store = nullptr;
        contexts.clear();
      }
    }
  }
}
