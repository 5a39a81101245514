// SPDX-License-Identifier: Apache-2.0
// Reads the choices of devices, and offers choices to them.
#include "host/choices.hpp"

#include <algorithm>
#include <exception>

#include "host/call.hpp"

namespace tenon::core {

void Plugin::find_choices() {
  find<tenon_choices>(TENON_CHOICES_ID, TENON_CHOICES_SIZE_V1, choices_,
                      [](const tenon_choices& t) { return t.list && t.take; });
}

std::vector<std::string> choices_of(const Device& device) {
  struct Taken {
    std::vector<std::string> list{};
    std::exception_ptr failure{};
  } taken;
  const auto put = [](void* user, tenon_str choice) noexcept {
    auto& to = *static_cast<Taken*>(user);
    try {
      to.list.emplace_back(choice.data ? choice.data : "", choice.data ? choice.size : 0);
    } catch (...) {
      to.failure = std::current_exception();
    }
  };
  const Plugin& plugin = device.plugin();
  if (!plugin.choices().list) return {};
  checked(plugin, "choices.list",
          [&] { return plugin.choices().list(device.handle(), put, &taken); });
  if (taken.failure) std::rethrow_exception(taken.failure);
  std::ranges::sort(taken.list);
  return taken.list;
}

void take_choice(const Device& device, std::string_view choice) {
  const Plugin& plugin = device.plugin();
  if (!plugin.choices().take) return;
  checked(plugin, "choices.take", [&] {
    return plugin.choices().take(device.handle(), {choice.data(), choice.size()});
  });
}

}  // namespace tenon::core
