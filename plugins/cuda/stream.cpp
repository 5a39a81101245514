// SPDX-License-Identifier: Apache-2.0
// Runs the helper streams that call back when an event is done.
#include "stream.hpp"

#include <atomic>

namespace tenon::cuda {

struct Callbacks::Helper {
  Stream stream = nullptr;
  std::atomic<int> waiting{0};
};

struct Callbacks::Call {
  void (*callback)(void*);
  void* user;
  Helper* helper;

  void make() {
    std::unique_ptr<Call> self(this);
    helper->waiting.fetch_sub(1);
    callback(user);
  }
};

Callbacks::Callbacks() = default;

Callbacks::~Callbacks() {
  for (const auto& h : helpers_) {
    driver().stream_synchronize(h->stream);
    driver().stream_destroy(h->stream);
  }
}

// One that waits for nothing, else a new one, up to a number that no host needs.
Callbacks::Helper& Callbacks::idle_helper() {
  constexpr size_t kMost = 32;
  Helper* best = nullptr;
  for (const auto& h : helpers_)
    if (!best || h->waiting < best->waiting) best = h.get();
  if (best && (best->waiting == 0 || helpers_.size() == kMost)) return *best;
  auto fresh = std::make_unique<Helper>();
  TENON_CUDA(stream_create, &fresh->stream, kStreamNonBlocking);
  return *helpers_.emplace_back(std::move(fresh));
}

void Callbacks::call_when_done(Event event, void (*callback)(void*), void* user) {
  auto call = std::make_unique<Call>(callback, user, nullptr);
  {
    const std::lock_guard lock(mutex_);
    call->helper = &idle_helper();
    call->helper->waiting.fetch_add(1);
  }
  const auto back = [](Stream, Result, void* c) { static_cast<Call*>(c)->make(); };
  const Stream stream = call->helper->stream;
  const bool placed = driver().stream_wait(stream, event, 0) == result::success &&
                      driver().stream_callback(stream, back, call.get(), 0) == result::success;
  // Else the device is lost: there is nothing to wait for.
  Call* made = call.release();
  if (!placed) made->make();
}

}  // namespace tenon::cuda
