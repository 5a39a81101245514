// SPDX-License-Identifier: Apache-2.0
// A plugin's file before any of its code runs: who may write it, and what its manifest says. Any
// bytes are safe.
#pragma once

#include <cstdint>
#include <string>

#include "tenon/manifest.h"

namespace tenon::core {

struct FileId {
  uint64_t device = 0, inode = 0;
  friend auto operator<=>(const FileId&, const FileId&) = default;
};

// Throws unless path (canonical) is a regular file that only this user or root can change, in a
// directory of which the same is true.
FileId check_permissions(const std::string& path);

// The manifest of a file that the system's loader can map without leaving it.
tenon_manifest read_manifest(const std::string& path);

// Throws unless this host can run it: ABI, architecture, instruction set, sanitizers.
void check_manifest(const tenon_manifest& manifest);

}  // namespace tenon::core
