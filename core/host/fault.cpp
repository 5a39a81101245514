// SPDX-License-Identifier: Apache-2.0
// Counts calls of plugins, and makes chosen ones fail.
#include "host/fault.hpp"

#include <utility>

#include "host/plugin.hpp"
#include "host/status.hpp"

namespace tenon::core {

uint64_t Faults::set(const Fault& fault) {
  const std::lock_guard lock(mutex_);
  fault_ = fault;
  lost_.clear();
  active_.store(true, std::memory_order_release);
  return std::exchange(met_, 0);
}

uint64_t Faults::lift() {
  const std::lock_guard lock(mutex_);
  lost_.clear();
  active_.store(false, std::memory_order_release);
  return std::exchange(met_, 0);
}

void Faults::strike(const DeviceInfo& device, const Plugin& plugin, FaultCall call,
                    const char* slot) {
  std::string text;
  tenon_code code = 0;
  {
    const std::lock_guard lock(mutex_);
    if (!active_.load(std::memory_order_relaxed)) return;  // removed meanwhile
    const bool meant =
        (fault_.calls == 0 || (fault_.calls & call) != 0) &&
        (fault_.device.empty() || fault_.device == device.id || fault_.device == device.kind);
    if (meant) ++met_;
    const bool hit =
        meant && fault_.nth != 0 && (met_ == fault_.nth || (fault_.lasting && met_ > fault_.nth));
    const bool lost = lost_.count(device.id) != 0;
    if (!hit && !lost) return;
    code = static_cast<tenon_code>(hit ? fault_.code : Code::device_lost);
    text = hit ? cat("fault asked for, call ", met_, " on ", device.id)
               : cat("fault asked for, ", device.id, " is lost");
    if (fault_.code == Code::device_lost) lost_.insert(device.id);
  }
  // A status like that of a plugin, so that it takes the same path to the caller.
  tenon_status_desc desc{};
  desc.struct_size = sizeof desc;
  desc.code = code;
  desc.flags = code == TENON_OUT_OF_MEMORY ? TENON_STATUS_RETRYABLE : 0;
  desc.text = {text.data(), text.size()};
  desc.step = TENON_NONE;
  desc.index = -1;
  core::check(make_status(&desc), plugin, slot);
}

}  // namespace tenon::core
