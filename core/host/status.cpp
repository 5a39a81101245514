// SPDX-License-Identifier: Apache-2.0
// Creates, registers, reads and releases status objects.
#include "host/status.hpp"

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_set>

#include "host/plugin.hpp"

struct tenon_status {
  tenon_code code = TENON_INTERNAL;
  uint32_t flags = 0;
  std::string text, origin;
  std::unique_ptr<tenon_status> cause;
  tenon::core::FailedNode at;
  uint64_t run_id = 0;
  uint32_t step = TENON_NONE;
  int64_t index = -1;

  // Not recursive, because a chain may be long.
  ~tenon_status() {
    while (cause) {
      std::unique_ptr<tenon_status> next = std::move(cause->cause);
      cause = std::move(next);
    }
  }
};

namespace tenon::core {
namespace {

// Never destroyed, because plugins may hold statuses at process exit.
struct Registry {
  std::mutex mutex;
  std::unordered_set<const tenon_status*> live;
  tenon_status no_memory;  // returned if no status can be created

  Registry() {
    no_memory.code = TENON_OUT_OF_MEMORY;
    no_memory.flags = TENON_STATUS_RETRYABLE;
    no_memory.text = "out of memory while another failure was reported";
  }
  bool holds(const tenon_status* status) {
    const std::lock_guard lock(mutex);
    return status == &no_memory || live.count(status) != 0;
  }
  // Returns true if the status was live; it then belongs to the caller.
  bool take(const tenon_status* status) {
    const std::lock_guard lock(mutex);
    return live.erase(status) != 0;
  }
};
Registry& registry() {
  static Registry& the = *new Registry;
  return the;
}

Code known_code(tenon_code code) {
  const bool known = code > TENON_OK && code <= TENON_INTERNAL;
  return known ? static_cast<Code>(code) : Code::internal;
}

[[noreturn]] void raise(const tenon_status& status, std::string text) {
  text += status.text.empty() ? "failed without a reason" : status.text;
  for (const tenon_status* cause = status.cause.get(); cause; cause = cause->cause.get()) {
    text += ": caused by ";
    if (!cause->origin.empty()) text += cause->origin + ": ";
    text += cause->text;
  }
  const DeviceError error(known_code(status.code), text, status.run_id, status.step, status.index,
                          (status.flags & TENON_STATUS_RETRYABLE) != 0);
  if (status.flags & TENON_STATUS_WITHDRAWN) throw Withdrawal(error);
  throw error;
}

void check_with(tenon_status* status, const std::string* prefix) {
  if (!status) return;
  Registry& all = registry();
  if (status == &all.no_memory) raise(*status, prefix ? *prefix : std::string());
  if (!all.take(status)) {
    fail(Code::internal, prefix ? *prefix : "a plugin ",
         "returned a status that the host did not make, or that was released");
  }
  const std::unique_ptr<tenon_status> owned(status);
  if (prefix) raise(*owned, *prefix);
  raise(*owned, owned->origin.empty() ? std::string() : owned->origin + ": ");
}

}  // namespace

std::string copy_text(tenon_str text) {
  constexpr uint64_t kLongest = 1 << 20;
  if (text.size == 0) return {};
  if (!text.data) return cat("(", text.size, " bytes at no address)");
  if (text.size > kLongest) return cat("(a text of ", text.size, " bytes)");
  std::string copy(text.data, text.size);
  for (char& c : copy) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7F) c = '?';
  }
  return copy;
}

tenon_status* make_status(const tenon_status_desc* desc, const FailedNode* at) noexcept {
  Registry& all = registry();
  try {
    auto status = std::make_unique<tenon_status>();
    if (!desc || !TENON_HAS(tenon_status_desc, desc, text)) {
      status->text = "a status whose description is too small";
    } else {
      status->code = desc->code;
      status->flags = desc->flags;
      status->text = copy_text(desc->text);
      if (TENON_HAS(tenon_status_desc, desc, origin)) status->origin = copy_text(desc->origin);
      if (TENON_HAS(tenon_status_desc, desc, cause) && desc->cause && all.take(desc->cause)) {
        status->cause.reset(desc->cause);
      }
      if (TENON_HAS(tenon_status_desc, desc, run_id)) status->run_id = desc->run_id;
      if (TENON_HAS(tenon_status_desc, desc, step)) status->step = desc->step;
      if (TENON_HAS(tenon_status_desc, desc, index)) status->index = desc->index;
      if (at) status->at = *at;
    }
    const std::lock_guard lock(all.mutex);
    all.live.insert(status.get());
    return status.release();
  } catch (...) {
    return &all.no_memory;
  }
}

void release_status(tenon_status* status) noexcept {
  if (status && registry().take(status)) delete status;
}

tenon_code status_code(const tenon_status* status) noexcept {
  if (!status) return TENON_OK;
  return registry().holds(status) ? status->code : TENON_INTERNAL;
}

tenon_str status_text(const tenon_status* status) noexcept {
  if (!status || !registry().holds(status)) return {"", 0};
  return {status->text.data(), status->text.size()};
}

StatusPlace status_place(const tenon_status* status) noexcept {
  if (!status || !registry().holds(status)) return {};
  return {&status->at, status->run_id, status->index,
          (status->flags & TENON_STATUS_RETRYABLE) != 0};
}

size_t live_status_count() {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  return all.live.size();
}

void check(tenon_status* status) { check_with(status, nullptr); }

void check(tenon_status* status, const Plugin& plugin, const char* slot) {
  if (!status) return;  // the common case builds no text
  const std::string prefix = cat("plugin ", plugin.name(), ": ", slot, ": ");
  check_with(status, &prefix);
}

}  // namespace tenon::core
