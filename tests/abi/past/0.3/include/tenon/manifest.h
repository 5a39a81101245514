// SPDX-License-Identifier: Apache-2.0
//
// The manifest: what a plugin states about itself in an ELF note. The host reads it without loading
// the file, and refuses the file before any of its code runs (dlopen runs constructors). C11, C++.
//
// A plugin in C writes once, at file scope:
//
//   TENON_MANIFEST("mine", "1.0.0", "me", "mine", TENON_ISA_BASELINE)
//
// For a plugin in C++, TENON_PLUGIN (plugin.hpp) does so. The note is part of a loaded segment:
// strip and --gc-sections keep it.

#ifndef TENON_MANIFEST_H
#define TENON_MANIFEST_H

#include <string.h>

#include "types.h"
#include "version.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TENON_MANIFEST_MAGIC UINT32_C(0x464D4E54)  // bytes "TNMF"
#define TENON_MANIFEST_OWNER "tenon"
#define TENON_MANIFEST_NOTE_TYPE UINT32_C(1)

// The layout is made by hand:
// clang-format off

// tenon_manifest::arch: the machine number of the ELF format
#define TENON_ARCH_X86_64  UINT32_C(62)
#define TENON_ARCH_AARCH64 UINT32_C(183)

// tenon_manifest::isa: the instruction set that the file needs to be loaded. Instruction sets that
// it selects at run time do not count. A host refuses an isa that it does not know.
#define TENON_ISA_BASELINE  "baseline"
#define TENON_ISA_X86_64_V2 "x86-64-v2"
#define TENON_ISA_X86_64_V3 "x86-64-v3"
#define TENON_ISA_X86_64_V4 "x86-64-v4"

// tenon_manifest::sanitizers: the host must be built with the same ones
#define TENON_SANITIZER_ADDRESS UINT32_C(1)
#define TENON_SANITIZER_THREAD  UINT32_C(2)

// Texts are UTF-8, padded with zeros; the last byte is always zero. New fields are appended.
typedef struct tenon_manifest {
  uint32_t magic;             // TENON_MANIFEST_MAGIC
  uint32_t struct_size;
  uint32_t abi_major;
  uint32_t abi_minor_min;
  uint32_t abi_minor_max;
  uint32_t arch;              // TENON_ARCH_*
  uint32_t sanitizers;        // TENON_SANITIZER_*
  uint32_t reserved0;
  char isa[32];               // TENON_ISA_*
  char name[32];              // the name in tenon_backend
  char version[32];
  char vendor[64];
  char kinds[64];             // device kinds, separated by commas: "cpu"
} tenon_manifest;

// The ELF note as it is in the file. Notes are aligned to 4, so no field is wider.
typedef struct tenon_manifest_note {
  uint32_t owner_size;
  uint32_t manifest_size;
  uint32_t type;              // TENON_MANIFEST_NOTE_TYPE
  char owner[8];              // TENON_MANIFEST_OWNER
  tenon_manifest manifest;
} tenon_manifest_note;

// clang-format on

#if defined(__x86_64__)
#define TENON_MANIFEST_ARCH TENON_ARCH_X86_64
#elif defined(__aarch64__)
#define TENON_MANIFEST_ARCH TENON_ARCH_AARCH64
#else
#define TENON_MANIFEST_ARCH UINT32_C(0)
#endif

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TENON_BUILT_WITH_ASAN_ 1
#endif
#if __has_feature(thread_sanitizer)
#define TENON_BUILT_WITH_TSAN_ 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define TENON_BUILT_WITH_ASAN_ 1
#endif
#if defined(__SANITIZE_THREAD__)
#define TENON_BUILT_WITH_TSAN_ 1
#endif
#if defined(TENON_BUILT_WITH_ASAN_)
#define TENON_MANIFEST_ASAN_ TENON_SANITIZER_ADDRESS
#else
#define TENON_MANIFEST_ASAN_ UINT32_C(0)
#endif
#if defined(TENON_BUILT_WITH_TSAN_)
#define TENON_MANIFEST_TSAN_ TENON_SANITIZER_THREAD
#else
#define TENON_MANIFEST_TSAN_ UINT32_C(0)
#endif
// The sanitizers of the current compilation.
#define TENON_MANIFEST_SANITIZERS (TENON_MANIFEST_ASAN_ | TENON_MANIFEST_TSAN_)

// Without no_sanitize, AddressSanitizer pads the section with red zones.
#if defined(__clang__)
#define TENON_NO_RED_ZONE_ __attribute__((no_sanitize("address")))
#else
#define TENON_NO_RED_ZONE_
#endif
#define TENON_MANIFEST_PLACED \
  TENON_NO_RED_ZONE_ __attribute__((section(".note.tenon"), used, aligned(4)))

// For plugins in C. All arguments are string literals; isa is TENON_ISA_*.
#define TENON_MANIFEST(name, version, vendor, kinds, isa)                                      \
  TENON_MANIFEST_PLACED static const tenon_manifest_note tenon_manifest_note_ = {              \
      sizeof(TENON_MANIFEST_OWNER),                                                            \
      sizeof(tenon_manifest),                                                                  \
      TENON_MANIFEST_NOTE_TYPE,                                                                \
      TENON_MANIFEST_OWNER,                                                                    \
      {TENON_MANIFEST_MAGIC, sizeof(tenon_manifest), TENON_ABI_MAJOR, TENON_MIN_HOST_MINOR,    \
       TENON_ABI_MINOR, TENON_MANIFEST_ARCH, TENON_MANIFEST_SANITIZERS, 0, isa, name, version, \
       vendor, kinds}}

// ---- Reading ------------------------------------------------------------------------------------

static inline int tenon_manifest_take_(void* to, const unsigned char* bytes, uint64_t size,
                                       uint64_t offset, uint64_t count) {
  if (offset > size || count > size - offset) return 0;
  memcpy(to, bytes + offset, (size_t)count);
  return 1;
}

// Searches a note segment. Returns 1 if the manifest is found, 0 if not, -1 if it is damaged.
static inline int tenon_manifest_in_notes_(const unsigned char* bytes, uint64_t size,
                                           uint64_t begin, uint64_t end, tenon_manifest* out) {
  while (begin < end && end - begin >= 12) {
    uint32_t head[3];
    uint64_t content;
    char owner[sizeof(TENON_MANIFEST_OWNER)];
    if (!tenon_manifest_take_(head, bytes, size, begin, sizeof(head))) return 0;
    content = begin + 12 + (((uint64_t)head[0] + 3) & ~UINT64_C(3));
    if (head[2] == TENON_MANIFEST_NOTE_TYPE && head[0] == sizeof(owner) &&
        tenon_manifest_take_(owner, bytes, size, begin + 12, sizeof(owner)) &&
        memcmp(owner, TENON_MANIFEST_OWNER, sizeof(owner)) == 0) {
      const uint64_t known = head[1] < sizeof(*out) ? head[1] : sizeof(*out);
      memset(out, 0, sizeof(*out));
      if (!tenon_manifest_take_(out, bytes, size, content, known)) return -1;
      if (known < offsetof(tenon_manifest, isa) || out->magic != TENON_MANIFEST_MAGIC ||
          out->struct_size != head[1])
        return -1;
      out->isa[sizeof(out->isa) - 1] = out->name[sizeof(out->name) - 1] = 0;
      out->version[sizeof(out->version) - 1] = out->vendor[sizeof(out->vendor) - 1] = 0;
      out->kinds[sizeof(out->kinds) - 1] = 0;
      return 1;
    }
    begin = content + (((uint64_t)head[1] + 3) & ~UINT64_C(3));
  }
  return 0;
}

// Finds the manifest in the bytes of a file, which may be any bytes. Returns NULL and sets *out, or
// returns what is wrong (a static string). Fields beyond the manifest's struct_size become zero.
static inline const char* tenon_manifest_find(const void* file, uint64_t size,
                                              tenon_manifest* out) {
  const unsigned char* bytes = (const unsigned char*)file;
  static const unsigned char ident[6] = {0x7F, 'E', 'L', 'F', 2, 1};  // 64-bit, little-endian
  uint64_t headers;
  uint16_t each, count;
  if (size < 64 || memcmp(bytes, ident, sizeof(ident)) != 0)
    return "not a 64-bit little-endian ELF file";
  memcpy(&headers, bytes + 32, 8);
  memcpy(&each, bytes + 54, 2);
  memcpy(&count, bytes + 56, 2);
  if (each < 56) return "the ELF program headers are damaged";
  for (uint16_t i = 0; i < count; ++i) {
    unsigned char header[56];
    uint32_t type;
    uint64_t begin, length;
    int found;
    if (headers > size ||
        !tenon_manifest_take_(header, bytes, size, headers + (uint64_t)i * each, sizeof(header)))
      return "the ELF program headers are out of bounds";
    memcpy(&type, header, 4);
    memcpy(&begin, header + 8, 8);
    memcpy(&length, header + 32, 8);
    if (type != 4) continue;  // PT_NOTE
    if (begin > size || length > size - begin) return "an ELF note segment is out of bounds";
    found = tenon_manifest_in_notes_(bytes, size, begin, begin + length, out);
    if (found > 0) return NULL;
    if (found < 0) return "the plugin manifest is damaged";
  }
  return "the file has no tenon manifest: it is not a tenon plugin";
}

#ifdef __cplusplus
}
#endif
#endif
