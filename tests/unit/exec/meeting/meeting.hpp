// SPDX-License-Identifier: Apache-2.0
// Three plugins inside a test: "cpu", which subtracts; "meet", with host memory, and "flow", with
// streams, which refuse to subtract. Multiplying lasts until a subtraction has begun: it ends only
// where both devices run at once.
#pragma once

#include <tenon/plugin.hpp>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>

extern "C" {
const tenon_backend* cpu_entry(const tenon_host* host);
const tenon_backend* meet_entry(const tenon_host* host);
const tenon_backend* flow_entry(const tenon_host* host);
}

namespace tenon::meeting {

// Of the multiplications with the subtractions.
class Meeting {
 public:
  void reset() {
    const std::lock_guard lock(mutex_);
    subtractions_ = 0, missed_ = false;
  }
  void subtract() {
    const std::lock_guard lock(mutex_);
    ++subtractions_;
    changed_.notify_all();
  }
  void multiply() {
    std::unique_lock lock(mutex_);
    constexpr auto kHang = std::chrono::minutes(5);
    if (!changed_.wait_for(lock, kHang, [&] { return subtractions_ > 0; })) missed_ = true;
  }
  bool missed() {
    const std::lock_guard lock(mutex_);
    return missed_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int subtractions_ = 0;
  bool missed_ = false;
};
inline Meeting& meeting() {
  static Meeting& the = *new Meeting;
  return the;
}

inline void compute(std::string_view kind, int64_t count, const sdk::Call& c) {
  if (kind == "sub") meeting().subtract();
  if (kind == "mul") meeting().multiply();
  for (int64_t i = 0; i < count; ++i) {
    const float a = c.in<float>(0)[i], b = c.in<float>(1)[i];
    c.out<float>(0)[i] = kind == "add" ? a + b : kind == "mul" ? a * b : a - b;
  }
}

inline sdk::Kernel kernel_of(const sdk::op::binary& n, const sdk::Node& node) {
  const int64_t count = node.out(0).type().elements();
  return {.run = [kind = n.kind, count](const sdk::Call& c) { compute(kind, count, c); }};
}
inline sdk::Kernel make_without_sub(const sdk::op::binary& n, const sdk::Node& node) {
  if (n.kind == "sub") throw sdk::Refusal::attribute("kind", n.kind);
  return kernel_of(n, node);
}

class Memory : public sdk::Device {
 public:
  void* allocate(uint64_t bytes, uint64_t alignment) override {
    return ::operator new(bytes, std::align_val_t(alignment));
  }
  void deallocate(void* memory, uint64_t) noexcept override {
    ::operator delete(memory, std::align_val_t(64));
  }
};

}  // namespace tenon::meeting
