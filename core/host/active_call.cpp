// SPDX-License-Identifier: Apache-2.0
// The records of all threads. They are in static memory, because a signal handler may neither
// allocate memory nor touch a thread_local that is not initialized yet.
#include "host/active_call.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <set>
#include <string>

namespace tenon::core {
namespace {

// Further threads share `unnamed` and are not reported.
constinit CallRecord records[256];
constinit CallRecord unnamed;
static_assert(std::atomic<const char*>::is_always_lock_free &&
              std::atomic<uint64_t>::is_always_lock_free);

int thread_id() noexcept { return static_cast<int>(::syscall(SYS_gettid)); }

CallRecord& take_record() noexcept {
  const int id = thread_id();
  for (CallRecord& r : records) {
    int free = 0;
    if (r.thread.load(std::memory_order_relaxed) == 0 && r.thread.compare_exchange_strong(free, id))
      return r;
  }
  return unnamed;
}

constinit thread_local CallRecord* current = nullptr;

// Frees the record when the thread ends. Later calls of that thread are not reported.
struct Holder {
  ~Holder() {
    if (current != &unnamed) current->thread.store(0, std::memory_order_release);
    current = &unnamed;
  }
};

CallRecord& first_record() noexcept {
  current = &take_record();
  thread_local const Holder holder;
  static_cast<void>(&holder);
  return *current;
}

// Appends text to a buffer of fixed size.
class Line {
 public:
  Line(char* out, size_t size) : at_(out), end_(size ? out + size - 1 : out), empty_(size == 0) {
    if (!empty_) *at_ = '\0';
  }
  void add(const char* text) noexcept {
    if (empty_) return;
    const size_t count = std::min(std::strlen(text), static_cast<size_t>(end_ - at_));
    std::memcpy(at_, text, count);
    at_ += count;
    *at_ = '\0';
  }

 private:
  char *at_, *end_;
  bool empty_;
};

}  // namespace

CallRecord& record_of_this_thread() noexcept { return current ? *current : first_record(); }

const char* kept_text(std::string_view text) {
  static std::mutex mutex;
  static auto& kept = *new std::set<std::string, std::less<>>;  // its nodes do not move
  const std::lock_guard lock(mutex);
  std::string copy(text);
  for (char& c : copy)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
  return kept.insert(std::move(copy)).first->c_str();
}

uint32_t write_active_calls(char* out, size_t size, bool& own) noexcept {
  Line line(out, size);
  uint32_t count = 0;
  own = false;
  const int this_thread = thread_id();
  for (const bool others : {false, true})
    for (const CallRecord& r : records) {
      const int thread = r.thread.load(std::memory_order_acquire);
      const char* plugin = r.plugin.load(std::memory_order_acquire);
      const char* slot = r.slot.load(std::memory_order_relaxed);
      if (thread == 0 || (thread != this_thread) != others || !plugin || !slot) continue;
      own = own || !others;
      if (count++) line.add("; ");
      for (const char* part : {"plugin '", plugin, "', call '", slot, "'"}) line.add(part);
    }
  return count;
}

uint64_t call_steps() noexcept {
  uint64_t sum = 0;
  for (const CallRecord& r : records) sum += r.steps.load(std::memory_order_relaxed);
  return sum;
}

}  // namespace tenon::core
