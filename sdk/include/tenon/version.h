// SPDX-License-Identifier: Apache-2.0
//
// The versions of tenon: the release, the backend ABI, the host API. CMake reads this file.

#ifndef TENON_VERSION_H
#define TENON_VERSION_H

// Release.
#define TENON_VERSION_MAJOR 0
#define TENON_VERSION_MINOR 1
#define TENON_VERSION_PATCH 0

// Backend ABI (backend.h, blob.h). Before 1.0 both numbers must match exactly.
#define TENON_ABI_MAJOR 0
#define TENON_ABI_MINOR 1

// Host API (tenon.h).
#define TENON_API_MAJOR 0
#define TENON_API_MINOR 1

#endif
