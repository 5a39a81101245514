// SPDX-License-Identifier: Apache-2.0
// A device that is lost, one that is full, data that is bad, and streams that really run beside
// each other.
#include <atomic>
#include <latch>
#include <thread>

#include "foreign_capture.hpp"
#include "stream.hpp"

using namespace tenon;
using namespace tenon::test;

namespace {

constexpr int kIllegalAddress = 700, kLaunchFailed = 719;

// y = x * x on its own executable.
class Square {
 public:
  Square(const Runtime& runtime, int64_t n)
      : store_(runtime),
        executable_(runtime,
                    Graph::parse("graph { input x: f32[" + std::to_string(n) +
                                     "] y = binary(x, x) {kind=\"mul\"} output \"y\" = y }",
                                 "square"),
                    store_, {.device = "cuda:0", .allow_fallback = false}),
        context_(executable_),
        x_(numbers(1, n)) {}
  void check_right() {
    context_.set("x", x_);
    context_.run();
    Floats y = x_;
    for (float& v : y) v *= v;
    CHECK(context_.get<float>("y") == y);
  }

 private:
  Store store_;
  Executable executable_;
  Context context_;
  Floats x_;
};

}  // namespace

TEST_SUITE("stub/lost") {
  TEST_CASE("device lost at each call: refused by name, the cpu works, everything is given back") {
    REQUIRE(whole_life());  // the libraries are looked for once in a process
    for (const bool enters : {true, false}) {
      stub_set("push_when_lost", enters);
      for (uint64_t nth = 1;; ++nth) {
        CAPTURE(enters);
        CAPTURE(nth);
        stub_fail("", nth, kIllegalAddress, kStubLost);
        bool right = false;
        tenon_code code = TENON_OK;
        const std::string text = error_of([&] { right = whole_life(!enters); }, &code);
        const std::string failed = stub_failed();
        CAPTURE(failed);
        CAPTURE(text);
        if (failed.empty()) {
          CHECK(stub_lift() < nth);
          CHECK(right);
          break;
        }
        if (text.empty()) {
          CHECK(right);  // it was lost while things were given back
        } else if (!failed.starts_with("nvrtc") && !failed.starts_with("cublas")) {
          CHECK(has(text, "CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access"));
          if (text.find("cannot be opened") == text.npos) CHECK(code == TENON_DEVICE_LOST);
        }
        CHECK(std::string(stub_alive()) == "");
        CHECK(std::string(stub_misuse()) == "");
        const std::string orphans = stub_orphans();
        if (enters && failed != "cuCtxPushCurrent_v2") CHECK(orphans == "");
        if (nth % 16 == 0) {
          CHECK(has(error_of([] { whole_life(); }), "CUDA_ERROR_ILLEGAL_ADDRESS"));
          CHECK(whole_life(false, {.device = "cpu:0"}));
          CHECK(whole_life(false, {.device = "auto"}));
          stub_orphans();
        }
        stub_lift();
      }
    }
    stub_set("push_when_lost", 1);
    CHECK(whole_life());
    check_clean();
  }

  TEST_CASE(
      "kernels fail as they run: the run that waits for them says so, and its state is told") {
    for (const int64_t threads : {0, 1}) {
      stub_set("async", threads);
      for (const bool async : {false, true})
        for (uint64_t nth = 1; nth <= 9; ++nth) {
          CAPTURE(nth);
          Machine machine;
          machine.fill();
          machine.compile();
          stub_fail("kernel", nth, kLaunchFailed, kStubOnce);
          tenon_code code = TENON_OK;
          const std::string text = error_of(
              [&] {
                for (int64_t run = 0; run < 3; ++run) machine.step(run, async);
              },
              &code);
          CHECK(code == TENON_DEVICE_LOST);
          CHECK(has(text, "CUDA_ERROR_LAUNCH_FAILED (unspecified launch failure)"));
          CHECK(has(error_of([&] { machine.step(0); }), "CUDA_ERROR_LAUNCH_FAILED"));
          stub_lift();
          CHECK(has(error_of([&] { machine.step(0); }), "'s' is undefined: run "));
        }
      check_clean();
    }
    stub_set("async", 0);
  }

  TEST_CASE(
      "full device: the pool is emptied before a request fails, and room that comes is used") {
    stub_set("memory", 100000);
    {
      const Runtime runtime(runtime_options());
      Square small(runtime, 100);  // keeps the device open
      small.check_right();
      const uint64_t trims = stub_calls("cuMemPoolTrimTo");
      Square(runtime, 10000).check_right();
      CHECK(stub_calls("cuMemPoolTrimTo") == trims);
      Square(runtime, 9000).check_right();  // of what the former left, no part fits
      CHECK(stub_calls("cuMemPoolTrimTo") > trims);
      tenon_code code = TENON_OK;
      const std::string text = error_of([&] { Square(runtime, 15000).check_right(); }, &code);
      CHECK(code == TENON_OUT_OF_MEMORY);
      CHECK(has(text, "no memory for a buffer of 60000 bytes; "));
      CHECK(has(text, " of 100000 are free"));
      small.check_right();
      Square(runtime, 10000).check_right();
    }
    stub_set("memory", 1 << 30);
    check_clean();
  }

  TEST_CASE("full device: an app's capture outlives the emptying of the pool") {
    stub_set("memory", 100000);
    {
      const Runtime runtime(runtime_options());
      Square small(runtime, 100);  // keeps the device open
      Square(runtime, 10000).check_right();
      const uint64_t trims = stub_calls("cuMemPoolTrimTo");
      ForeignCapture app(stub::kThreadLocal);
      std::thread([&] { Square(runtime, 9000).check_right(); }).join();
      CHECK(stub_calls("cuMemPoolTrimTo") > trims);
      CHECK(app.end());
    }
    stub_set("memory", 1 << 30);
    check_clean();
  }

  TEST_CASE("every error that ends a context is told as a lost device") {
    for (const int code :
         {4, 46, 214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911}) {
      CAPTURE(code);
      Machine machine;
      machine.fill();
      machine.compile();
      stub_fail("kernel", 1, code, kStubOnce);
      tenon_code said = TENON_OK;
      error_of([&] { machine.step(0); }, &said);
      CHECK(said == TENON_DEVICE_LOST);
      stub_lift();
    }
    check_clean();
  }

  TEST_CASE(
      "callbacks of a lost device that come late: each is called once, and by then at the end") {
    stub_set("async", 1);
    cuda::Context context = nullptr;
    REQUIRE(cuda::cuDevicePrimaryCtxRetain(&context, 0) == 0);
    REQUIRE(cuda::cuCtxPushCurrent_v2(context) == 0);
    cuda::Stream stream = nullptr;
    cuda::Event event = nullptr;
    CHECK(cuda::cuStreamCreate(&stream, 0) == 0);
    CHECK(cuda::cuEventCreate(&event, 0) == 0);
    std::latch go(1);  // until then the event is not done
    const auto hold = [](cuda::Stream, int, void* l) { static_cast<std::latch*>(l)->wait(); };
    CHECK(cuda::cuStreamAddCallback(stream, hold, &go, 0) == 0);
    CHECK(cuda::cuEventRecord(event, stream) == 0);
    std::atomic<int> calls = 0;
    const auto count = [](void* n) { ++*static_cast<std::atomic<int>*>(n); };
    auto callbacks = std::make_unique<cuda::Callbacks>();
    for (int i = 0; i < 3; ++i) callbacks->call_when_done(event, count, &calls);
    CHECK(calls == 0);
    stub_set("late_callbacks", 1);
    stub_fail("cuEventQuery", 1, kIllegalAddress, kStubLost);
    CHECK(cuda::cuEventQuery(event) == kIllegalAddress);
    CHECK_THROWS(callbacks->call_when_done(event, count, &calls));  // no stream can wait any more
    CHECK(calls == 0);
    go.count_down();
    callbacks = nullptr;
    CHECK(calls == 3);
    stub_lift();
    CHECK(cuda::cuStreamDestroy_v2(stream) == 0);  // when its thread has ended
    stub_set("late_callbacks", 0);                 // now the driver calls
    CHECK(calls == 3);
    cuda::cuEventDestroy_v2(event);
    cuda::cuCtxPopCurrent_v2(&context);
    cuda::cuDevicePrimaryCtxRelease_v2(0);
    stub_set("async", 0);
    stub_alive(), stub_orphans();  // helper streams could not be destroyed
  }

  TEST_CASE("limit: what goes beyond TENON_CUDA_MEMORY_LIMIT is refused, and what fits is not") {
    setenv("TENON_CUDA_MEMORY_LIMIT", "50000", 1);
    {
      const Runtime runtime(runtime_options());
      Square small(runtime, 100);
      small.check_right();
      tenon_code code = TENON_OK;
      const std::string text = error_of([&] { Square(runtime, 10000).check_right(); }, &code);
      CHECK(code == TENON_OUT_OF_MEMORY);
      CHECK(has(text, "a buffer of 40000 bytes: "));
      CHECK(has(text, " of the limit of 50000 bytes are in use"));
      Square(runtime, 5000).check_right();
      small.check_right();
    }
    unsetenv("TENON_CUDA_MEMORY_LIMIT");
    check_clean();
  }

  TEST_CASE("bad index: the run names it, in order and recorded, and then the next is right") {
    Machine machine;
    machine.fill();
    machine.compile();
    Expected expected;
    for (int64_t run = 0; run < 3; ++run) {
      CAPTURE(run);
      machine.context().set("x", {kRows, kColumns}, numbers(10, kRows * kColumns));
      machine.context().set("ids", std::vector<int64_t>{0, kTable, 2});
      tenon_code code = TENON_OK;
      const std::string text = error_of([&] { machine.context().run(); }, &code);
      CHECK(code == TENON_INDEX_OUT_OF_RANGE);
      CHECK(has(text, "gather 'e': "));
      CHECK(has(text, "operand indices: the index at position 1 is outside axis 0 of length "));
      machine.fill();
      expected = {};
      CHECK(machine.step(run) == expected.step(run));
      CHECK(machine.state() == expected.s);
    }
  }

  TEST_CASE("streams of their own threads: machines side by side are right, and so is each call") {
    stub_set("async", 1);
    std::atomic<int> right = 0;
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t)
      threads.emplace_back([&, t] {
        for (int i = 0; i < 4; ++i) right += whole_life(t % 2 == 0);
      });
    for (auto& t : threads) t.join();
    CHECK(right == 12);
    // Contexts on one device, and runs beside each other.
    {
      const Runtime runtime(runtime_options());
      std::vector<std::thread> users;
      for (int t = 0; t < 3; ++t)
        users.emplace_back([&, t] {
          for (int i = 0; i < 4; ++i) Square(runtime, 1000 + 100 * t).check_right();
        });
      for (auto& t : users) t.join();
    }
    stub_set("async", 0);
    check_clean();
  }

  TEST_CASE("modes: each gives the same, also on streams of their own threads") {
    for (const int64_t threads : {0, 1})
      for (const uint32_t mode :
           {TENON_EXEC_STREAM, TENON_EXEC_GRAPH, TENON_EXEC_EAGER, TENON_EXEC_MULTI_STREAM})
        for (const bool aot : {false, true}) {
          CAPTURE(threads);
          CAPTURE(mode);
          stub_set("async", threads);
          const uint64_t recorded = stub_calls("cuStreamBeginCapture_v2"),
                         waits = stub_calls("cuStreamWaitEvent");
          for (const bool async : {false, true})
            CHECK(whole_life(async,
                             {.device = "cuda:0", .fuse = false, .exec_mode = mode, .aot = aot}));
          const bool records = mode == TENON_EXEC_GRAPH || mode == TENON_EXEC_MULTI_STREAM;
          CHECK((stub_calls("cuStreamBeginCapture_v2") > recorded) == records);
          if (mode == TENON_EXEC_MULTI_STREAM) CHECK(stub_calls("cuStreamWaitEvent") > waits + 4);
        }
    stub_set("async", 0);
    check_clean();
  }

  TEST_CASE("no algorithm: cuBLASLt knows none, and the product is our own") {
    stub_set("algorithms", 0);
    const uint64_t before = stub_calls("cublasLtMatmul");
    CHECK(whole_life());
    CHECK(stub_calls("cublasLtMatmul") == before);
    stub_set("algorithms", 1);
    check_clean();
  }
}
