// SPDX-License-Identifier: Apache-2.0
// The instruction sets that kernels may use. TENON_CPU_ISA caps them, to test and measure the
// kernels for other processors on this one.
#pragma once

#include <cstdint>
#include <string>

namespace tenon::cpu {

enum class Isa : uint8_t { sse4, avx2, avx512, amx };

// The highest instruction set that kernels may use: amx, unless TENON_CPU_ISA (sse4, avx2, avx512,
// amx) caps it. The variable is ignored in privileged processes. An unknown value does not cap.
Isa isa_cap();

// Applies the cap to Highway, permanently and for the whole process. Call it before any kernel
// runs.
void cap_isa();

// Describes the effect of TENON_CPU_ISA, or the error in its value. Empty if the variable is not
// set.
std::string isa_remark();

}  // namespace tenon::cpu
