// SPDX-License-Identifier: Apache-2.0
//
// The versions of tenon: the release, the backend ABI, the host API. CMake reads this file.

#ifndef TENON_VERSION_H
#define TENON_VERSION_H

// Release.
#define TENON_VERSION_MAJOR 0
#define TENON_VERSION_MINOR 1
#define TENON_VERSION_PATCH 0

// Backend ABI (backend.h, blob.h). Host and plugin agree on a minor version that both speak.
#define TENON_ABI_MAJOR 0
#define TENON_ABI_MINOR 4
#define TENON_ABI_MINOR_OLDEST 2  // the oldest that this version of tenon speaks

// The oldest host that a plugin runs in, as a minor version of the ABI. An author defines it before
// the first header of tenon (CMake: tenon_add_plugin(... MIN_HOST_MINOR n)). A plugin that demands
// a newer host may rely on what that host offers.
#ifndef TENON_MIN_HOST_MINOR
#define TENON_MIN_HOST_MINOR TENON_ABI_MINOR_OLDEST
#endif
#if TENON_MIN_HOST_MINOR < TENON_ABI_MINOR_OLDEST || TENON_MIN_HOST_MINOR > TENON_ABI_MINOR
#error "TENON_MIN_HOST_MINOR: expected TENON_ABI_MINOR_OLDEST to TENON_ABI_MINOR"
#endif

// Host API (tenon.h).
#define TENON_API_MAJOR 0
#define TENON_API_MINOR 4

#endif
