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

namespace {

// A command that a lost device skips.
Command guarded(Device& device, Command command) {
  return [&device, command = std::move(command)] {
    if (device.lost()) return;
    try {
      command();
    } catch (const std::exception& e) {
      device.lose(e.what());
    }
  };
}
Command command_of(Device& device, LaunchPtr launch) {
  return [&device, launch = std::move(launch)] { launch->code->run(device, launch->arguments); };
}
Command copy_of(Device& device, Part target, Part source, uint64_t bytes, const Device& owner) {
  return [=, &device, &owner] {
    std::memcpy(device.map(target, bytes), owner.map(source, bytes), bytes);
  };
}

}  // namespace

void Queue::launch(LaunchPtr launch) { post(command_of(device_, std::move(launch))); }
void Queue::write(Part target, const void* source, uint64_t bytes) {
  post([=, &device = device_] { std::memcpy(device.map(target, bytes), source, bytes); });
}
void Queue::read(void* target, Part source, uint64_t bytes) {
  post([=, &device = device_] { std::memcpy(target, device.map(source, bytes), bytes); });
}
void Queue::copy(Part target, Part source, uint64_t bytes, const Device* owner) {
  post(copy_of(device_, target, source, bytes, owner ? *owner : device_));
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
    if (state->recording && state->recording->ended_)
      throw std::runtime_error("an event was last recorded in a recording that has ended");
    if (state->recording && !recording_) {
      recording_ = state->recording;
      recording_->queues_.push_back(this);
    }
    if (recording_ != state->recording)
      throw std::runtime_error("a recording waits for an event that is not part of it");
    if (recording_) return;
    point = state->recorded;
  }
  enqueue([state, point] { state->wait(point); });
}

// ---- Recordings

void Recording::add(Command command) {
  if (ended_) throw std::logic_error("a command is added to a recording that has ended");
  commands_.push_back(guarded(device_, std::move(command)));
}
void Recording::launch(LaunchPtr launch) { add(command_of(device_, std::move(launch))); }
void Recording::copy(Part target, Part source, uint64_t bytes) {
  add(copy_of(device_, target, source, bytes, device_));
}
void Recording::end() { ended_ = true; }

void Queue::begin_recording() {
  if (!device_.properties().captures) throw std::logic_error("this device captures no queues");
  recording_ = std::make_shared<Recording>(device_);
  recording_->queues_ = {this};
}
std::shared_ptr<Recording> Queue::end_recording() {
  const std::shared_ptr<Recording> recording = recording_;
  recording->end();
  for (Queue* queue : recording->queues_) queue->recording_ = nullptr;
  return recording;
}
void Queue::replay(std::shared_ptr<const Recording> recording) {
  if (!recording->ended_) throw std::logic_error("a recording is replayed before its end");
  for (const Command& command : recording->commands_) enqueue([recording, &command] { command(); });
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

// Captures or enqueues a command.
void Queue::post(Command command) {
  if (recording_)
    recording_->add(std::move(command));
  else
    enqueue(guarded(device_, std::move(command)));
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
