// SPDX-License-Identifier: Apache-2.0
// Prepares all programs of a plan on several threads.
#include "exec/prepare.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "plan/control.hpp"

namespace tenon::core {
namespace {

constexpr auto kLookAgain = std::chrono::milliseconds(50);

struct Part {
  const Program* program;
  uint32_t index;
};

[[noreturn]] void stopped(uint32_t done, uint32_t total) {
  fail(Code::cancelled, "compiling ahead was stopped when ", done, " of ", total,
       " parts were done");
}

// Threads take parts one after another; the caller's only tells how far they are: what it is told
// may take its time.
class Crew {
 public:
  Crew(std::vector<Part> parts, uint32_t threads) : parts_(std::move(parts)) {
    const size_t count = std::min<size_t>(std::max(threads, 1u), parts_.size());
    threads_.reserve(count);
    try {
      for (size_t i = 0; i < count; ++i) threads_.emplace_back([this] { work(); });
    } catch (const std::system_error&) {  // those that there are do it
    }
    if (threads_.empty()) work();
  }
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;
  ~Crew() {
    stop();
    join();
  }

  void finish(const CompileProgress& progress) {
    const auto total = static_cast<uint32_t>(parts_.size());
    bool wanted = true;
    std::unique_lock lock(mutex_);
    while (wanted) {
      const uint32_t done = done_;
      lock.unlock();
      wanted = !progress || progress(done, total);
      lock.lock();
      if (failure_ || done == total) break;
      changed_.wait_for(lock, kLookAgain, [&] { return failure_ || done_ != done; });
    }
    lock.unlock();
    stop();
    join();
    if (failure_) std::rethrow_exception(failure_);
    if (!wanted) stopped(done_, total);
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    while (!stopped_ && next_ < parts_.size()) {
      const Part part = parts_[next_++];
      lock.unlock();
      std::exception_ptr failure;
      try {
        part.program->prepare(part.index);
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      if (!failure)
        ++done_;
      else if (!failure_)
        failure_ = failure;
      if (failure) stopped_ = true;
      changed_.notify_one();
    }
  }
  void stop() {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  void join() {
    for (std::thread& t : threads_)
      if (t.joinable()) t.join();
  }

  const std::vector<Part> parts_;
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t next_ = 0;
  uint32_t done_ = 0;
  bool stopped_ = false;
  std::exception_ptr failure_;
  std::vector<std::thread> threads_;
};

void collect(const Plan& plan, std::vector<Part>& parts) {
  for (const PlannedRegion& region : plan.regions) {
    for (uint32_t i = 0, count = region.program->part_count(); i < count; ++i)
      parts.push_back({region.program.get(), i});
    if (region.control.plan)
      for (const PlannedFunction& f : region.control.plan->functions) collect(*f.plan, parts);
  }
}

}  // namespace

void prepare_programs(const Plan& plan, uint32_t threads, const CompileProgress& progress) {
  std::vector<Part> parts;
  collect(plan, parts);
  if (parts.empty()) return;
  // Before anybody begins, so that the first that is told is none.
  const auto total = static_cast<uint32_t>(parts.size());
  if (progress && !progress(0, total)) stopped(0, total);
  Crew(std::move(parts), threads).finish(progress);
}

}  // namespace tenon::core
