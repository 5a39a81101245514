// SPDX-License-Identifier: Apache-2.0
// Runs the helper streams that call back when an event is done.
#include "stream.hpp"

#include <algorithm>
#include <atomic>

namespace tenon::cuda {

// The driver's reference to a call outlives Callbacks where the driver calls late, so the call owns
// what it uses.
struct Callbacks::Call {
  void (*callback)(void*);
  void* user;
  std::shared_ptr<Helper> helper;
  std::atomic<bool> made{false};

  Call(void (*callback_)(void*), void* user_) : callback(callback_), user(user_) {}
  void make();
};

struct Callbacks::Helper {
  Stream stream = nullptr;
  std::mutex mutex{};
  std::vector<std::shared_ptr<Call>> calls{};  // that were not made yet

  size_t waiting() {
    const std::lock_guard lock(mutex);
    return calls.size();
  }
};

void Callbacks::Call::make() {
  if (made.exchange(true)) return;
  {
    const std::lock_guard lock(helper->mutex);
    std::erase_if(helper->calls, [this](const auto& c) { return c.get() == this; });
  }
  callback(user);
}

Callbacks::Callbacks() = default;

Callbacks::~Callbacks() {
  for (const auto& h : helpers_) {
    if (driver().stream_synchronize(h->stream) != result::success) {
      std::vector<std::shared_ptr<Call>> left;
      {
        const std::lock_guard lock(h->mutex);
        left = h->calls;
      }
      for (const auto& c : left) c->make();
    }
    driver().stream_destroy(h->stream);
  }
}

// One that waits for nothing, else a new one, up to a number that no host needs.
std::shared_ptr<Callbacks::Helper> Callbacks::idle_helper() {
  constexpr size_t kMost = 32;
  const auto best =
      std::ranges::min_element(helpers_, {}, [](const auto& h) { return h->waiting(); });
  if (best != helpers_.end() && (helpers_.size() == kMost || (*best)->waiting() == 0)) return *best;
  auto fresh = std::make_shared<Helper>();
  TENON_CUDA(stream_create, &fresh->stream, kStreamNonBlocking);
  return helpers_.emplace_back(std::move(fresh));
}

void Callbacks::call_when_done(Event event, void (*callback)(void*), void* user) {
  const auto call = std::make_shared<Call>(callback, user);
  auto for_driver = std::make_unique<std::shared_ptr<Call>>(call);
  {
    const std::lock_guard lock(mutex_);
    call->helper = idle_helper();
    const std::lock_guard of_helper(call->helper->mutex);
    call->helper->calls.push_back(call);
  }
  const auto back = [](Stream, Result, void* c) {
    const std::unique_ptr<std::shared_ptr<Call>> own(static_cast<std::shared_ptr<Call>*>(c));
    (*own)->make();
  };
  const Stream stream = call->helper->stream;
  if (driver().stream_wait(stream, event, 0) == result::success &&
      driver().stream_callback(stream, back, for_driver.get(), 0) == result::success) {
    for_driver.release();
    return;
  }
  driver().event_synchronize(event);  // returns at once on a lost device
  call->make();
}

}  // namespace tenon::cuda
