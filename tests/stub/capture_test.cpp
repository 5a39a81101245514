// SPDX-License-Identifier: Apache-2.0
// Captures: an app that captures a graph in the same process and tenon leave each other alone, and
// a recording of tenon's that fails is tried again.
#include <thread>

#include "foreign_capture.hpp"

using namespace tenon;
using namespace tenon::test;

namespace {

int thread_mode() {
  int mode = stub::kRelaxed;
  cuda::cuThreadExchangeStreamCaptureMode(&mode);
  const int own = mode;
  cuda::cuThreadExchangeStreamCaptureMode(&mode);
  return own;
}

uint64_t recordings() { return stub_calls("cuStreamBeginCapture_v2"); }
uint64_t replays() { return stub_calls("cuGraphLaunch"); }

}  // namespace

TEST_SUITE("stub/capture") {
  TEST_CASE("the stub: a call that a capture forbids is refused, and breaks the capture") {
    for (const int mode : {stub::kGlobal, stub::kThreadLocal, stub::kRelaxed}) {
      CAPTURE(mode);
      ForeignCapture own(mode);
      void* piece = nullptr;
      CHECK((cuda::cuMemHostAlloc(&piece, 8, 0) == 0) == (mode == stub::kRelaxed));
      if (piece) cuda::cuMemFreeHost(piece);
      CHECK(own.end() == (mode == stub::kRelaxed));
    }
    check_clean();
  }

  TEST_CASE(
      "an app captures: all of tenon's life beside it is right, and the capture stays whole") {
    for (const int mode : {stub::kGlobal, stub::kThreadLocal})
      for (const bool same_thread : {true, false})
        for (const bool async : {false, true}) {
          CAPTURE(mode);
          CAPTURE(same_thread);
          CAPTURE(async);
          ForeignCapture app(mode);
          bool right = false;
          std::string text;
          const auto life = [&] { text = error_of([&] { right = whole_life(async); }); };
          same_thread ? life() : std::thread(life).join();
          CHECK(text == "");
          CHECK(right);
          CHECK(app.end());
          CHECK(thread_mode() == stub::kGlobal);
        }
    check_clean();
  }

  TEST_CASE("an app captures in its own mode: the thread has it back after each call") {
    int mode = stub::kThreadLocal;
    cuda::cuThreadExchangeStreamCaptureMode(&mode);
    CHECK(whole_life());
    CHECK(error_of([] { whole_life(false, {.device = "cuda:7"}); }) != "");
    CHECK(thread_mode() == stub::kThreadLocal);
    mode = stub::kGlobal;
    cuda::cuThreadExchangeStreamCaptureMode(&mode);
    check_clean();
  }

  TEST_CASE("a recording that fails once: the next run records again") {
    Machine machine;
    machine.fill();
    machine.compile();
    Expected expected;
    CHECK(machine.step(0) == expected.step(0));
    stub_fail("cuStreamEndCapture", 1, 901, kStubOnce);
    const uint64_t replayed = replays();
    CHECK(machine.step(1) == expected.step(1));
    CHECK(std::string(stub_failed()) == "cuStreamEndCapture");
    stub_lift();
    CHECK(replays() == replayed);
    CHECK(machine.step(2) == expected.step(2));
    CHECK(machine.step(3) == expected.step(3));
    CHECK(replays() == replayed + 2);
    CHECK(machine.state() == expected.s);
  }

  TEST_CASE("a program that cannot be recorded: a few runs try, the others run step by step") {
    Machine machine;
    machine.fill();
    machine.compile();
    Expected expected;
    stub_fail("cuStreamEndCapture", 1, 901, kStubLasting);
    const uint64_t tried = recordings();
    for (int64_t run = 0; run < 8; ++run) CHECK(machine.step(run) == expected.step(run));
    CHECK(recordings() == tried + 3);
    stub_lift();
  }
}
