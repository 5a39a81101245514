// SPDX-License-Identifier: Apache-2.0
// Calls a slot of a plugin. If the slot throws, although it must not, the exception becomes an
// error that names plugin and slot. During the call, signal handlers can name both.
#pragma once

#include "base/log.hpp"
#include "host/active_call.hpp"
#include "host/device.hpp"
#include "host/plugin.hpp"
#include "host/status.hpp"

namespace tenon::core {

inline const tenon_backend& table_of(const Device& device) { return device.plugin().table(); }

inline tenon_stream* handle_of(Stream* stream) { return stream ? stream->handle() : nullptr; }

inline tenon_run_args run_args(uint64_t run_id, Stream* stream, Event* done,
                               const CancelWord* cancel) {
  check(!done || stream, "run: an event without a stream");
  return {sizeof(tenon_run_args), run_id, handle_of(stream), done ? done->handle() : nullptr,
          reinterpret_cast<const uint32_t*>(cancel)};
}

// Call it in a catch block: rethrows the exception as an error of the plugin.
[[noreturn]] void rethrow_as_lie(const Plugin& plugin, const char* slot);

// Returns the result of the slot.
template <class Call>
auto guarded(const Plugin& plugin, const char* slot, Call call) -> decltype(call()) {
  const ActiveCall active(plugin.kept_name(), slot);
  try {
    return call();
  } catch (...) {
    rethrow_as_lie(plugin, slot);
  }
}

// For slots that return a status.
template <class Call>
void checked(const Plugin& plugin, const char* slot, Call call) {
  check(guarded(plugin, slot, call), plugin, slot);
}

// For calls on a device: first fails if a fault was requested.
template <class Call>
void call(const Device& device, FaultCall kind, const char* slot, Call call_slot) {
  device.faults().meet(device.info(), device.plugin(), kind, slot);
  checked(device.plugin(), slot, call_slot);
}

// For calls that change nothing when they fail: where memory is short, idle memory is freed and the
// call is made once more.
template <class Call>
void call_again(const Device& device, FaultCall kind, const char* slot, Call call_slot) {
  try {
    return call(device, kind, slot, call_slot);
  } catch (const DeviceError& e) {
    if (!e.retryable()) throw;
  }
  device.free_idle();
  call(device, kind, slot, call_slot);
}

// For slots that make an object; success without one is a lie.
template <class Handle, class Make>
Handle* made(const Device& device, FaultCall kind, const char* slot, Make make) {
  Handle* handle = nullptr;
  call_again(device, kind, slot, [&] { return make(&handle); });
  if (!handle) device.plugin().lied(slot, "succeeded without a result");
  return handle;
}

// For waits: a requested fault comes after the wait, because the work still takes place.
template <class Call>
void call_wait(const Device& device, const char* slot, Call call_slot) {
  checked(device.plugin(), slot, call_slot);
  device.faults().meet(device.info(), device.plugin(), kFaultWait, slot);
}

// For slots that release something: destructors call them, so errors are only logged.
template <class Call>
void give_back(const Plugin& plugin, const char* slot, Call call) noexcept {
  try {
    guarded(plugin, slot, call);
  } catch (const Error& e) {
    log(LogLevel::error, e.what());
  }
}

}  // namespace tenon::core
