// SPDX-License-Identifier: Apache-2.0
// What a plugin's file says of itself before any of its code runs. Any bytes are safe.
#pragma once

#include "host/plugin_elf.hpp"
#include "tenon/manifest.h"

namespace tenon::core {

tenon_manifest read_manifest(const ElfFile& file);

// Throws unless this host can run it: ABI, architecture, instruction set, sanitizers.
void check_manifest(const tenon_manifest& manifest);

}  // namespace tenon::core
