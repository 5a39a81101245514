// SPDX-License-Identifier: Apache-2.0
// Records the active plugin calls of each thread, so that a signal handler can name them after a
// crash or during a hang. A call costs a few stores to memory of its own thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tenon::core {

// The active call of one thread. Signal handlers on any thread read it.
struct alignas(64) CallRecord {
  std::atomic<int> thread{0};  // thread id; 0: the record is free
  std::atomic<const char*> plugin{nullptr};
  std::atomic<const char*> slot{nullptr};
  std::atomic<uint64_t> steps{0};  // grows when a call begins or ends
};
CallRecord& record_of_this_thread() noexcept;

// Returns a copy that is never freed, because a signal handler may read it at any time. Control
// bytes become '?'.
const char* kept_text(std::string_view text);

// Marks the call as active on this thread during its lifetime. Both texts must never be freed.
class ActiveCall {
 public:
  ActiveCall(const char* plugin, const char* slot) noexcept
      : record_(record_of_this_thread()),
        outer_plugin_(record_.plugin.load(std::memory_order_relaxed)),
        outer_slot_(record_.slot.load(std::memory_order_relaxed)) {
    enter(plugin, slot);
  }
  ~ActiveCall() { enter(outer_plugin_, outer_slot_); }
  ActiveCall(const ActiveCall&) = delete;
  ActiveCall& operator=(const ActiveCall&) = delete;

 private:
  void enter(const char* plugin, const char* slot) noexcept {
    record_.steps.store(record_.steps.load(std::memory_order_relaxed) + 1,
                        std::memory_order_relaxed);
    record_.slot.store(slot, std::memory_order_relaxed);
    record_.plugin.store(plugin, std::memory_order_release);
  }

  CallRecord& record_;
  const char* outer_plugin_;
  const char* outer_slot_;
};

// The two functions below are async-signal-safe.
// Writes the active calls as "plugin 'cpu', call 'run'", joined by "; ", the calling thread's first,
// cut to size - 1 bytes and a zero. Returns the number of active calls. Sets own if the calling
// thread has one.
uint32_t write_active_calls(char* out, size_t size, bool& own) noexcept;
// A counter that grows when any call begins or ends.
uint64_t call_steps() noexcept;

}  // namespace tenon::core
