// SPDX-License-Identifier: Apache-2.0
// The intrinsics of x86-64, for what Highway does not cover. TENON_CPU_X86 is 1 where they exist.
#pragma once

#include <hwy/highway.h>

#if HWY_ARCH_X86_64 && defined(__linux__)
#define TENON_CPU_X86 1
#include <cpuid.h>
// GCC 12 warns about undefined vectors inside its own intrinsics.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#else
#define TENON_CPU_X86 0
#endif
