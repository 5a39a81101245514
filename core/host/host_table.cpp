// SPDX-License-Identifier: Apache-2.0
// The functions that the host offers to plugins.
#include "host/host_table.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "host/guest_kernels.hpp"
#include "host/status.hpp"
#include "tenon/version.h"

namespace tenon::core {
namespace {

thread_local std::string refusal;

void refuse(tenon_str reason) noexcept {
  try {
    refusal = copy_text(reason);
  } catch (...) {
    refusal.clear();
  }
}

void log_from_plugin(uint32_t level, tenon_str text) noexcept {
  try {
    log(static_cast<LogLevel>(std::min(level, static_cast<uint32_t>(LogLevel::error))),
        copy_text(text));
  } catch (...) {
    // Without memory, only the remark is lost.
  }
}

const void* get_extension(tenon_str id) noexcept {
  const std::string_view wanted(id.data ? id.data : "", id.data ? id.size : 0);
  return wanted == TENON_KERNELS_ID ? guest_kernel_list() : nullptr;
}

constexpr std::string_view version() {
#define TENON_TEXT_OF(x) #x
#define TENON_TEXT(x) TENON_TEXT_OF(x)
  return TENON_TEXT(TENON_VERSION_MAJOR) "." TENON_TEXT(TENON_VERSION_MINOR) "." TENON_TEXT(
      TENON_VERSION_PATCH);
#undef TENON_TEXT
#undef TENON_TEXT_OF
}

constexpr tenon_host kTable = {
    .struct_size = sizeof(tenon_host),
    .abi_major = TENON_ABI_MAJOR,
    .abi_minor_min = TENON_ABI_MINOR_OLDEST,
    .abi_minor_max = TENON_ABI_MINOR,
    .reserved0 = 0,
    .version = {version().data(), version().size()},
    .make_status = make_status,
    .release_status = release_status,
    .status_code = status_code,
    .status_text = status_text,
    .refuse = refuse,
    .log = log_from_plugin,
    .get_extension = get_extension,
};

}  // namespace

const tenon_host* host_table() { return &kTable; }

std::string take_refusal() { return std::exchange(refusal, {}); }

}  // namespace tenon::core
