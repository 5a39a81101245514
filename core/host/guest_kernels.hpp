// SPDX-License-Identifier: Apache-2.0
// The kernels that plugins offer for devices of others (kernels.h): one list per process, which only
// grows.
#pragma once

#include <span>
#include <string_view>

#include "tenon/kernels.h"

namespace tenon::core {

// Throws incompatible if a row is not valid.
void check_guest_kernels(std::span<const tenon_kernel_row> rows, std::string_view plugin);
// Adds valid rows of a plugin. Those that the same image added before are left out.
void add_guest_kernels(std::span<const tenon_kernel_row> rows, std::string_view plugin);

// The host's side of the extension.
const tenon_kernel_list* guest_kernel_list();

}  // namespace tenon::core
