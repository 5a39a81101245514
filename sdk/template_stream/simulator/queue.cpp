// SPDX-License-Identifier: Apache-2.0
// Queues, events and recordings.
#include <cstring>
#include <utility>

#include "driver.hpp"

namespace simulator {

// ---- Events

void Event::State::pass(uint64_t point) {
  std::vector<std::function<void()>> due;
  {
    const std::lock_guard lock(mutex);
    open.erase(point);
    time = std::chrono::steady_clock::now();
    std::erase_if(callbacks, [&](auto& callback) {
      if (open.contains(callback.first)) return false;
      due.push_back(std::move(callback.second));
      return true;
    });
  }
  changed.notify_all();
  for (const auto& callback : due) callback();
}
void Event::State::wait(uint64_t point) {
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return !open.contains(point); });
}

bool Event::done() const {
  const std::lock_guard lock(state_->mutex);
  return !state_->open.contains(state_->recorded);
}
void Event::wait() const {
  uint64_t point;
  {
    const std::lock_guard lock(state_->mutex);
    point = state_->recorded;
  }
  state_->wait(point);
}
void Event::on_done(std::function<void()> callback) const {
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->open.contains(state_->recorded)) {
      state_->callbacks.emplace_back(state_->recorded, std::move(callback));
      return;
    }
  }
  callback();
}
std::chrono::steady_clock::time_point Event::time() const {
  const std::lock_guard lock(state_->mutex);
  return state_->time;
}

// ---- Commands

void Queue::launch(CodePtr code, Arguments arguments) {
  post([&device = device_, code = std::move(code), arguments = std::move(arguments)] {
    code->run(device, arguments);
  });
}
void Queue::write(Part target, const void* source, uint64_t bytes) {
  post([=, &device = device_] { std::memcpy(device.map(target, bytes), source, bytes); });
}
void Queue::read(void* target, Part source, uint64_t bytes) {
  post([=, &device = device_] { std::memcpy(target, device.map(source, bytes), bytes); });
}
void Queue::copy(Part target, Part source, uint64_t bytes, const Device* owner) {
  const Device* from = owner ? owner : &device_;
  post([=, &device = device_] {
    std::memcpy(device.map(target, bytes), from->map(source, bytes), bytes);
  });
}
void Queue::fill(Part target, unsigned char byte, uint64_t bytes) {
  post([=, &device = device_] { std::memset(device.map(target, bytes), byte, bytes); });
}

// A recording keeps the order of its commands, so events in it need no commands.
void Queue::record(const Event& event) {
  const auto& state = event.state_;
  uint64_t point;
  {
    const std::lock_guard lock(state->mutex);
    state->recording = recording_;
    if (recording_) return;
    point = ++state->recorded;
    state->open.insert(point);
  }
  enqueue([state, point] { state->pass(point); });
}
void Queue::wait(const Event& event) {
  const auto& state = event.state_;
  uint64_t point;
  {
    const std::lock_guard lock(state->mutex);
    if (state->recording && state->recording->ended)
      throw std::runtime_error("an event was last recorded in a recording that has ended");
    if (state->recording && !recording_) {
      recording_ = state->recording;
      recording_->queues.push_back(this);
    }
    if (recording_ != state->recording)
      throw std::runtime_error("a recording waits for an event that is not part of it");
    if (recording_) return;
    point = state->recorded;
  }
  enqueue([state, point] { state->wait(point); });
}

// ---- Recordings

void Queue::begin_recording() {
  recording_ = std::make_shared<Recording>();
  recording_->queues = {this};
}
std::shared_ptr<Recording> Queue::end_recording() {
  const std::shared_ptr<Recording> recording = recording_;
  recording->ended = true;
  for (Queue* queue : recording->queues) queue->recording_ = nullptr;
  return recording;
}
void Queue::replay(std::shared_ptr<const Recording> recording) {
  for (const Command& command : recording->commands) enqueue([recording, &command] { command(); });
}

// ---- The thread

Queue::~Queue() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Queue::finish() {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return commands_.empty() && !busy_; });
  }
  device_.check();
}

// Records or enqueues a command that a lost device skips.
void Queue::post(Command command) {
  Command guarded = [&device = device_, command = std::move(command)] {
    if (device.lost()) return;
    try {
      command();
    } catch (const std::exception& e) {
      device.lose(e.what());
    }
  };
  if (recording_)
    recording_->commands.push_back(std::move(guarded));
  else
    enqueue(std::move(guarded));
}

void Queue::enqueue(Command command) {
  {
    const std::lock_guard lock(mutex_);
    commands_.push_back(std::move(command));
  }
  changed_.notify_all();
}

void Queue::loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stop_ || !commands_.empty(); });
    if (commands_.empty()) return;
    const Command command = std::move(commands_.front());
    commands_.pop_front();
    busy_ = true;
    lock.unlock();
    command();
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

}  // namespace simulator
