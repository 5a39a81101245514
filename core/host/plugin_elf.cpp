// SPDX-License-Identifier: Apache-2.0
// Maps a file and reads its ELF headers. Checks every offset.
#include "host/plugin_elf.hpp"

#include <elf.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "tenon/manifest.h"

namespace tenon::core {
namespace {
std::string system_text(int code) { return std::generic_category().message(code); }
}  // namespace

ElfFile::ElfFile(const Descriptor& file, std::string path) : path_(std::move(path)) {
  struct stat info {};
  if (fstat(file.get(), &info) != 0) {
    fail(Code::io_error, path_, " cannot be read: ", system_text(errno));
  }
  if (info.st_size == 0) fail(Code::corrupt, path_, " is empty");
  size_ = static_cast<uint64_t>(info.st_size);
  void* mapped = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (mapped == MAP_FAILED) {
    fail(Code::io_error, path_, " cannot be mapped: ", system_text(errno));
  }
  bytes_ = static_cast<const char*>(mapped);
  try {
    check();
  } catch (...) {
    munmap(mapped, size_);
    throw;
  }
}

ElfFile::~ElfFile() { munmap(const_cast<char*>(bytes_), size_); }

template <class Record>
Record ElfFile::record(uint64_t at) const {
  if (at > size_ || size_ - at < sizeof(Record)) {
    fail(Code::corrupt, path_, " is truncated or damaged: a record at byte ", at,
         ", the file ends at ", size_);
  }
  Record record;
  std::memcpy(&record, bytes_ + at, sizeof record);
  return record;
}

// The system's loader trusts the program headers: a segment beyond the end of the file would be
// mapped and crash when touched.
void ElfFile::check() const {
  if (size_ < sizeof(Elf64_Ehdr)) fail(Code::corrupt, path_, " is too short for an ELF file");
  const auto head = record<Elf64_Ehdr>(0);
  if (std::memcmp(head.e_ident, ELFMAG, SELFMAG) != 0)
    fail(Code::corrupt, path_, " is no ELF file");
  if (head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_ident[EI_DATA] != ELFDATA2LSB) {
    fail(Code::incompatible, path_, " is no 64-bit little-endian ELF file");
  }
  if (head.e_machine != TENON_MANIFEST_ARCH) {
    fail(Code::incompatible, path_, " is for ELF machine ", head.e_machine, ", this host is ",
         TENON_MANIFEST_ARCH);
  }
  if (head.e_type != ET_DYN) fail(Code::corrupt, path_, " is no shared library");
  if (head.e_phentsize != sizeof(Elf64_Phdr) || head.e_phoff > size_ ||
      head.e_phnum > (size_ - head.e_phoff) / sizeof(Elf64_Phdr)) {
    fail(Code::corrupt, path_, " is truncated or damaged: its program headers are out of bounds");
  }
  for (unsigned i = 0; i < head.e_phnum; ++i) {
    const auto segment = record<Elf64_Phdr>(head.e_phoff + i * sizeof(Elf64_Phdr));
    if (segment.p_type == PT_NULL || segment.p_type == PT_GNU_STACK) continue;
    if (segment.p_offset > size_ || segment.p_filesz > size_ - segment.p_offset) {
      fail(Code::corrupt, path_, " is truncated or damaged: segment ", i, " ends at byte ",
           segment.p_offset + segment.p_filesz, ", the file at ", size_);
    }
  }
}

// The file offset of the byte that is mapped to an address.
uint64_t ElfFile::offset_of(uint64_t address) const {
  const auto head = record<Elf64_Ehdr>(0);
  for (unsigned i = 0; i < head.e_phnum; ++i) {
    const auto segment = record<Elf64_Phdr>(head.e_phoff + i * sizeof(Elf64_Phdr));
    if (segment.p_type == PT_LOAD && address >= segment.p_vaddr &&
        address - segment.p_vaddr < segment.p_filesz) {
      return segment.p_offset + (address - segment.p_vaddr);
    }
  }
  fail(Code::corrupt, path_, " is damaged: no segment holds address ", address,
       " of its dynamic section");
}

std::string ElfFile::text_at(uint64_t at) const {
  const char* end =
      at < size_ ? static_cast<const char*>(std::memchr(bytes_ + at, 0, size_ - at)) : nullptr;
  if (!end) fail(Code::corrupt, path_, " is damaged: a name of its dynamic section has no end");
  return {bytes_ + at, end};
}

LinkNames ElfFile::link_names() const {
  const auto head = record<Elf64_Ehdr>(0);
  std::vector<Elf64_Dyn> entries;
  for (unsigned i = 0; i < head.e_phnum; ++i) {
    const auto segment = record<Elf64_Phdr>(head.e_phoff + i * sizeof(Elf64_Phdr));
    if (segment.p_type != PT_DYNAMIC) continue;
    for (uint64_t at = offset_of(segment.p_vaddr);; at += sizeof(Elf64_Dyn)) {
      const auto entry = record<Elf64_Dyn>(at);
      if (entry.d_tag == DT_NULL) break;
      entries.push_back(entry);
    }
  }
  uint64_t texts = 0;
  for (const Elf64_Dyn& entry : entries) {
    if (entry.d_tag == DT_STRTAB) texts = offset_of(entry.d_un.d_ptr);
  }
  LinkNames names;
  for (const Elf64_Dyn& entry : entries) {
    const auto text = [&] { return text_at(texts + std::min(entry.d_un.d_val, size_)); };
    if (entry.d_tag == DT_NEEDED || entry.d_tag == DT_AUXILIARY || entry.d_tag == DT_FILTER) {
      names.needed.push_back(text());
    }
    if (entry.d_tag == DT_RPATH) names.rpath = text();
    if (entry.d_tag == DT_RUNPATH) names.runpath = text();
  }
  return names;
}

}  // namespace tenon::core
