// SPDX-License-Identifier: Apache-2.0
// The instruction sets that kernels may use: those of the processor, or fewer where TENON_CPU_ISA
// says so. For tests and measurements of other processors' kernels on this one.
#pragma once

#include <cstdint>
#include <string>

namespace tenon::cpu {

enum class Isa : uint8_t { sse4, avx2, avx512, amx };

// The highest set that may be used; amx unless TENON_CPU_ISA (sse4, avx2, avx512, amx) says less. The
// variable is ignored in privileged processes. An unknown value caps nothing.
Isa isa_cap();

// Keeps Highway to the cap, in this process and for good. Called before any kernel runs.
void cap_isa();

// What TENON_CPU_ISA does, or what is wrong with its value; empty if it is not set.
std::string isa_remark();

}  // namespace tenon::cpu
