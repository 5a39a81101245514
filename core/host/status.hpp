// SPDX-License-Identifier: Apache-2.0
// Status objects: created by the host on behalf of plugins, and converted to DeviceError by
// check(). All live ones are known, so a status that a plugin invented or has released already is
// refused.
#pragma once

#include <cstddef>
#include <string>

#include "tenon/backend.h"

namespace tenon::core {

tenon_status* make_status(const tenon_status_desc* desc) noexcept;
void release_status(tenon_status* status) noexcept;
tenon_code status_code(const tenon_status* status) noexcept;
tenon_str status_text(const tenon_status* status) noexcept;

// The number of statuses that were not released, without causes.
size_t live_status_count();

// Copies a string of a plugin so that it is safe to print: control characters become '?'. An
// impossible size gives a remark instead.
std::string copy_text(tenon_str text);

}  // namespace tenon::core
