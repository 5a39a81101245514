// SPDX-License-Identifier: Apache-2.0
// Status objects: created by the host on behalf of plugins, and converted to DeviceError by
// check(). All live ones are known, so a status that a plugin invented or has released already is
// refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "tenon/backend.h"

namespace tenon::core {

class Plugin;

// A failure that a plugin reported.
class DeviceError : public Error {
 public:
  DeviceError(Code code, const std::string& text, uint64_t run_id, uint32_t step, int64_t index,
              bool retryable)
      : Error(code, text), run_id_(run_id), step_(step), index_(index), retryable_(retryable) {}
  uint64_t run_id() const { return run_id_; }    // 0 = none
  uint32_t step() const { return step_; }        // of the program, TENON_NONE = none
  int64_t index() const { return index_; }       // first bad flat index, -1 = none
  bool retryable() const { return retryable_; }  // the same call may succeed later

 private:
  uint64_t run_id_;
  uint32_t step_;
  int64_t index_;
  bool retryable_;
};

// A failure of compile with TENON_STATUS_WITHDRAWN: the plugin's next verdict on the node is
// another.
class Withdrawal : public DeviceError {
 public:
  explicit Withdrawal(const DeviceError& error) : DeviceError(error) {}
};

// Where a run failed.
struct FailedNode {
  std::string node{}, op{}, device{};
  uint32_t step = TENON_NONE;  // among all steps of the plan, region after region
};

// A failure of a step of a run.
class StepError : public DeviceError {
 public:
  StepError(const DeviceError& error, const std::string& text, uint64_t run_id, FailedNode at)
      : DeviceError(error.code(), text, run_id, error.step(), error.index(), error.retryable()),
        at_(std::move(at)) {}
  const FailedNode& at() const { return at_; }

 private:
  FailedNode at_;
};

// Throws DeviceError unless status is null, and releases it. The first words of the text are the
// origin that the status names.
void check(tenon_status* status);
// The same with the first words "plugin NAME: SLOT: ".
void check(tenon_status* status, const Plugin& plugin, const char* slot);

// at: (optional) the node that failed.
tenon_status* make_status(const tenon_status_desc* desc, const FailedNode* at) noexcept;
inline tenon_status* make_status(const tenon_status_desc* desc) noexcept {
  return make_status(desc, nullptr);
}
void release_status(tenon_status* status) noexcept;
tenon_code status_code(const tenon_status* status) noexcept;
tenon_str status_text(const tenon_status* status) noexcept;
// What a status knows of a failed run. For a status that is not live: nothing.
struct StatusPlace {
  const FailedNode* at = nullptr;  // of the status; null: unknown
  uint64_t run_id = 0;
  int64_t index = -1;
  bool retryable = false;
};
StatusPlace status_place(const tenon_status* status) noexcept;

// The number of statuses that were not released, without causes.
size_t live_status_count();

// Copies a string of a plugin so that it is safe to print: control characters become '?'. An
// impossible size gives a remark instead.
std::string copy_text(tenon_str text);

}  // namespace tenon::core
