// SPDX-License-Identifier: Apache-2.0
// Collects the records of runs while a trace is active, up to its limit.
#include "exec/trace.hpp"

#include <unistd.h>

#include <chrono>
#include <utility>

#include "exec/executable.hpp"

namespace tenon::core {

int64_t now_ns() {
  using namespace std::chrono;
  return duration_cast<nanoseconds>(steady_clock::now().time_since_epoch()).count();
}

void RunTrace::add(Slice::Kind kind, int64_t begin_ns, uint64_t index) noexcept {
  thread_local const auto thread = static_cast<uint32_t>(::gettid());
  const int64_t end_ns = now_ns();
  const std::lock_guard lock(*mutex_);
  try {
    slices.push_back({kind, thread, index, begin_ns, end_ns});
  } catch (...) {
  }
}

void Trace::add(RunTrace run) noexcept {
  uint64_t count = run.slices.size();
  for (const RegionTimes& r : run.regions) count += r.steps.size();
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  if (count > most_slices_ - slices_) {
    ++dropped_;
    return;
  }
  try {
    runs_.push_back(std::move(run));
    slices_ += count;
  } catch (...) {
    ++dropped_;
  }
}

void Trace::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  end_ns_ = now_ns();
}

void Tracing::start(uint64_t most_slices) {
  auto fresh = std::make_shared<Trace>(most_slices);
  const std::lock_guard lock(mutex_);
  if (trace_) fail(Code::invalid_argument, "trace: one is recording already; stop it first");
  trace_ = std::move(fresh);
  on_.store(true, std::memory_order_relaxed);
}

std::shared_ptr<const Trace> Tracing::stop() {
  std::shared_ptr<Trace> ended;
  {
    const std::lock_guard lock(mutex_);
    if (!trace_) fail(Code::invalid_argument, "trace: none is recording");
    on_.store(false, std::memory_order_relaxed);
    ended = std::exchange(trace_, nullptr);
  }
  ended->close();
  return ended;
}

}  // namespace tenon::core
