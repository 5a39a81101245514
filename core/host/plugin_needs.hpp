// SPDX-License-Identifier: Apache-2.0
// The libraries that a plugin's file needs: where the system's loader finds them, and who could
// replace them.
#pragma once

#include <string>

#include "host/plugin_elf.hpp"

namespace tenon::core {

// Throws if the loader would search a relative folder, or a folder that others can write, or find a
// library there. Does not check libraries that the process has loaded already, and the system's own
// folders (ld.so.conf). `exempt`: as for open_trusted. Returns true if a name depends on the
// plugin's own folder ($ORIGIN).
bool check_needs(const ElfFile& plugin, const std::string& exempt = {});

}  // namespace tenon::core
