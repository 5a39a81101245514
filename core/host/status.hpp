// SPDX-License-Identifier: Apache-2.0
// Status objects: made by the host on behalf of plugins, turned into DeviceError by check(). Every
// live one is known, so that a status which a plugin made up or released already is refused.
#pragma once

#include <cstddef>
#include <string>

#include "tenon/backend.h"

namespace tenon::core {

tenon_status* make_status(const tenon_status_desc* desc) noexcept;
void release_status(tenon_status* status) noexcept;
tenon_code status_code(const tenon_status* status) noexcept;
tenon_str status_text(const tenon_status* status) noexcept;

// How many statuses nobody has released yet, causes not counted.
size_t live_status_count();

// A copy of a string that a plugin gave, safe to print: control characters become '?'. A size that
// cannot be true gives a remark instead.
std::string copy_text(tenon_str text);

}  // namespace tenon::core
