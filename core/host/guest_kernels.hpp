// SPDX-License-Identifier: Apache-2.0
// The kernels that plugins offer for devices of others (kernels.h): one list per process, which only
// grows.
#pragma once

#include <span>
#include <string_view>

#include "tenon/kernels.h"

namespace tenon::core {

// Adds rows of a plugin; those that it added before are left out. The rows are checked.
void add_guest_kernels(std::span<const tenon_kernel_row> rows, std::string_view plugin);

// The host's side of the extension.
const tenon_kernel_list* guest_kernel_list();

}  // namespace tenon::core
