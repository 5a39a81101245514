// SPDX-License-Identifier: Apache-2.0
// Records of active plugin calls: nested calls, other threads, more threads than records.
// tests/cli/doomed.py tests real crashes.
#include "host/active_call.hpp"

#include <doctest/doctest.h>

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

using namespace tenon::core;

namespace {

struct Calls {
  std::string text;
  uint32_t count = 0;
  bool own = false;
};
Calls calls(size_t size = 1024) {
  Calls c;
  std::vector<char> text(size, 'x');
  c.count = write_active_calls(text.data(), size, c.own);
  if (size) c.text = text.data();
  return c;
}

// Threads that each stay in a call until the destructor runs.
class Crowd {
 public:
  explicit Crowd(size_t count) {
    for (size_t i = 0; i < count; ++i)
      threads_.emplace_back([this] {
        const ActiveCall active("other", "wait");
        std::unique_lock lock(mutex_);
        ++inside_;
        changed_.notify_all();
        changed_.wait(lock, [&] { return done_; });
      });
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return inside_ == count; });
  }
  ~Crowd() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    changed_.notify_all();
    for (std::thread& t : threads_) t.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t inside_ = 0;
  bool done_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

TEST_SUITE("host/active_call") {
  TEST_CASE("nested: the inner call is named, then the outer one, then none") {
    CHECK(calls().count == 0);
    CHECK(calls().text.empty());
    const uint64_t before = call_steps();
    {
      const ActiveCall outer(kept_text("a"), "run");
      CHECK(calls().text == "plugin 'a', call 'run'");
      {
        const ActiveCall inner(kept_text(std::string("b\n\x7F")), "create");
        CHECK(calls().text == "plugin 'b\?\?', call 'create'");
      }
      CHECK(calls().text == "plugin 'a', call 'run'");
      CHECK(calls().own);
    }
    CHECK(calls().count == 0);
    CHECK(call_steps() == before + 4);
  }

  TEST_CASE("threads: the own call comes first, a thread that ended gives its record back") {
    const ActiveCall active("own", "run");
    for (int round = 0; round < 400; ++round) {
      const Crowd crowd(2);
      const Calls c = calls();
      REQUIRE(c.count == 3);
      REQUIRE(c.text ==
              "plugin 'own', call 'run'; plugin 'other', call 'wait'; plugin 'other', call 'wait'");
    }
    CHECK(calls().count == 1);
  }

  TEST_CASE("threads: a call of another thread is not the own one") {
    const Crowd crowd(1);
    const Calls c = calls();
    CHECK(c.count == 1);
    CHECK_FALSE(c.own);
  }

  TEST_CASE("threads: more than there are records for") {
    const Crowd crowd(300);
    const Calls c = calls();
    CHECK(c.count >= 200);
    CHECK(c.count <= 300);
    CHECK(c.text.size() == 1023);  // cut
  }

  TEST_CASE("text: cut to the room that there is") {
    const ActiveCall active("cpu", "run");
    CHECK(calls(11).text == "plugin 'cp");
    CHECK(calls(1).text.empty());
    CHECK(calls(0).count == 1);
  }
}
