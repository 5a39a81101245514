// SPDX-License-Identifier: Apache-2.0
// Every call of the driver, of NVRTC and of cuBLASLt fails in turn, from opening the device to
// giving everything back: each time the results are right or an error names the call, nothing is
// left, and what comes after is right.
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <set>

#include "../log.hpp"
#include "rig.hpp"

using namespace tenon;
using namespace tenon::test;
namespace fs = std::filesystem;

namespace {

constexpr int kOutOfMemory = 2, kUnknown = 999;

// How a message names an entry point that failed.
std::string word_for(const std::string& symbol) {
  static const std::map<std::string, std::string> all = {
#define CALL(need, name, symbol, arguments) {#symbol, #name ": "},
#include "driver_calls.def"
#define CALL(need, name, symbol, arguments) {#symbol, "NVRTC gives no machine code"},
#include "nvrtc_calls.def"
#define CALL(need, name, symbol, arguments) {#symbol, "cuBLASLt " #name ": "},
#include "blas_calls.def"
  };
  if (symbol == "nvrtcCreateProgram") return "NVRTC takes no program";
  if (symbol == "nvrtcCompileProgram") return "does not compile:\nstub.cu(1): error: this text";
  return all.at(symbol);
}

// Whose failure need not be told: what gives back, what only saves time, and recording, without
// which a program is run step by step.
bool may_pass(const std::string& symbol, uint64_t number, int result) {
  // When a device is tried out: then the library is tried again with the next kernel, or done
  // without.
  static const std::set<std::string> trials = {"nvrtcCreateProgram", "nvrtcCompileProgram",
                                               "nvrtcGetCUBINSize",  "nvrtcGetCUBIN",
                                               "cuModuleLoadData",   "cublasLtCreate"};
  if (number == 1 && trials.contains(symbol)) return true;
  // Short of memory, what was asked of the plugin is asked once more.
  if (result == kOutOfMemory) return true;
  static const std::set<std::string> all = {
      // gives back
      "cuCtxPopCurrent_v2", "cuCtxPushCurrent_v2", "cuDevicePrimaryCtxRelease_v2",
      "cuStreamDestroy_v2", "cuStreamSynchronize", "cuEventDestroy_v2", "cuMemFreeAsync",
      "cuMemFreeHost", "cuMemPoolDestroy", "cuModuleUnload", "cuGraphDestroy", "cuGraphExecDestroy",
      "nvrtcDestroyProgram", "cublasLtDestroy", "cublasLtMatmulDescDestroy",
      "cublasLtMatrixLayoutDestroy", "cublasLtMatmulPreferenceDestroy",
      // saves time
      "cuMemPoolSetAttribute", "cuMemPoolTrimTo", "cuMemGetInfo_v2", "cuCtxGetId",
      // then calls are made as without it
      "cuThreadExchangeStreamCaptureMode",
      // recording
      "cuStreamBeginCapture_v2", "cuStreamEndCapture", "cuGraphInstantiateWithFlags",
      "cuLaunchKernel", "cuLaunchKernelEx", "cublasLtMatmul", "cuMemsetD8Async",
      "cuMemcpyDtoHAsync_v2", "cuEventRecord",
      // an event that cannot call back is waited for
      "cuStreamWaitEvent", "cuStreamAddCallback",
      // only for the note of devices; that of the devices themselves is in cli.py
      "cuDeviceGetCount",
      // the library is done without
      "cublasLtMatmulAlgoGetHeuristic"};
  return all.contains(symbol);
}

struct Trial {
  std::string failed, text;
  uint64_t number = 0;  // of the calls of what failed
  tenon_code code = TENON_OK;
  bool right = true;
};

// Lets the first, second, ... call of `work` fail until it has no more, or as many as `most`;
// `after` sees each. Returns how many there were.
uint64_t fail_in_turn(int result, StubFault fault, const std::function<void()>& before,
                      const std::function<bool()>& work,
                      const std::function<void(const Trial&)>& after, uint64_t most = ~0ull) {
  REQUIRE(whole_life());  // the libraries are looked for once in a process: see cli.py
  for (uint64_t nth = 1;; ++nth) {
    before();
    Trial t;
    const Log log;
    stub_fail("", nth, result, fault);
    t.text = error_of([&] { t.right = work(); }, &t.code);
    t.failed = stub_failed();
    t.number = stub_failed_number();
    const uint64_t met = stub_lift();
    CAPTURE(nth);
    CAPTURE(t.failed);
    CAPTURE(t.text);
    CHECK(t.right);
    if (t.failed.empty()) {
      CHECK(met < nth);
      CHECK(t.text.empty());
      return nth - 1;
    }
    // Whether an event needs a helper that calls back, and one more, is a matter of time. A helper
    // that cannot be made is told in the log.
    const bool told = log.says("does not call back: ") && log.says(word_for(t.failed));
    if (t.text.empty())
      CHECK((told || may_pass(t.failed, t.number, result)));
    else if (fault == kStubOnce)
      CHECK(has(t.text, word_for(t.failed)));
    // A device whose context cannot be entered is left without one.
    const std::string misuse = stub_misuse();
    if (t.failed != "cuCtxPushCurrent_v2") CHECK(misuse == "");
    after(t);
    if (nth == most) return nth;
  }
}

// What the next step says: right, or state is refused by name until it is set again.
void recover(Machine& machine, const std::function<Expected()>& expected, int64_t run) {
  Expected now = expected();
  const Floats y = now.step(run);
  tenon_code code = TENON_OK;
  const std::string text = error_of([&] { machine.step(run); }, &code);
  if (code == TENON_OK && machine.state() == now.s) {
    CHECK(machine.context().get<float>("y") == y);
    return;
  }
  // Either the failed run had updated the state after all, or the state is undefined.
  if (code != TENON_OK) {
    CHECK(code == TENON_UNDEFINED_STATE);
    CHECK(has(text, "state 's' is undefined: run "));
    CHECK(has(text, "set or load it again"));
  }
  machine.fill();
  Expected fresh;
  CHECK(machine.step(run) == fresh.step(run));
  CHECK(machine.state() == fresh.s);
}

}  // namespace

TEST_SUITE("stub/fault") {
  TEST_CASE("no fault: the stub computes, and everything is given back") {
    for (const bool async : {false, true}) CHECK(whole_life(async));
    CHECK(stub_calls("cuGraphLaunch") >= 2);
    CHECK(stub_calls("cublasLtMatmul") >= 1);
    check_clean();
  }

  TEST_CASE("whole life: each call fails in turn, and the next machine is well") {
    struct Round {
      int result;
      bool async;
      int64_t threads;  // of streams
      uint32_t mode = TENON_EXEC_DEFAULT;
    };
    for (const Round& round :
         {Round{kUnknown, false, 0}, Round{kUnknown, true, 0}, Round{kOutOfMemory, false, 0},
          Round{kUnknown, true, 1}, Round{kUnknown, false, 1, TENON_EXEC_MULTI_STREAM}}) {
      const ExecutableOptions options{
          .device = "cuda:0", .fuse = round.threads == 0, .exec_mode = round.mode};
      CAPTURE(round.result);
      stub_set("async", round.threads);
      const uint64_t calls = fail_in_turn(
          round.result, kStubOnce, [] {}, [&] { return whole_life(round.async, options); },
          [&](const Trial& t) {
            CHECK(std::string(stub_alive()) == "");
            // What cannot be entered cannot be given back but with the context.
            const std::string orphans = stub_orphans();
            if (t.failed != "cuCtxPushCurrent_v2") CHECK(orphans == "");
            if (t.failed == "cuMemHostAlloc")
              CHECK(t.code == (round.result == kOutOfMemory ? TENON_OK : TENON_INTERNAL));
          });
      CHECK(calls > 200);
      CHECK(whole_life(round.async, options));
      stub_set("async", 0);
      check_clean();
    }
  }

  TEST_CASE("describing devices: each call fails in turn, and is the reason of whoever wants one") {
    const uint64_t calls = fail_in_turn(
        kUnknown, kStubOnce, [] {},
        [] { return whole_life(false, {.device = "cuda:0"}, Runtime(runtime_options())); },
        [](const Trial&) { stub_orphans(); }, 24);
    CHECK(calls == 24);
    check_clean();
  }

  TEST_CASE("compile: each call fails in turn, and then the graph compiles and runs") {
    Machine machine;
    machine.fill();
    const uint64_t calls = fail_in_turn(
        kUnknown, kStubOnce, [] {},
        [&] {
          machine.compile();
          return true;
        },
        [](const Trial&) {});
    CHECK(calls > 10);
    machine.compile();
    Expected expected;
    for (int64_t run = 0; run < 3; ++run) CHECK(machine.step(run) == expected.step(run));
    CHECK(machine.state() == expected.s);
  }

  TEST_CASE("steps: each call of the first, a recording and a replayed one fails in turn") {
    for (const int64_t run : {0, 1, 2})
      for (const bool async : {false, true}) {
        CAPTURE(run);
        std::unique_ptr<Machine> machine;
        const auto before = [&] {
          machine = nullptr;
          machine = std::make_unique<Machine>();
          machine->fill();
          machine->compile();
          for (int64_t r = 0; r < run; ++r) machine->step(r);
        };
        const uint64_t calls = fail_in_turn(
            kUnknown, kStubOnce, before,
            [&] {
              Expected expected;
              for (int64_t r = 0; r < run; ++r) expected.step(r);
              return machine->step(run, async) == expected.step(run);
            },
            [&](const Trial& t) {
              const auto so_far = [&] {
                Expected e;
                for (int64_t r = 0; r < run + t.text.empty(); ++r) e.step(r);
                return e;
              };
              recover(*machine, so_far, run + t.text.empty());
            });
        CHECK(calls > 5);
      }
    stub_orphans();  // of contexts that could not be entered
    check_clean();
  }

  TEST_CASE("save: a file is as before until all of it could be read") {
    std::string folder = (fs::temp_directory_path() / "tenon-stub-XXXXXX").string();
    REQUIRE(mkdtemp(folder.data()));
    const std::string file = folder + "/state.safetensors";
    const auto content = [&] {
      std::ifstream in(file, std::ios::binary);
      return std::string(std::istreambuf_iterator<char>(in), {});
    };
    Machine machine;
    machine.fill();
    machine.compile();
    Expected expected;
    CHECK(machine.step(0) == expected.step(0));
    machine.store().save(TENON_SPACE_STATE, file);
    const std::string old = content();
    CHECK(machine.step(1) == expected.step(1));
    uint64_t refused = 0;
    const auto put_back = [&] { std::ofstream(file, std::ios::binary) << old; };
    const auto save = [&] {
      machine.store().save(TENON_SPACE_STATE, file);
      return true;
    };
    fail_in_turn(kUnknown, kStubOnce, put_back, save, [&](const Trial& t) {
      refused += !t.text.empty();
      CHECK((content() == old) == !t.text.empty());
    });
    CHECK(refused > 2);
    CHECK(content() != old);
    machine.fill();
    machine.store().load(TENON_SPACE_STATE, file);
    CHECK(machine.state() == expected.s);
    fs::remove_all(folder);
  }
}
