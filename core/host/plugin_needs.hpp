// SPDX-License-Identifier: Apache-2.0
// The libraries that a plugin's file needs: where the system's loader will find them, and who could
// put others there.
#pragma once

#include <string>

#include "host/plugin_elf.hpp"

namespace tenon::core {

// Throws when the loader, asked for the plugin, would search a folder that others can write, or a
// relative one, or find a library there. Libraries that the process has loaded already, and the
// system's own folders (ld.so.conf), are not checked. `exempt` as for open_trusted.
// Returns whether a name depends on the plugin's own folder ($ORIGIN).
bool check_needs(const ElfFile& plugin, const std::string& exempt = {});

}  // namespace tenon::core
