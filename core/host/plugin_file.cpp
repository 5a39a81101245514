// SPDX-License-Identifier: Apache-2.0
#include "host/plugin_file.hpp"

#include <elf.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

#include "base/error.hpp"
#include "host/plugin.hpp"
#include "host/status.hpp"

namespace tenon::core {
namespace {

std::string system_text(int code) { return std::generic_category().message(code); }

// ---- Permissions

// Many systems give each user a group of his own and a umask that lets it write: nobody else is in
// it, so that is no one else's access.
bool is_private_group(uid_t owner, gid_t group) {
  std::vector<char> user_text(1 << 14), group_text(1 << 14);
  passwd user_entry{}, *user = nullptr;
  ::group group_entry{}, *found = nullptr;
  if (getpwuid_r(owner, &user_entry, user_text.data(), user_text.size(), &user) != 0 || !user) {
    return false;
  }
  if (getgrgid_r(group, &group_entry, group_text.data(), group_text.size(), &found) != 0 ||
      !found) {
    return false;
  }
  if (user->pw_gid != group || std::strcmp(user->pw_name, found->gr_name) != 0) return false;
  for (char** member = found->gr_mem; *member; ++member) {
    if (std::strcmp(*member, user->pw_name) != 0) return false;
  }
  return true;
}

void check_unshared(const struct stat& info, const char* what, const std::string& path) {
  if (info.st_uid != 0 && info.st_uid != geteuid()) {
    fail(Code::invalid_argument, what, " ", path, " belongs to user ", info.st_uid,
         ", expected root or this process's user ", geteuid());
  }
  const bool group = (info.st_mode & S_IWGRP) != 0 && !is_private_group(info.st_uid, info.st_gid);
  if ((info.st_mode & S_IWOTH) != 0 || group) {
    fail(Code::invalid_argument, what, " ", path, " can be written by others");
  }
}

// ---- The file's bytes

class Descriptor {
 public:
  // Not blocking: a named pipe must not hang the host.
  explicit Descriptor(const std::string& path)
      : descriptor_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (descriptor_ < 0) fail(Code::io_error, path, " cannot be read: ", system_text(errno));
  }
  ~Descriptor() { close(descriptor_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

class Mapping {
 public:
  explicit Mapping(const std::string& path) {
    const Descriptor file(path);
    struct stat info {};
    if (fstat(file.get(), &info) != 0) {
      fail(Code::io_error, path, " cannot be read: ", system_text(errno));
    }
    if (info.st_size == 0) fail(Code::corrupt, path, " is empty");
    size_ = static_cast<size_t>(info.st_size);
    bytes_ = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.get(), 0);
    if (bytes_ == MAP_FAILED) fail(Code::io_error, path, " cannot be mapped: ", system_text(errno));
  }
  ~Mapping() { munmap(bytes_, size_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  const void* bytes() const { return bytes_; }
  uint64_t size() const { return size_; }

 private:
  void* bytes_;
  size_t size_;
};

// The system's loader believes the program headers: a segment beyond the end would be mapped, and
// kill the process when touched.
void check_elf(const std::string& path, const Mapping& file) {
  Elf64_Ehdr head;
  if (file.size() < sizeof head) fail(Code::corrupt, path, " is too short for an ELF file");
  std::memcpy(&head, file.bytes(), sizeof head);
  if (std::memcmp(head.e_ident, ELFMAG, SELFMAG) != 0) fail(Code::corrupt, path, " is no ELF file");
  if (head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_ident[EI_DATA] != ELFDATA2LSB) {
    fail(Code::incompatible, path, " is no 64-bit little-endian ELF file");
  }
  if (head.e_machine != TENON_MANIFEST_ARCH) {
    fail(Code::incompatible, path, " is for ELF machine ", head.e_machine, ", this host is ",
         TENON_MANIFEST_ARCH);
  }
  if (head.e_type != ET_DYN) fail(Code::corrupt, path, " is no shared library");
  if (head.e_phentsize != sizeof(Elf64_Phdr) || head.e_phoff > file.size() ||
      head.e_phnum > (file.size() - head.e_phoff) / sizeof(Elf64_Phdr)) {
    fail(Code::corrupt, path, " is truncated or damaged: its program headers are out of bounds");
  }
  for (unsigned i = 0; i < head.e_phnum; ++i) {
    Elf64_Phdr segment;
    std::memcpy(&segment,
                static_cast<const char*>(file.bytes()) + head.e_phoff + i * sizeof segment,
                sizeof segment);
    if (segment.p_type == PT_NULL || segment.p_type == PT_GNU_STACK) continue;
    if (segment.p_offset > file.size() || segment.p_filesz > file.size() - segment.p_offset) {
      fail(Code::corrupt, path, " is truncated or damaged: segment ", i, " ends at byte ",
           segment.p_offset + segment.p_filesz, ", the file at ", file.size());
    }
  }
}

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

FileId check_permissions(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) {
    fail(Code::io_error, path, " cannot be read: ", system_text(errno));
  }
  if (!S_ISREG(info.st_mode)) fail(Code::invalid_argument, path, " is not a regular file");
  check_unshared(info, "file", path);
  struct stat around {};
  const std::string directory = std::filesystem::path(path).parent_path().string();
  if (stat(directory.c_str(), &around) != 0) {
    fail(Code::io_error, directory, " cannot be read: ", system_text(errno));
  }
  check_unshared(around, "directory", directory);
  const Descriptor readable(path);
  return {info.st_dev, info.st_ino};
}

tenon_manifest read_manifest(const std::string& path) {
  const Mapping file(path);
  check_elf(path, file);
  tenon_manifest manifest{};
  if (const char* bad = tenon_manifest_find(file.bytes(), file.size(), &manifest)) {
    fail(Code::incompatible, path, ": ", bad);
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
         ", which this host has not or does not know");
  }
  if ((m.sanitizers & ~TENON_MANIFEST_SANITIZERS) != 0) {
    fail(Code::incompatible, plugin, " was built with sanitizers: ", sanitizer_names(m.sanitizers),
         ", this host with: ", sanitizer_names(TENON_MANIFEST_SANITIZERS));
  }
}

}  // namespace tenon::core
