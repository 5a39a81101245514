// SPDX-License-Identifier: Apache-2.0
// Reads TENON_CPU_ISA once, and disables Highway's targets above the cap.
#include "isa.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "isa.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

int64_t target() { return HWY_TARGET; }

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <cstdlib>
#include <iterator>
#include <optional>
#include <string_view>

namespace tenon::cpu {
namespace {

HWY_EXPORT(target);

constexpr std::string_view kNames[] = {"sse4", "avx2", "avx512", "amx"};

std::string_view wanted() {
  static const char* const text = secure_getenv("TENON_CPU_ISA");  // null in a privileged process
  return text == nullptr ? std::string_view() : text;
}

std::optional<Isa> isa_named(std::string_view name) {
  for (size_t k = 0; k < std::size(kNames); ++k)
    if (kNames[k] == name) return static_cast<Isa>(k);
  return {};
}

}  // namespace

Isa isa_cap() {
  static const Isa cap = isa_named(wanted()).value_or(Isa::amx);
  return cap;
}

void cap_isa() {
  if (isa_cap() >= Isa::avx512) return;
  // In Highway's bit mask, a lower bit is a better target.
  const int64_t cap = isa_cap() == Isa::avx2 ? HWY_AVX2 : HWY_SSE4;
  // DisableTargets does not work here: in Highway 1.0, the next call of SupportedTargets undoes it.
  hwy::SetSupportedTargetsForTest(hwy::SupportedTargets() & -cap);
}

std::string isa_remark() {
  if (wanted().empty()) return {};
  if (!isa_named(wanted()))
    return "TENON_CPU_ISA: expected sse4, avx2, avx512 or amx, got '" + std::string(wanted()) +
           "'; it is ignored";
  return "TENON_CPU_ISA=" + std::string(wanted()) + ": kernels for " +
         hwy::TargetName(HWY_DYNAMIC_DISPATCH(target)());
}

}  // namespace tenon::cpu
#endif  // HWY_ONCE
