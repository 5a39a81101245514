// SPDX-License-Identifier: Apache-2.0
// A file that lives in memory, for readers that want a path.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <string_view>

#include "check.hpp"

namespace tenon::fuzz {

class MemoryFile {
 public:
  MemoryFile() : descriptor_(::memfd_create("fuzz", MFD_CLOEXEC)) {
    must(descriptor_ >= 0, "no file in memory");
  }
  ~MemoryFile() { ::close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  void write(std::string_view bytes) {
    must(::ftruncate(descriptor_, 0) == 0, "the file in memory cannot be emptied");
    for (size_t at = 0; at < bytes.size();) {
      const ssize_t n =
          ::pwrite(descriptor_, bytes.data() + at, bytes.size() - at, static_cast<off_t>(at));
      must(n > 0, "the file in memory cannot be written");
      at += static_cast<size_t>(n);
    }
  }
  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

}  // namespace tenon::fuzz
