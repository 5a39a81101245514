// SPDX-License-Identifier: Apache-2.0
// Keeps the kernels that plugins offer for devices of others.
#include "host/guest_kernels.hpp"

#include <deque>
#include <mutex>

#include "base/c_struct.hpp"

namespace tenon::core {
namespace {

struct List {
  std::mutex mutex;
  std::deque<GuestKernel> rows;
};
List& list() {
  static List& the = *new List;  // never destroyed: plugins keep pointers to rows
  return the;
}

GuestKernel read(const tenon_kernel_row& row, std::string_view plugin) {
  GuestKernel out;
  const auto text = [&](tenon_str given, std::string_view what) {
    const std::string_view s = view(given);
    if (s.empty() || s.size() > 64)
      fail(Code::incompatible, "plugin ", plugin, ": " TENON_KERNELS_ID ": ", what,
           ": expected up to 64 bytes, got ", s.size());
    return std::string(s);
  };
  out.plugin = plugin;
  out.device_kind = text(row.device_kind, "device_kind");
  out.form = text(row.form, "form");
  out.domain = text(row.domain, "domain");
  out.op = text(row.op, "op");
  out.row = row;
  if (!row.make)
    fail(Code::incompatible, "plugin ", plugin, ": " TENON_KERNELS_ID ": the maker of ", out.domain,
         ":", out.op, " is NULL");
  return out;
}

// put() is called under the lock, so that nothing is allocated and no row can be missed.
void each(tenon_str device_kind, tenon_str form,
          void (*put)(void* user, const tenon_kernel_row* row), void* user) noexcept {
  const std::string_view kind(device_kind.data, device_kind.size), id(form.data, form.size);
  const std::lock_guard lock(list().mutex);
  for (const GuestKernel& k : list().rows)
    if (k.device_kind == kind && k.form == id) put(user, &k.row);
}

constexpr tenon_kernel_list kList = {.struct_size = sizeof(tenon_kernel_list), .each = each};

}  // namespace

std::vector<GuestKernel> read_guest_kernels(std::span<const tenon_kernel_row> rows,
                                            std::string_view plugin) {
  std::vector<GuestKernel> out;
  for (const tenon_kernel_row& row : rows) out.push_back(read(row, plugin));
  return out;
}

void add_guest_kernels(std::vector<GuestKernel> kernels) {
  const std::lock_guard lock(list().mutex);
  for (GuestKernel& k : kernels) {
    const auto same = [&](const GuestKernel& other) {
      return other.plugin == k.plugin && other.device_kind == k.device_kind &&
             other.form == k.form && other.domain == k.domain && other.op == k.op &&
             other.row.version == k.row.version && other.row.make == k.row.make &&
             other.row.user == k.row.user;
    };
    if (std::ranges::any_of(list().rows, same)) continue;
    GuestKernel& at = list().rows.emplace_back(std::move(k));
    at.row.device_kind = c_str(at.device_kind);
    at.row.form = c_str(at.form);
    at.row.domain = c_str(at.domain);
    at.row.op = c_str(at.op);
  }
}

const tenon_kernel_list* guest_kernel_list() { return &kList; }

}  // namespace tenon::core
