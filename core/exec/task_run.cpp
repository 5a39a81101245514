// SPDX-License-Identifier: Apache-2.0
// Starts tasks when what they need is there.
#include "exec/task_run.hpp"

namespace tenon::core {

TaskRun::TaskRun(const RegionRunner& runner, Workers& workers)
    : runner_(runner),
      workers_(workers),
      tasks_(runner.plan().tasks),
      next_(tasks_.size()),
      behind_(tasks_.size()),
      waits_(tasks_.size()),
      left_(tasks_.size()),
      in_flight_(runner.plan().devices.size()) {
  for (uint32_t t = 0; t < tasks_.size(); ++t) {
    for (uint32_t earlier : tasks_[t].after) next_[earlier].push_back(t);
    waits_[t] = static_cast<uint32_t>(tasks_[t].after.size());
    if (const uint32_t earlier = tasks_[t].behind; earlier != kNone) {
      const bool enqueued =
          runner_.is_enqueued(tasks_[t].region) && runner_.is_enqueued(tasks_[earlier].region);
      (enqueued ? behind_ : next_)[earlier].push_back(t);
      ++waits_[t];
    }
  }
}

void TaskRun::run() {
  find_ready();
  for (;;) {
    work();
    Lock lock(mutex_);
    changed_.wait(lock, [&] { return is_over() || (!ready_.empty() && !error_); });
    if (is_over()) return;
  }
}

void TaskRun::start(std::function<void()> end) {
  end_ = std::move(end);
  find_ready();
  work();
}

void TaskRun::find_ready() {
  const std::lock_guard lock(mutex_);
  for (uint32_t t = 0; t < tasks_.size(); ++t)
    if (waits_[t] == 0) ready_.push_back(t);
}

void TaskRun::work() {
  Lock lock(mutex_);
  while (!ready_.empty() && !error_) {
    const uint32_t task = ready_.front();
    ready_.pop_front();
    ++active_;
    const bool more = !ready_.empty();
    lock.unlock();
    if (more) call_helper();
    bool has_ended = true;
    std::exception_ptr failure;
    try {
      has_ended = execute(task);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    if (failure && !error_) error_ = failure;
    if (has_ended) end_task(task);
  }
  tell_if_over(lock);
}

bool TaskRun::execute(uint32_t task) {
  const PlannedTask& planned = tasks_[task];
  if (planned.copy != kNone) {
    runner_.copy(runner_.plan().regions[planned.region].before[planned.copy]);
    return true;
  }
  if (runner_.is_enqueued(planned.region)) {
    enqueue(task);
    return false;
  }
  runner_.run(planned.region);
  return true;
}

void TaskRun::enqueue(uint32_t task) {
  const uint32_t region = tasks_[task].region;
  runner_.run(region);
  {
    const std::lock_guard lock(landing_);
    in_flight_[device_of(task)].push_back(task);
  }
  {
    const std::lock_guard lock(mutex_);
    release(behind_[task]);
  }
  // The callback comes from a thread of the plugin, through which no exception may pass.
  if (!workers_.available()) return settle(task);
  try {
    runner_.event_of(region).on_done([self = shared_from_this(), task] {
      self->workers_.post([self, task] {
        self->settle(task);
        self->work();
      });
    });
  } catch (const std::exception& e) {
    tell_no_callback(e);
    settle(task);  // waits in this thread; the region's own failure is the one to report
  }
}

void TaskRun::settle(uint32_t task) {
  std::vector<uint32_t> landed;
  std::exception_ptr failure;
  {
    // Earlier regions of the device have ended too. Their failures come first.
    const std::lock_guard lock(landing_);
    auto& queue = in_flight_[device_of(task)];
    for (; !queue.empty() && queue.front() <= task; queue.pop_front()) {
      landed.push_back(queue.front());
      try {
        runner_.wait(tasks_[queue.front()].region);
      } catch (...) {
        if (!failure) failure = std::current_exception();
      }
    }
  }
  const std::lock_guard lock(mutex_);
  if (failure && !error_) error_ = failure;
  for (uint32_t t : landed) end_task(t);
}

void TaskRun::end_task(uint32_t task) {
  --active_;
  --left_;
  release(next_[task]);
  changed_.notify_all();
}

void TaskRun::release(const std::vector<uint32_t>& tasks) {
  for (uint32_t t : tasks)
    if (--waits_[t] == 0) ready_.push_back(t);
}

void TaskRun::tell_if_over(Lock& lock) {
  if (!is_over() || told_) return;
  told_ = true;
  const std::function<void()> end = std::move(end_);
  lock.unlock();
  if (end) end();  // this object may be gone afterwards
}

void TaskRun::call_helper() noexcept {
  try {
    workers_.post([self = shared_from_this()] { self->work(); });
  } catch (const std::exception&) {  // this thread comes to it
  }
}

}  // namespace tenon::core
