// SPDX-License-Identifier: Apache-2.0
// The manifest of a plugin's file, read before any of its code runs. Safe on any bytes.
#pragma once

#include "host/plugin_elf.hpp"
#include "tenon/manifest.h"

namespace tenon::core {

tenon_manifest read_manifest(const ElfFile& file);

// Throws unless this host can run the plugin: ABI, architecture, instruction set, sanitizers.
void check_manifest(const tenon_manifest& manifest);

}  // namespace tenon::core
