// SPDX-License-Identifier: Apache-2.0
// Runs the tasks of a plan with several regions. Each begins as soon as the tasks that it needs
// have ended, in the thread of the caller or in workers, so that devices and transfers overlap.
// Private to exec.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "exec/region_runner.hpp"
#include "exec/workers.hpp"

namespace tenon::core {

class TaskRun : public std::enable_shared_from_this<TaskRun> {
 public:
  TaskRun(const RegionRunner& runner, Workers& workers);

  // Returns when all tasks have ended, or when one has failed and none is in progress any more.
  void run();
  // Returns early; `end` is called once, in some thread, at the point where run() would return.
  void start(std::function<void()> end);
  // Throws the first failure.
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  using Lock = std::unique_lock<std::mutex>;

  void find_ready();
  void work();                  // runs tasks while some are ready
  bool execute(uint32_t task);  // false: enqueued, and ends in settle()
  void enqueue(uint32_t task);
  void settle(uint32_t task);    // waits for the end of an enqueued region
  void end_task(uint32_t task);  // with mutex_ held, like the functions below
  void release(const std::vector<uint32_t>& tasks);
  bool is_over() const { return active_ == 0 && (left_ == 0 || error_); }
  void tell_if_over(Lock& lock);  // unlocks
  void call_helper() noexcept;
  uint32_t device_of(uint32_t task) const {
    return runner_.plan().regions[tasks_[task].region].device;
  }

  const RegionRunner runner_;
  Workers& workers_;
  const std::vector<PlannedTask>& tasks_;
  std::vector<std::vector<uint32_t>> next_;    // per task: what waits for its end
  std::vector<std::vector<uint32_t>> behind_;  // per task: what waits until it is enqueued

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<uint32_t> waits_;  // per task: how many others it still waits for
  std::deque<uint32_t> ready_;
  size_t left_;          // tasks that have not ended
  uint32_t active_ = 0;  // tasks in progress
  std::exception_ptr error_;
  std::function<void()> end_;
  bool told_ = false;  // that it is over

  std::mutex landing_;                           // guards in_flight_
  std::vector<std::deque<uint32_t>> in_flight_;  // [device]: enqueued regions, in order
};

}  // namespace tenon::core
