// SPDX-License-Identifier: Apache-2.0
// The kernels that plugins offer for devices of others (kernels.h): one list per process, which only
// grows.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/kernels.h"

namespace tenon::core {

// A row of a plugin, with texts of its own.
struct GuestKernel {
  std::string plugin, device_kind, form, domain, op;
  tenon_kernel_row row{};  // its texts are those above once the kernel is added
};
// Throws incompatible if a row is not valid.
std::vector<GuestKernel> read_guest_kernels(std::span<const tenon_kernel_row> rows,
                                            std::string_view plugin);
// Those that the same image added before are left out.
void add_guest_kernels(std::vector<GuestKernel> kernels);

// The host's side of the extension.
const tenon_kernel_list* guest_kernel_list();

}  // namespace tenon::core
