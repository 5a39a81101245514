// SPDX-License-Identifier: Apache-2.0
// The end of a piece of work, that others wait for or continue from.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace tenon::core {

class Completion {
 public:
  // Once. Runs the continuations in the calling thread: they are short, do not wait, and take no lock
  // that the caller may hold.
  void finish() {
    std::vector<std::function<void()>> continuations;
    {
      std::lock_guard lock(mutex_);
      done_ = true;
      continuations.swap(continuations_);
    }
    changed_.notify_all();
    for (auto& f : continuations) f();
  }
  bool done() const {
    std::lock_guard lock(mutex_);
    return done_;
  }
  void wait() const {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_; });
  }
  // Keeps f for the end and returns true; false when the end is past, and f was not kept.
  bool then(std::function<void()> f) {
    std::lock_guard lock(mutex_);
    if (done_) return false;
    continuations_.push_back(std::move(f));
    return true;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool done_ = false;
  std::vector<std::function<void()>> continuations_;
};

}  // namespace tenon::core
