// SPDX-License-Identifier: Apache-2.0
// Hosts of tests: they load the plugins that the test names, and no others.
#pragma once

#include <utility>
#include <vector>

#include "host/host.hpp"

inline tenon::core::HostOptions only(std::vector<tenon_backend_entry_fn> entries) {
  tenon::core::HostOptions o;
  o.entries = std::move(entries);
  o.use_environment = o.use_builtin_dir = false;
  return o;
}
