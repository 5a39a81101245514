// SPDX-License-Identifier: Apache-2.0
// The host's own threads: they carry asynchronous runs on, and compute those of plugins without
// streams. Made when needed, at most kMost and as many as the system makes; posted work starts in
// order.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/log.hpp"

namespace tenon::core {

class Workers {
 public:
  static constexpr size_t kMost = 16;

  Workers() = default;
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;
  // Finishes what was posted.
  ~Workers() {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    for (std::thread& t : threads_) t.join();
  }

  // Creates the first thread if there is none. Once this has returned true, post() does not fail for
  // want of a thread, so callbacks of a plugin may post. False: the system creates no thread, the
  // caller does the work, and later calls try again.
  bool available() noexcept {
    try {
      std::lock_guard lock(mutex_);
      if (!threads_.empty()) return true;
      try {
        threads_.emplace_back([this] { loop(); });
        return true;
      } catch (const std::exception& e) {
        if (!std::exchange(remarked_, true))
          log(LogLevel::warning,
              cat("runs of several regions: the system makes no thread for them (", e.what(),
                  "); they are done by the calling thread, one region after another; hint: raise "
                  "the limit of processes (ulimit -u, pids)"));
      }
    } catch (...) {  // no memory for the remark
    }
    return false;
  }

  // work does not throw. Fails where there is no thread and none can be made; later calls try
  // again.
  void post(std::function<void()> work) {
    std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
    if (queue_.size() > idle_ && threads_.size() < most_) add_thread();
    wake_.notify_one();
  }

 private:
  void add_thread() {
    try {
      threads_.emplace_back([this] { loop(); });
    } catch (const std::exception& e) {
      if (threads_.empty()) {
        queue_.pop_back();
        fail(Code::out_of_memory, "asynchronous runs: the system makes no thread for them (",
             e.what(),
             "); expected at least one; hint: raise the limit of processes (ulimit -u, pids), or "
             "run synchronously");
      }
      // Those that there are will come to it.
      most_ = threads_.size();
      log(LogLevel::warning,
          cat("asynchronous runs: the system makes ", most_, " threads for them of ", kMost,
              "; the limit of processes may be too low (ulimit -u, pids)"));
    }
  }
  void loop() {
    std::unique_lock lock(mutex_);
    for (;;) {
      ++idle_;
      wake_.wait(lock, [&] { return stop_ || !queue_.empty(); });
      --idle_;
      if (queue_.empty()) return;
      auto work = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      work();
      work = nullptr;
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> queue_;
  std::vector<std::thread> threads_;
  size_t most_ = kMost;
  size_t idle_ = 0;
  bool stop_ = false;
  bool remarked_ = false;  // that there is no thread
};

}  // namespace tenon::core
