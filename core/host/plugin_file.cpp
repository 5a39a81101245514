// SPDX-License-Identifier: Apache-2.0
// Checks who may write a plugin's file, and reads its manifest from the ELF note.
#include "host/plugin_file.hpp"

#include <cstring>

#include "base/error.hpp"
#include "host/plugin.hpp"
#include "host/status.hpp"

namespace tenon::core {
namespace {

bool has_isa(std::string_view isa) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool v2 = __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("ssse3") &&
                  __builtin_cpu_supports("popcnt");
  const bool v3 = v2 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                  __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
  const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl");
  if (isa == TENON_ISA_X86_64_V2) return v2;
  if (isa == TENON_ISA_X86_64_V3) return v3;
  if (isa == TENON_ISA_X86_64_V4) return v4;
#endif
  return isa == TENON_ISA_BASELINE;
}

std::string sanitizer_names(uint32_t bits) {
  if (bits == 0) return "none";
  std::string names;
  if (bits & TENON_SANITIZER_ADDRESS) names += "address ";
  if (bits & TENON_SANITIZER_THREAD) names += "thread ";
  if (names.empty()) return cat("unknown ", bits);
  names.pop_back();
  return names;
}

}  // namespace

tenon_manifest read_manifest(const ElfFile& file) {
  tenon_manifest manifest{};
  if (const char* bad = tenon_manifest_find(file.bytes(), file.size(), &manifest)) {
    fail(Code::incompatible, file.path(), ": ", bad);
  }
  return manifest;
}

void check_manifest(const tenon_manifest& m) {
  const auto text = [](const char* field) { return copy_text({field, std::strlen(field)}); };
  const std::string plugin = "plugin " + text(m.name);
  check_version(plugin, m.abi_major, m.abi_minor_min, m.abi_minor_max);
  if (m.arch != TENON_MANIFEST_ARCH) {
    fail(Code::incompatible, plugin, " is for architecture ", m.arch, ", this host is ",
         TENON_MANIFEST_ARCH);
  }
  if (!has_isa(m.isa)) {
    fail(Code::incompatible, plugin, " needs a processor with ", text(m.isa),
         "; this processor does not have it, or this version of tenon does not know it");
  }
  if ((m.sanitizers & ~TENON_MANIFEST_SANITIZERS) != 0) {
    fail(Code::incompatible, plugin, " was built with sanitizers: ", sanitizer_names(m.sanitizers),
         ", this host with: ", sanitizer_names(TENON_MANIFEST_SANITIZERS));
  }
}

}  // namespace tenon::core
